//! Activities that go from a commit straight to a worker (T1, T2): a worker of
//! this process waits for one like it, so the commit makes it already locked,
//! and fetching it is no exchange at all.
//!
//! What always holds: what was locked here and is not fetched is not lost. It
//! stays in the hints for the next worker, and when its lock runs out anybody may
//! have it. The lease is stamped anew at each attempt of the commit. Activities
//! of sessions are left to workers who own them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use perihelion_client::Etag;
use tokio::time::Instant;

use crate::documents::Activity;
use crate::documents::lock_token::nonce;
use crate::documents::stamp::{Stamp, ends_ms};
use crate::ops::core::Core;
use crate::options::config::CommitTier;
use crate::plan::TurnPlan;
use crate::process::clock::HybridClock;
use crate::process::hints::{Hints, Ready};
use crate::store::{RETRY_FOR, Store, retry_until};

/// What was promised to workers, for the activities of one plan, in order.
pub(crate) struct DirectDispatch<'a> {
    store: &'a Store,
    clock: &'a HybridClock,
    hints: &'a Hints,
    promises: Vec<Option<Promise>>,
    /// When the leases of the last attempt began.
    since_ms: AtomicU64,
}

#[derive(Debug, Clone)]
struct Promise {
    worker: u64,
    lease: Duration,
    nonce: String,
}

impl<'a> DirectDispatch<'a> {
    /// Finds workers for a plan's activities and locks those for them.
    pub(crate) fn promise(core: &'a Core, plan: &mut TurnPlan) -> Self {
        let is_on = core.options.tier >= CommitTier::Optimistic && !plan.activities.is_empty();
        let promises = match is_on {
            true => core.hints.activities.quietly(|hints| {
                let promised = |activity: &mut Activity| {
                    let (worker, lease) = hints.promise(activity)?;
                    let nonce = nonce();
                    (activity.lock, activity.attempt_count) = (Some(nonce.clone()), 1);
                    Some(Promise { worker, lease, nonce })
                };
                plan.activities.iter_mut().map(promised).collect()
            }),
            false => Vec::new(),
        };
        DirectDispatch::new(core, promises)
    }

    /// For commits without activities.
    pub(crate) fn nothing(core: &'a Core) -> Self {
        DirectDispatch::new(core, Vec::new())
    }

    fn new(core: &'a Core, promises: Vec<Option<Promise>>) -> Self {
        let Core { store, clock, hints, .. } = core;
        DirectDispatch { store, clock, hints, promises, since_ms: AtomicU64::new(0) }
    }

    /// The activities as an attempt that begins now writes them.
    pub(crate) fn stamped(&self, activities: &[Activity]) -> Vec<Activity> {
        let now_ms = self.clock.now_ms();
        self.since_ms.store(now_ms, Ordering::Relaxed);
        let mut activities = activities.to_vec();
        for (activity, promise) in activities.iter_mut().zip(&self.promises) {
            if let Some(promise) = promise {
                activity.visible_at = Stamp::at_ms(ends_ms(now_ms, promise.lease));
            }
        }
        activities
    }

    /// The commit was applied: hands over what was promised, and offers the rest.
    pub(crate) async fn conclude(mut self, activities: Vec<Activity>, versions: Vec<Option<Etag>>) {
        let promises = std::mem::take(&mut self.promises);
        let since_ms = self.since_ms.load(Ordering::Relaxed);
        let mut versions = versions.into_iter();
        let mut promises = promises.into_iter();
        for mut activity in activities {
            let etag = versions.next().flatten();
            match (promises.next().flatten(), etag) {
                (Some(promise), Some(etag)) => {
                    activity.visible_at = Stamp::at_ms(ends_ms(since_ms, promise.lease));
                    self.hand(activity, etag, &promise);
                }
                (Some(promise), None) => self.find(activity, &promise).await,
                (None, Some(etag)) => {
                    self.hints.activities.quietly(|hints| hints.offer((activity, etag)));
                }
                // A poll finds it.
                (None, None) => {}
            }
        }
        self.hints.activities.wake.notify_waiters();
    }

    fn hand(&self, activity: Activity, etag: Etag, promise: &Promise) {
        let ready = Ready { activity, etag, nonce: promise.nonce.clone(), lease: promise.lease };
        self.hints.activities.quietly(|hints| {
            hints.kept(promise.worker);
            hints.ready(ready);
        });
    }

    /// The answer was lost, and with it the version.
    async fn find(&self, activity: Activity, promise: &Promise) {
        let find = || self.store.find::<Activity>(&activity.instance_id, &activity.id);
        match retry_until(Instant::now() + RETRY_FOR, find).await {
            Ok(Some(found)) if found.value.lock.as_deref() == Some(promise.nonce.as_str()) => {
                self.hand(found.value, found.etag, promise);
            }
            Ok(_) => {}
            Err(failure) => {
                tracing::warn!(
                    instance = activity.instance_id,
                    id = activity.id,
                    ?failure,
                    "an activity waits for its lock to run out"
                );
            }
        }
    }
}

impl Drop for DirectDispatch<'_> {
    fn drop(&mut self) {
        if self.promises.is_empty() {
            return;
        }
        self.hints.activities.quietly(|hints| {
            self.promises.iter().flatten().for_each(|promise| hints.kept(promise.worker));
        });
    }
}
