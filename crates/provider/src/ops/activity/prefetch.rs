//! Prefetch (commit tiers `Optimistic` and `Cached`): while the ack of an activity is
//! written, the next activity is locked for the same worker. The two requests run at the
//! same time.
//!
//! Invariants: at most one activity is prefetched for each worker that will fetch
//! again. A prefetched activity is kept in the hints. Any worker of this process that takes
//! its tag may take the activity. If no worker does, the activity is given back (`unfetched`).
//! Activities of sessions, and activities whose input is stored in parts, are not prefetched.

use std::time::Duration;

use duroxide::providers::TagFilter;

use crate::ops::activity::fetch::{self, LockOutcome, LockRequest};
use crate::ops::activity::{sick_partitions, unfetched};
use crate::ops::core::Core;
use crate::ops::wait::FetchWait;
use crate::options::config::{CommitTier, Options};
use crate::process::clock::HybridClock;
use crate::process::hints::{Claimant, Hints, OfferedActivity};
use crate::process::lock_table::Worker;

/// How long the ack of one activity waits for the lock of the next.
pub(super) const LOCK_TIMEOUT: Duration = Duration::from_secs(2);

/// What the next fetch of a worker will ask for. `None` if nothing is prefetched for the
/// worker: in the commit tier `Durable`, and after a fetch that looks once, because its caller
/// may not fetch again.
pub(super) fn describe_worker(
    options: &Options,
    tags: &TagFilter,
    lease: Duration,
    wait: &FetchWait,
) -> Option<Worker> {
    let is_on = options.commit_tier >= CommitTier::Optimistic && wait.is_long();
    is_on.then(|| Worker { tags: tags.clone(), lease })
}

/// Locks the next activity for this worker; does nothing for `None`. After a failure a poll
/// offers the activity again. The ack waits for the prefetch, so the prefetch has a short time
/// limit. A lock that is written after that is kept for the next worker.
pub(super) async fn run(core: &Core, worker: Option<&Worker>) {
    let Some(worker) = worker else { return };
    let mut returning = ReturningWorker::new(&core.hints, &core.clock, worker);
    let Some(offer) = returning.offer.take() else { return };
    if !sick_partitions::may_prefetch(core, &offer.0) {
        core.hints.activities.with(|hints| hints.offer(offer));
        return;
    }
    let Some(attempt) = sick_partitions::begin(core, &offer.0, LOCK_TIMEOUT) else { return };
    let activity = offer.0.clone();
    let request = LockRequest { offer, lease: worker.lease, session_config: None };
    match fetch::lock_in_time(core, request, &attempt, LOCK_TIMEOUT).await {
        Ok(LockOutcome::Locked(locked)) => {
            unfetched::hand_over(core, *locked);
        }
        Ok(LockOutcome::Refused | LockOutcome::NotTried) => {}
        // The time limit is short and says little about the partition.
        Ok(LockOutcome::Late) => attempt.record_delay(core),
        Err(failure) => {
            tracing::debug!(?failure, "an activity was not prefetched; a poll finds it again");
            attempt.record_failure(core, &activity, &failure);
        }
    }
}

/// A worker that will fetch again. The worker is registered in the hints until this value is
/// dropped, at the end of the prefetch.
struct ReturningWorker<'a> {
    hints: &'a Hints,
    /// The activity to lock for the worker.
    offer: Option<OfferedActivity>,
    /// Whether the hints gave an activity to lock for the worker.
    is_locking: bool,
}

impl<'a> ReturningWorker<'a> {
    fn new(hints: &'a Hints, clock: &HybridClock, worker: &Worker) -> Self {
        let claimant = Claimant { tags: &worker.tags, owner: None };
        let now = clock.now();
        let offer = hints.activities.with(|hints| hints.worker_will_return(now, &claimant));
        ReturningWorker { hints, is_locking: offer.is_some(), offer }
    }
}

impl Drop for ReturningWorker<'_> {
    fn drop(&mut self) {
        self.hints.activities.with(|hints| hints.worker_returned(self.is_locking));
    }
}
