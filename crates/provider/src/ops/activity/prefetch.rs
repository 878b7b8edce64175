//! Locking an activity ahead (T1, T2): a worker that ends one comes back for the
//! next, so that one is locked while the end of the last is written, and the two
//! exchanges take as long as one.
//!
//! What always holds: at most one for each worker that is about to come back, of
//! those that are known here. Like what a commit hands over it is in the hints,
//! not in the worker's hands: another may have it, and if nobody comes its lock
//! runs out. Activities of sessions are left to workers who own them.

use std::time::Duration;

use duroxide::providers::TagFilter;

use crate::ops::activity::fetch::{self, Locked};
use crate::ops::core::Core;
use crate::ops::wait::FetchWait;
use crate::options::config::{CommitTier, Options};
use crate::process::clock::HybridClock;
use crate::process::hints::{Claimant, Hints, Ready};
use crate::process::lock_table::{Offered, Worker};

/// What is remembered of a worker that waits for work, and will again. Whoever
/// fetches by hand may not come back.
pub(super) fn worker(
    options: &Options,
    tags: &TagFilter,
    lease: Duration,
    wait: &FetchWait,
) -> Option<Worker> {
    let is_on = options.tier >= CommitTier::Optimistic && wait.is_long();
    is_on.then(|| Worker { tags: tags.clone(), lease })
}

/// Locks what this worker will come for. What fails is left to whoever comes.
pub(super) async fn run(core: &Core, worker: Option<&Worker>) {
    let Some(worker) = worker else { return };
    let mut returning = Returning::new(&core.hints, &core.clock, worker);
    let Some(offer) = returning.offer.take() else { return };
    match fetch::lock(core, offer.clone(), worker.lease, None).await {
        Ok(Some(Locked { activity, etag, nonce, .. })) => {
            let ready = Ready { activity, etag, nonce, lease: worker.lease };
            core.hints.activities.tell(|hints| hints.ready(ready));
        }
        Ok(None) => {}
        Err(failure) => {
            tracing::debug!(?failure, "an activity was not locked ahead");
            core.hints.activities.tell(|hints| hints.offer(offer));
        }
    }
}

/// A worker that is about to come back.
struct Returning<'a> {
    hints: &'a Hints,
    offer: Option<Offered>,
    is_locking: bool,
}

impl<'a> Returning<'a> {
    fn new(hints: &'a Hints, clock: &HybridClock, worker: &Worker) -> Self {
        let claimant = Claimant { tags: &worker.tags, owner: None };
        let now = clock.stamp();
        let offer = hints.activities.quietly(|hints| hints.returning(now, &claimant));
        Returning { hints, is_locking: offer.is_some(), offer }
    }
}

impl Drop for Returning<'_> {
    fn drop(&mut self) {
        self.hints.activities.quietly(|hints| hints.returned(self.is_locking));
    }
}
