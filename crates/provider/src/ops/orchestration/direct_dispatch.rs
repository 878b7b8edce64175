//! Direct dispatch (commit tiers `Optimistic` and `Cached`): when a turn schedules an
//! activity and a worker of this process waits for activities with the same tag, the commit
//! creates the activity already locked. Before the commit the activity is *promised* to the
//! waiting worker, and the worker gets no other promise until this promise ends. After the commit
//! a worker of this process, usually the waiting worker, fetches the activity without a request.
//!
//! Invariants: a dispatched activity that is not fetched is not lost. It stays in the
//! hints for the next worker. If no worker fetches it in time, it is given back. The lease
//! (the duration of the lock) begins again with each attempt of the commit. Activities of
//! sessions, activities whose input is stored in parts, and activities in bundles are not
//! dispatched.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use perihelion_client::Etag;
use tokio::time::Instant;

use crate::documents::Activity;
use crate::documents::lock_nonce::lock_nonce;
use crate::documents::stamp::{Stamp, deadline_ms};
use crate::ops::activity::unfetched;
use crate::ops::core::Core;
use crate::options::config::CommitTier;
use crate::plan::TurnPlan;
use crate::process::hints::{ActivityRead, ReadyActivity};
use crate::store::{RETRY_FOR, retry_until};

/// How long an ack waits until the promised activities are read after the answer of its commit was
/// lost. They are read in the background after that.
const READ_WAIT: Duration = Duration::from_secs(1);

/// The direct dispatch of the activities of one plan.
pub(crate) struct DirectDispatch<'a> {
    core: &'a Core,
    /// One entry per activity, in order; `None` for an activity that is not dispatched. Empty
    /// if dispatch is off or the activities were handed over.
    promises: Vec<Option<Promise>>,
    /// When the leases in the last attempt of the commit began, in milliseconds since 1970.
    leases_begin_ms: AtomicU64,
    /// The answer of the commit counts as a read of the activities. The read begins before the commit:
    /// a poll may find the new activities, and workers may lock them, before the answer arrives.
    read: ActivityRead<'a>,
}

/// The waiting worker to which an activity is promised, and the lock of the activity.
#[derive(Debug, Clone)]
struct Promise {
    /// The number of the worker in the hints.
    worker: u64,
    /// How long the lock lasts.
    lease: Duration,
    nonce: String,
}

impl<'a> DirectDispatch<'a> {
    /// Promises activities of a plan to waiting workers, one to each, and locks these
    /// activities in the plan.
    pub(crate) fn promise(core: &'a Core, plan: &mut TurnPlan) -> Self {
        let is_on = core.options.commit_tier >= CommitTier::Optimistic && !plan.activities.is_empty();
        let promises = match is_on {
            true => core.hints.activities.with(|hints| {
                let promise = |activity: &mut Activity| {
                    let (worker, lease) = hints.promise(activity)?;
                    let nonce = lock_nonce(core.membership.process_id(), core.clock.now_ms());
                    (activity.lock_nonce, activity.attempt_count) = (Some(nonce.clone()), 1);
                    Some(Promise { worker, lease, nonce })
                };
                plan.activities.iter_mut().map(promise).collect()
            }),
            false => Vec::new(),
        };
        DirectDispatch::new(core, promises)
    }

    /// A dispatch that promises nothing.
    pub(crate) fn disabled(core: &'a Core) -> Self {
        DirectDispatch::new(core, Vec::new())
    }

    fn new(core: &'a Core, promises: Vec<Option<Promise>>) -> Self {
        let read = core.hints.activities.begin_read();
        DirectDispatch { core, promises, leases_begin_ms: AtomicU64::new(0), read }
    }

