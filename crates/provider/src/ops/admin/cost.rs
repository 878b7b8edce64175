//! What a workflow has cost: the total and the turns of the state, and the turns that moved to
//! the chunks of its history.

use perihelion_client::Query;
use serde::Deserialize;

use crate::documents::{Charge, State, TurnCharge, stored_turns};
use crate::failure::Failure;
use crate::ops::read;
use crate::options::inspection::{TurnCost, WorkflowCost};
use crate::store::Store;

/// After this many chunks no further page is read. A chunk has the turns of at least 8 KiB of
/// events.
const CHUNKS_MAX: usize = 1000;

/// The chunks with turns, of all executions.
const CHUNKS: &str = "SELECT c.turns FROM c WHERE c.hx > 0 AND IS_DEFINED(c.turns)";

/// The member of a chunk that is read.
#[derive(Debug, Deserialize)]
struct ChunkTurns {
    #[serde(with = "stored_turns")]
    turns: Vec<TurnCharge>,
}

/// The cost of an instance. Fails for an instance that has not run yet: no cost of it is stored.
pub(crate) async fn run(store: &Store, instance: &str) -> Result<WorkflowCost, Failure> {
    let State { cost, execution, .. } = read::created_state(store, instance).await?;
    let mut turns = Vec::new();
    if execution.number > 1 || !execution.chunks.is_empty() {
        let mut feed = store.container.query::<ChunkTurns>(Query::new(CHUNKS).in_partition(instance));
        let mut chunks = 0;
        while chunks < CHUNKS_MAX
            && let Some(page) = feed.next_page().await?
        {
            chunks += page.items.len();
            turns.extend(page.items.into_iter().flat_map(|chunk| chunk.turns));
        }
    }
    turns.extend(cost.turns);
    // Turns are twice there if a commit moves them between the two reads, or if a chunk was staged
    // for a commit that has failed.
    turns.sort_unstable_by_key(|turn| turn.commit_number);
    turns.dedup_by_key(|turn| turn.commit_number);
    Ok(WorkflowCost {
        request_units: request_units(cost.total),
        requests: cost.total.requests,
        turns: turns.into_iter().map(turn_cost).collect(),
    })
}

fn request_units(charge: Charge) -> f64 {
    charge.centi_ru as f64 / 100.0
}

fn turn_cost(turn: TurnCharge) -> TurnCost {
    TurnCost {
        turn: turn.commit_number,
        committed_at_ms: Some(turn.committed_at_ms).filter(|at| *at > 0),
        request_units: request_units(turn.charge),
        requests: turn.charge.requests,
    }
}
