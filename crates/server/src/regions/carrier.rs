//! Carries the writes of one region to another, each after its delay, for as
//! long as nobody cuts the way.

use std::sync::Arc;
use std::time::Duration;

use perihelion_engine::{Applied, Refusal, RegionId};
use tokio::time::Instant;

use super::Regions;
use super::marks::Marks;

/// The pause after a failure: of the store, which then fails for good, or
/// because the server stops.
const FAILURE_PAUSE: Duration = Duration::from_secs(1);

/// Runs until it is aborted.
pub(super) async fn carry(regions: Arc<Regions>, from: usize, to: usize) {
    let link = &regions.links[from][to];
    let mut topology = regions.topology.subscribe();
    let (Some(mut written), Some(mut arrivals)) =
        (regions.engines[from].written(), regions.engines[to].arrivals())
    else {
        return; // An engine that is alone has nowhere to send.
    };
    let mut marks = Marks::default();
    loop {
        // Marked as seen before we act, so that what comes meanwhile wakes us.
        let last = *written.borrow_and_update();
        let way = topology.borrow_and_update().way(from, to);
        arrivals.mark_unchanged();
        marks.note(last, Instant::now());
        let applied = *link.applied.borrow();
        let due = way.map_or(applied, |delay| marks.due(Instant::now(), delay));
        let mut is_blocked = false;
        if due > applied {
            match apply(&regions, from, to, applied, due).await {
                Ok(outcome) => {
                    link.applied.send_replace(outcome.to);
                    is_blocked = outcome.is_blocked;
                    if outcome.entries > 0 {
                        continue;
                    }
                }
                Err(refusal) => {
                    tracing::warn!(from, to, message = %refusal.message, "replication failed and will be tried again");
                    tokio::time::sleep(FAILURE_PAUSE).await;
                    continue;
                }
            }
        }
        let is_behind = *link.applied.borrow() < last;
        link.set_waiting_since(if is_behind { marks.oldest().or(link.waiting_since()) } else { None });
        let next = way.zip(marks.oldest()).map(|(delay, oldest)| oldest + delay);
        // Either outcome means: look again. The senders live as long as we do.
        tokio::select! {
            _ = written.changed() => {}
            _ = topology.changed() => {}
            _ = arrivals.changed(), if is_blocked => {}
            () = sleep_until(next) => {}
        }
    }
}

/// Applies one page. No catalog changes meanwhile.
async fn apply(regions: &Regions, from: usize, to: usize, after: u64, due: u64) -> Result<Applied, Refusal> {
    let _held = regions.catalog.read().await;
    let entries = regions.engines[from].outbox(after, due)?;
    regions.engines[to].apply(RegionId(from as u8), entries).await
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}