    /// The activities in the form that the next attempt of the commit writes: the leases of
    /// promised activities begin now.
    pub(crate) fn with_lease_ends(&self, activities: &[Activity]) -> Vec<Activity> {
        let now_ms = self.core.clock.now_ms();
        self.leases_begin_ms.store(now_ms, Ordering::Relaxed);
        let mut activities = activities.to_vec();
        for (activity, promise) in activities.iter_mut().zip(&self.promises) {
            if let Some(promise) = promise {
                activity.visible_at = Stamp::at_ms(deadline_ms(now_ms, promise.lease));
            }
        }
        activities
    }

    /// Hands the activities of a commit to the workers of this process. A worker gets a promised
    /// activity without a request, because it is locked already. The other activities are offered
    /// to the workers, which have to lock them.
    pub(crate) async fn hand_over(mut self, activities: Vec<Activity>, etags: Vec<Option<Etag>>) {
        let leases_begin_ms = self.leases_begin_ms.load(Ordering::Relaxed);
        let mut etags = etags.into_iter();
        let (hints, mut unread) = (&self.core.hints.activities, Vec::new());
        // Reversed, so that `pop` takes the promise of each activity in turn. If this future is dropped,
        // the promises that are still in `self` end with it.
        self.promises.reverse();
        for mut activity in activities {
            let etag = etags.next().flatten();
            let promise = self.promises.last().cloned().flatten();
            match (promise, etag) {
                (Some(promise), Some(etag)) => {
                    activity.visible_at = Stamp::at_ms(deadline_ms(leases_begin_ms, promise.lease));
                    make_ready(self.core, activity, etag, &promise);
                }
                (Some(promise), None) => unread.push((activity, promise)),
                (None, Some(etag)) => {
                    hints.with(|hints| hints.offer_read(self.read.number(), (activity, etag)));
                }
                // The activity cannot be locked without its etag. A poll finds the activity.
                (None, None) => self.core.poller.poll_soon(),
            }
            self.promises.pop();
        }
        hints.wake.notify_waiters();
        if let Some(core) = self.core.this.upgrade().filter(|_| !unread.is_empty()) {
            self.core.background.run_after(READ_WAIT, Box::pin(read_and_make_ready(core, unread))).await;
        }
    }
}

/// Puts a locked activity into the hints, and ends the promise.
fn make_ready(core: &Core, activity: Activity, etag: Etag, promise: &Promise) {
    let (nonce, lease) = (promise.nonce.clone(), promise.lease);
    let ready = ReadyActivity { activity, etag, nonce, lease, item: None, session: None };
    unfetched::hand_over(core, ready);
    core.hints.activities.with(|hints| hints.end_promise(promise.worker));
}

/// Reads activities whose etags are unknown because the answer of the commit was lost. An activity
/// that still has the promised lock is made ready.
async fn read_and_make_ready(core: Arc<Core>, unread: Vec<(Activity, Promise)>) {
    for (activity, promise) in unread {
        let find = || core.store.find::<Activity>(&activity.instance_id, &activity.id);
        match retry_until(Instant::now() + RETRY_FOR, find).await {
            Ok(Some(found)) if found.value.lock_nonce.as_deref() == Some(promise.nonce.as_str()) => {
                make_ready(&core, found.value, found.etag, &promise);
            }
            // The activity was completed, cancelled or taken over in the meantime.
            Ok(_) => core.hints.activities.with(|hints| hints.end_promise(promise.worker)),
            Err(failure) => {
                core.hints.activities.with(|hints| hints.end_promise(promise.worker));
                tracing::warn!(
                    instance = activity.instance_id,
                    id = activity.id,
                    ?failure,
                    "the answer of a commit was lost, and an activity that it created was not read; the \
                     activity waits until its lock expires"
                );
            }
        }
    }
}

/// If the commit failed, ends the promises, so that the workers can be promised other
/// activities.
impl Drop for DirectDispatch<'_> {
    fn drop(&mut self) {
        if self.promises.is_empty() {
            return;
        }
        self.core.hints.activities.with(|hints| {
            self.promises.iter().flatten().for_each(|promise| hints.end_promise(promise.worker));
        });
    }
}

#[cfg(test)]
mod tests;
