//! `Operation`: the kind of a request, for counters and for fault rules.

pub(crate) use perihelion_wire::operation::OperationKind as Operation;

use crate::call::Call;

/// The operation of a call.
pub(crate) fn operation_of(call: &Call) -> Operation {
    Operation::of(&call.resource, &call.method, &call.headers)
}
