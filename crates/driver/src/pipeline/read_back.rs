//! Finds out whether a write was applied when its answer was lost, by reading its
//! [`Witness`]: a value that only this write can have left behind.
//!
//! The witness is read in the write region, even if the operation's options exclude
//! that region; other regions are asked when the write region is unavailable. Where every
//! region takes writes, the regions that the options exclude are not asked: the write was
//! not allowed to go to them, so they may not have the write yet. The read has the operation's
//! consistency, or the account's if the operation reads with eventual consistency. If any
//! region has the witness, the write was applied. A read that does not find the witness
//! counts as proof only in a region that takes writes, and only if its consistency makes it
//! show all writes of that region: other regions and replicas may be behind.

use super::prepare::Call;
use super::run::run;
use super::state::partition_of;
use crate::core::Core;
use crate::diagnostics::Diagnostics;
use crate::operation::{Operation, Target, Verb, Witness};
use crate::options::{ReadConsistency, Settings};
use crate::region::Region;
use crate::response::Response;
use crate::routing::account::Consistency;
use crate::routing::resolve::RouteTo;

/// The evidence that a read of the witness gives.
pub(super) enum Evidence {
    /// The write was applied. This is the answer to the read.
    Applied(Response),
    /// A region that takes writes does not have the witness.
    Absent(Diagnostics),
    /// The read proves nothing: it failed, or it did not find the witness in a region or a
    /// replica that may be behind.
    Inconclusive(Diagnostics),
}

/// Reads the witness of a write.
pub(super) async fn read_back(core: &Core, call: Call<'_>, witness: &Witness) -> Evidence {
    let Some(container) = &call.operation.target.container else {
        return Evidence::Inconclusive(Diagnostics::default());
    };
    let target = Target::item(container, &witness.id);
    let read = Operation::new(Verb::Read, target, call.operation.scope.clone(), bytes::Bytes::new());
    let excluded_regions = match core.topology().snapshot().account.is_multi_write {
        true => call.settings.excluded_regions.clone(),
        false => Vec::new(),
    };
    let settings = Settings {
        excluded_regions,
        session_token: None,
        read_consistency: match call.settings.read_consistency {
            ReadConsistency::Eventual => ReadConsistency::Account,
            stronger => stronger,
        },
        ..call.settings.clone()
    };
    let call = Call { operation: &read, settings: &settings, route_to: Some(RouteTo::WriteRegion), ..call };
    match Box::pin(run(core, call)).await {
        Ok(response) if shows_witness(&response, witness) => Evidence::Applied(response),
        Ok(response) => witness_not_found(core, call, response.diagnostics),
        Err(error) if error.is_document_not_found() => {
            witness_not_found(core, call, error.diagnostics().clone())
        }
        Err(error) => Evidence::Inconclusive(error.diagnostics().clone()),
    }
}

fn shows_witness(response: &Response, witness: &Witness) -> bool {
    serde_json::from_slice::<serde_json::Value>(&response.body)
        .is_ok_and(|document| document.pointer(&witness.pointer) == Some(&witness.value))
}

/// The evidence when the witness was not found by the read `call`. The witness counts as absent
/// only if the region that answered takes writes of the partition, and the answer shows all of
/// them.
fn witness_not_found(core: &Core, call: Call<'_>, diagnostics: Diagnostics) -> Evidence {
    let snapshot = core.topology().snapshot();
    let moved_to = snapshot.moved_to(partition_of(call.operation).as_ref());
    let is_written_in = |region: &Region| match moved_to {
        Some(moved_to) => moved_to == region,
        None => snapshot.account.write_locations.iter().any(|location| location.region == *region),
    };
    let takes_writes = diagnostics.attempts().last().is_some_and(|answered| is_written_in(&answered.region));
    if takes_writes && shows_all_writes(call.settings.read_consistency, snapshot.account.consistency) {
        Evidence::Absent(diagnostics)
    } else {
        Evidence::Inconclusive(diagnostics)
    }
}

/// Whether a read shows all writes of its region that matter here. With session consistency it
/// shows only the writes that the session token covers. That is enough: a missing witness
/// counts only after the service refused the write because of an earlier write, and the session
/// token of the refusal covers that earlier write.
fn shows_all_writes(read_consistency: ReadConsistency, account_consistency: Consistency) -> bool {
    match read_consistency {
        ReadConsistency::Session | ReadConsistency::LatestCommitted | ReadConsistency::GlobalStrong => true,
        ReadConsistency::Account | ReadConsistency::Eventual => match account_consistency {
            Consistency::Strong | Consistency::BoundedStaleness | Consistency::Session => true,
            Consistency::ConsistentPrefix | Consistency::Eventual => false,
        },
    }
}
