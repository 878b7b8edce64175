//! Finds out whether a write whose answer was lost was applied, by reading its
//! [`Witness`]: a value that only this write can have left behind.
//!
//! The witness is read in the write region and with the current session, whatever
//! the operation's own options say about reads. A witness that is found, in any
//! region, proves that the write was applied. A witness that is not found counts
//! as absent only in a write region: other regions may be behind.

use super::prepare::Task;
use super::run::run;
use crate::core::Core;
use crate::diagnostics::Diagnostics;
use crate::operation::{Operation, Target, Verb, Witness};
use crate::options::{ReadConsistency, Settings};
use crate::response::Response;
use crate::routing::resolve::RouteTo;

/// What reading the witness has shown.
pub(super) enum Evidence {
    /// The write was applied.
    Applied(Response),
    /// The write region does not have the witness.
    Absent(Diagnostics),
    /// The reading proves nothing: it failed, or it did not find the witness in a
    /// region that may be behind.
    None(Diagnostics),
}

/// Reads the witness of a write.
pub(super) async fn read_back(core: &Core, task: Task<'_>, witness: &Witness) -> Evidence {
    let Some(container) = &task.operation.target.container else {
        return Evidence::None(Diagnostics::default());
    };
    let target = Target::item(container, &witness.id);
    let read = Operation::new(Verb::Read, target, task.operation.scope.clone(), bytes::Bytes::new());
    let settings = Settings {
        excluded_regions: Vec::new(),
        session_token: None,
        read_consistency: match task.settings.read_consistency {
            ReadConsistency::Eventual => ReadConsistency::Account,
            stronger => stronger,
        },
        ..task.settings.clone()
    };
    let task = Task { operation: &read, settings: &settings, route_to: Some(RouteTo::WriteRegion), ..task };
    match Box::pin(run(core, task)).await {
        Ok(response) if holds(&response, witness) => Evidence::Applied(response),
        Ok(response) => without(core, response.diagnostics),
        Err(error) if error.is_not_found() => without(core, error.diagnostics().clone()),
        Err(error) => Evidence::None(error.diagnostics().clone()),
    }
}

fn holds(response: &Response, witness: &Witness) -> bool {
    serde_json::from_slice::<serde_json::Value>(&response.body)
        .is_ok_and(|document| document.pointer(&witness.pointer) == Some(&witness.value))
}

/// The evidence when the witness was not found. It counts as absent only if the
/// region that answered takes writes.
fn without(core: &Core, diagnostics: Diagnostics) -> Evidence {
    let writes = &core.topology().snapshot().account.writes;
    let takes_writes = diagnostics
        .attempts()
        .last()
        .is_some_and(|answered| writes.iter().any(|site| site.region == answered.region));
    if takes_writes { Evidence::Absent(diagnostics) } else { Evidence::None(diagnostics) }
}
