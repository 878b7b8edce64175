//! Prefetch (commit tiers `Optimistic` and `Cached`): while the ack of an activity is
//! written, the next activity is locked for the same worker. The two requests run at the
//! same time.
//!
//! Invariants: at most one activity is prefetched for each worker that will fetch
//! again. A prefetched activity is kept in the hints. Any worker of this process that takes
//! its tag may take the activity. If no worker does, the lock expires. Activities of sessions,
//! and activities whose input is stored in parts, are not prefetched.

use std::time::Duration;

use duroxide::providers::TagFilter;
use futures_util::future::join_all;
use tokio::time::Instant;

use crate::ops::activity::fetch::{self, LockRequest, LockedWorkItem};
use crate::ops::activity::write_lock;
use crate::ops::core::Core;
use crate::ops::wait::FetchWait;
use crate::options::config::{CommitTier, Options};
use crate::process::clock::HybridClock;
use crate::process::hints::{Claimant, Hints, OfferedActivity, ReadyActivity, activity_name};
use crate::process::lock_table::Worker;
use crate::store::without_content;

/// How long the ack of one activity waits for the lock of the next.
const LOCK_TIMEOUT: Duration = Duration::from_secs(2);

/// The longest time that closing a provider takes to give locked activities back.
const GIVE_BACK_TIMEOUT: Duration = Duration::from_secs(5);

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
    let name = activity_name(&offer.0.instance_id, &offer.0.id);
    let begun = Instant::now();
    let request = LockRequest { offer, lease: worker.lease, session_config: None };
    match fetch::lock_in_time(core, request, LOCK_TIMEOUT).await {
        Ok(Some(LockedWorkItem { activity, etag, nonce, .. })) => {
            let ready = ReadyActivity { activity, etag, nonce, lease: worker.lease };
            core.hints.activities.update_and_wake(|hints| hints.add_ready(ready));
        }
        Ok(None) => {}
        Err(failure) => {
            tracing::debug!(?failure, "an activity was not prefetched; a poll finds it again");
            core.hints.paused_activities.record_failure(&name, begun.elapsed(), core.clock.now());
        }
    }
}

/// Gives back the activities that were locked for workers of this process and that no worker
/// has taken, so that other processes need not wait for the end of these locks. An activity that
/// cannot be given back is free when its lock expires.
pub(crate) async fn give_back(core: &Core) {
    let ready = core.hints.activities.with(|hints| hints.take_all_ready());
    let mut writes = Vec::with_capacity(ready.len());
    for ReadyActivity { mut activity, etag, .. } in ready {
        (activity.lock_nonce, activity.visible_at) = (None, activity.enqueued_at.visible_at_once());
        activity.attempt_count = activity.attempt_count.saturating_sub(1);
        writes.push(async move {
            let written = write_lock(&core.store, &activity, &etag, without_content());
            if let Err(failure) = written.await {
                tracing::debug!(
                    instance = activity.instance_id,
                    ?failure,
                    "a locked activity was not given back"
                );
            }
        });
    }
    if tokio::time::timeout(GIVE_BACK_TIMEOUT, join_all(writes)).await.is_err() {
        tracing::debug!("some locked activities were not given back in time");
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
