//! What became of a write whose answer was lost: reads the one thing that only
//! this write can have left behind.

use tokio::time::Instant;

use super::run::{Task, run};
use super::verdict::Place;
use crate::driver::Core;
use crate::error::Error;
use crate::operation::{Operation, Target, Verb, Witness};
use crate::options::Settings;
use crate::response::Response;

/// Reads the witness where every write has been seen. `Some` is proof that the
/// write was applied; `None` that the document does not hold it.
pub(super) async fn read_back(
    core: &Core,
    operation: &Operation,
    witness: &Witness,
    settings: &Settings,
    deadline: Instant,
) -> Result<Option<Response>, Error> {
    let Some(container) = &operation.target.container else { return Ok(None) };
    let target = Target::item(container, &witness.id);
    let read = Operation::new(Verb::Read, target, operation.scope.clone(), bytes::Bytes::new());
    let task = Task { operation: &read, settings, deadline, place: Some(Place::WriteRegion) };
    match Box::pin(run(core, task)).await {
        Ok(response) => Ok(holds(&response, witness).then_some(response)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

fn holds(response: &Response, witness: &Witness) -> bool {
    serde_json::from_slice::<serde_json::Value>(&response.body)
        .is_ok_and(|document| document.pointer(&witness.pointer) == Some(&witness.value))
}
