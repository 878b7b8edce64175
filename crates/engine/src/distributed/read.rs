//! Read transactions: point reads from one snapshot of the whole store.

use perihelion_wire::status;

use super::{DistributedRead, READ_BYTES_MAX};
use crate::documents::{self, ItemOutcome, Target};
use crate::keys::ContainerNumber;
use crate::refusal::Refusal;
use crate::session::check_session;
use crate::state::ContainerState;
use crate::storage::View;
use crate::writer::state_in;

/// Reads all documents. The outer refusal is for the whole transaction: the store failed, or the
/// documents are too large. `now` is in seconds since 1970.
pub(crate) fn read(
    view: &dyn View,
    reads: &[DistributedRead],
    now: u64,
) -> Result<Vec<Result<ItemOutcome, Refusal>>, Refusal> {
    let mut states: Vec<(ContainerNumber, ContainerState)> = Vec::new();
    let (mut results, mut bytes) = (Vec::with_capacity(reads.len()), 0);
    for read in reads {
        let result = read_one(view, read, &mut states, now);
        match &result {
            Ok(outcome) => bytes += outcome.body.len(),
            Err(refusal) if refusal.status >= status::INTERNAL_SERVER_ERROR.code => {
                return Err(refusal.clone());
            }
            Err(_) => {}
        }
        if bytes > READ_BYTES_MAX {
            return Err(Refusal::gateway(
                status::TOO_LARGE,
                format!(
                    "The documents of the transaction have more than {READ_BYTES_MAX} bytes. Divide it into several."
                ),
            ));
        }
        results.push(result);
    }
    Ok(results)
}

fn read_one(
    view: &dyn View,
    read: &DistributedRead,
    states: &mut Vec<(ContainerNumber, ContainerState)>,
    now: u64,
) -> Result<ItemOutcome, Refusal> {
    let container = read.container.as_ref().map_err(Refusal::clone)?;
    let target = Target::resolve(container, read.partition_key.clone())?;
    let session = read.session.as_ref().map_err(Refusal::clone)?;
    let at = match states.iter().position(|(number, _)| *number == container.number()) {
        Some(at) => at,
        None => {
            states.push((container.number(), state_in(view, container)?));
            states.len() - 1
        }
    };
    let state = &states[at].1;
    check_session(container, state, session, &[target.range.id])?;
    documents::read_item(view, &target, &read.id, &read.precondition, state, now)
}
