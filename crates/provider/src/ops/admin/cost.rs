//! The cost of a workflow. The state document has the total and the charges of the last turns; the
//! charges of earlier turns are in the chunks of the history.

use perihelion_client::Query;
use serde::Deserialize;

use crate::documents::{Charge, State, TurnCharge, stored_turns};
use crate::failure::Failure;
use crate::ops::read;
use crate::options::inspection::{TurnCost, WorkflowCost};
use crate::store::Store;

/// The most pages of chunks. Each is one request.
const PAGES_MAX: usize = 10;

/// The chunks of a page: with [`PAGES_MAX`] pages, 1,000 chunks. A chunk has the turns of at least
/// 8 KiB of events, or of one execution.
const PAGE_ROWS: u32 = 100;

/// The chunks with turns, of all executions. The newest executions come first: if there are too many
/// chunks, the turns of the oldest executions are left out.
const CHUNKS: &str = "SELECT c.turns FROM c WHERE c.hx > 0 AND IS_DEFINED(c.turns) ORDER BY c.hx DESC";

/// The member of a chunk that is read.
#[derive(Debug, Deserialize)]
struct ChunkTurns {
    #[serde(with = "stored_turns")]
    turns: Vec<TurnCharge>,
}

/// The cost of an instance. Fails for an instance that has not run yet: no cost of it is stored.
pub(crate) async fn run(store: &Store, instance: &str) -> Result<WorkflowCost, Failure> {
    let State { cost, execution, .. } = read::created_state(store, instance).await?;
    let (mut turns, is_complete) = match execution.number > 1 || !execution.chunks.is_empty() {
        true => turns_in_chunks(store, instance).await?,
        false => (Vec::new(), true),
    };
    turns.extend(cost.turns);
    // A turn occurs twice if a commit moved it between the two reads, or if a chunk was staged for a
    // commit that has failed.
    turns.sort_unstable_by_key(|turn| turn.commit_number);
    turns.dedup_by_key(|turn| turn.commit_number);
    Ok(WorkflowCost {
        request_units: request_units(cost.total),
        requests: cost.total.requests,
        turns: turns.into_iter().map(turn_cost).collect(),
        is_complete,
    })
}

/// The turns in the chunks of an instance, and whether all chunks were read.
async fn turns_in_chunks(store: &Store, instance: &str) -> Result<(Vec<TurnCharge>, bool), Failure> {
    let query = Query::new(CHUNKS).in_partition(instance).with_max_items(PAGE_ROWS);
    let mut feed = store.container.query::<ChunkTurns>(query);
    let mut turns = Vec::new();
    for _ in 0..PAGES_MAX {
        let Some(page) = feed.next_page().await? else { return Ok((turns, true)) };
        let is_last = page.continuation()?.is_none();
        turns.extend(page.items.into_iter().flat_map(|chunk| chunk.turns));
        if is_last {
            return Ok((turns, true));
        }
    }
    Ok((turns, false))
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
