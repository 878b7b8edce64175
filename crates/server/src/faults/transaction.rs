//! Faults that only transactions have: answers with results, and the mode of the answer.

use perihelion_engine::Refusal;
use perihelion_model::json::{Object, Value};
use perihelion_wire::status::{self, Status};

use super::{When, bad_request, number, text};
use crate::operation::Operation;

/// The members of a rule that only transactions have.
pub(super) const MEMBERS: [&str; 3] = ["isRetriable", "operationStatus", "responseMode"];

/// The results of a transaction that a rule puts into the body of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct InjectedResults {
    /// The status of the whole answer.
    pub(crate) status: Status,
    /// Whether the answer says that the transaction may be repeated.
    pub(crate) is_retriable: bool,
    /// The status of the first operation. All others are rolled back because of it.
    pub(crate) operation_status: Status,
    /// How long the client has to wait, in milliseconds.
    pub(crate) retry_after_ms: Option<u64>,
}

/// A change that only a rule for transactions can make to an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TransactionFault {
    /// The answer is replaced by one with these results.
    Results(InjectedResults),
    /// The answer says `responseMode: FastResponse`.
    FastResponse,
}

/// The fault of a rule for transactions; `None` if the rule has none of [`MEMBERS`]. `status` is
/// the status of the rule with its sub-status, and `retry_after_ms` the rule's `retryAfterMs`.
pub(super) fn parse(
    body: &Object,
    operation: Option<Operation>,
    status: Option<Status>,
    retry_after_ms: Option<u64>,
) -> Result<Option<TransactionFault>, Refusal> {
    let Some(name) = MEMBERS.iter().find(|name| body.get(name).is_some()) else { return Ok(None) };
    if operation != Some(Operation::Transaction) {
        return Err(bad_request(&format!("'{name}' needs \"operation\":\"transaction\".")));
    }
    match (body.get("isRetriable"), parse_mode(body)?) {
        (Some(_), Some(_)) => Err(bad_request("A rule cannot have both 'isRetriable' and 'responseMode'.")),
        (None, Some(fault)) if status.is_none() => Ok(Some(fault)),
        (None, Some(_)) => Err(bad_request("A rule cannot have both 'status' and 'responseMode'.")),
        (None, None) => Err(bad_request("'operationStatus' needs 'isRetriable'.")),
        (Some(Value::Bool(is_retriable)), None) => {
            let status = status.ok_or_else(|| bad_request("'isRetriable' needs 'status'."))?;
            let operation_status = parse_operation_status(body, status)?;
            let results =
                InjectedResults { status, is_retriable: *is_retriable, operation_status, retry_after_ms };
            Ok(Some(TransactionFault::Results(results)))
        }
        (Some(_), None) => Err(bad_request("'isRetriable' must be true or false.")),
    }
}

/// Refuses a rule that answers, after the commit, that nothing was written. A client would believe
/// the answer and write the same data again.
pub(super) fn check_when(fault: TransactionFault, when: Option<When>) -> Result<(), Refusal> {
    match fault {
        TransactionFault::Results(results)
            if when == Some(When::After)
                && (!results.is_retriable || results.status.code == status::TRANSACTION_ABORTED.code) =>
        {
            Err(bad_request(
                "An answer that says that the transaction was not carried out cannot have \"when\":\"after\". \
                 Leave out 'when', or use \"isRetriable\":true with a status other than 452.",
            ))
        }
        TransactionFault::Results(_) | TransactionFault::FastResponse => Ok(()),
    }
}

fn parse_mode(body: &Object) -> Result<Option<TransactionFault>, Refusal> {
    match text(body, "responseMode")? {
        None => Ok(None),
        Some("FastResponse") => Ok(Some(TransactionFault::FastResponse)),
        Some(_) => Err(bad_request("'responseMode' must be \"FastResponse\".")),
    }
}

/// The status of the first operation: the member `operationStatus`. Without this member it is the status
/// of the whole answer, but 449 (another transaction was faster) if the whole answer is an abort (452).
fn parse_operation_status(body: &Object, status: Status) -> Result<Status, Refusal> {
    let is_abort = status.code == status::TRANSACTION_ABORTED.code;
    let Some(code) = number(body, "operationStatus", 599)? else {
        return Ok(if is_abort { status::RETRY_WITH } else { status });
    };
    // A status from 500 on is a failure of the store, which does not abort a transaction.
    let code_max = if is_abort { 499 } else { 599 };
    let code = u16::try_from(code).ok().filter(|code| (400..=code_max).contains(code));
    let code = code.ok_or_else(|| {
        bad_request(&format!("'operationStatus' must be a whole number from 400 to {code_max}."))
    })?;
    Ok(Status::new(code, 0))
}
