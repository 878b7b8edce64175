//! The replicator of one link: while the link is not cut, it applies the writes of one
//! region in another region, each write after its delay.

use std::sync::Arc;
use std::time::Duration;

use perihelion_engine::{Applied, Refusal, RegionId};
use tokio::time::Instant;

use super::Regions;
use super::delay_queue::DelayQueue;

/// The pause after a failure. Failures come from a disk that is full, from a store that has failed
/// permanently, or from a server that stops.
const FAILURE_PAUSE: Duration = Duration::from_secs(1);

/// Replicates from one region to another until it is aborted.
pub(super) async fn replicate(regions: Arc<Regions>, from: usize, to: usize) {
    let link = &regions.links[from][to];
    let mut topology = regions.topology.subscribe();
    let (Some(mut outbox_end), Some(mut applied_commits)) =
        (regions.engines[from].watch_outbox_end(), regions.engines[to].watch_applied_commits())
    else {
        return; // An account of one region has no outbox.
    };
    let mut queue = DelayQueue::default();
    loop {
        // The changes are marked as seen before the task acts on them, so that a later
        // change wakes the task.
        let last_entry = *outbox_end.borrow_and_update();
        let delay = topology.borrow_and_update().delay(from, to);
        applied_commits.mark_unchanged();
        queue.push(last_entry, Instant::now());
        let applied = *link.last_applied.borrow();
        let due = delay.map_or(applied, |delay| queue.last_due(Instant::now(), delay));
        // Whether the next entry has to wait until `to` has applied writes of a third region.
        let mut is_blocked = false;
        if due > applied {
            match apply(&regions, from, to, applied, due).await {
                Ok(outcome) => {
                    link.last_applied.send_replace(outcome.up_to);
                    is_blocked = outcome.is_blocked;
                    // More entries may be due than one page has.
                    if outcome.new_entries > 0 {
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
        let is_behind = *link.last_applied.borrow() < last_entry;
        link.set_waiting_since(if is_behind {
            queue.oldest_seen_at().or(link.waiting_since())
        } else {
            None
        });
        let next_due_at = delay.zip(queue.oldest_seen_at()).map(|(delay, oldest)| oldest + delay);
        // Every branch leads to the next round. The senders live as long as `regions`.
        tokio::select! {
            _ = outbox_end.changed() => {}
            _ = topology.changed() => {}
            _ = applied_commits.changed(), if is_blocked => {}
            () = sleep_until(next_due_at) => {}
        }
    }
}

/// Applies one page of the outbox of region `from`: entries after `after`, up to
/// `due`. The catalog does not change meanwhile, and region `to` has a copy of the newest catalog.
async fn apply(regions: &Regions, from: usize, to: usize, after: u64, due: u64) -> Result<Applied, Refusal> {
    let _guard = regions.catalog_lock.read().await;
    regions.copy_catalog_to(to).await?;
    let entries = regions.engines[from].outbox(after, due)?;
    regions.engines[to].apply(RegionId(from as u8), entries).await
}

/// Sleeps until a time; `None` sleeps forever.
async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}
