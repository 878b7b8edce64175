//! Locking an activity ahead (T1, T2): a worker that ends one comes back for the
//! next, so that one is locked while the end of the last is written, and the two
//! exchanges take as long as one.
//!
//! What always holds: at most one for each worker that is about to come back, of
//! those that are known here. Like what a commit hands over it is in the hub,
//! not in the worker's hands: another may have it, and if nobody comes its lock
//! runs out. Activities of sessions are left to workers who own them.

use std::time::Duration;

use duroxide::providers::TagFilter;

use crate::config::CommitTier;
use crate::held::{Offered, Worker};
use crate::hub::{Claimant, Ready};
use crate::inner::Inner;
use crate::ops::fetch_work::{self, Locked};
use crate::ops::patience::Patience;

/// What is remembered of a worker that waits for work, and will again. Whoever
/// fetches by hand may not come back.
pub(super) fn worker(
    inner: &Inner,
    tags: &TagFilter,
    lease: Duration,
    patience: &Patience,
) -> Option<Worker> {
    let is_on = inner.options.tier >= CommitTier::Optimistic && patience.is_long();
    is_on.then(|| Worker { tags: tags.clone(), lease })
}

/// Locks what this worker will come for. What fails is left to whoever comes.
pub(super) async fn run(inner: &Inner, worker: Option<&Worker>) {
    let Some(worker) = worker else { return };
    let mut returning = Returning::new(inner, worker);
    let Some(offer) = returning.offer.take() else { return };
    match fetch_work::lock(inner, offer.clone(), worker.lease, None).await {
        Ok(Some(Locked { activity, etag, nonce, .. })) => {
            let ready = Ready { activity, etag, nonce, lease: worker.lease };
            inner.hub.works.tell(|hints| hints.ready(ready));
        }
        Ok(None) => {}
        Err(failure) => {
            tracing::debug!(?failure, "an activity was not locked ahead");
            inner.hub.works.tell(|hints| hints.offer(offer));
        }
    }
}

/// A worker that is about to come back.
struct Returning<'a> {
    inner: &'a Inner,
    offer: Option<Offered>,
    is_locking: bool,
}

impl<'a> Returning<'a> {
    fn new(inner: &'a Inner, worker: &Worker) -> Self {
        let claimant = Claimant { tags: &worker.tags, owner: None };
        let now = inner.clock.stamp();
        let offer = inner.hub.works.quietly(|hints| hints.returning(now, &claimant));
        Returning { inner, is_locking: offer.is_some(), offer }
    }
}

impl Drop for Returning<'_> {
    fn drop(&mut self) {
        self.inner.hub.works.quietly(|hints| hints.returned(self.is_locking));
    }
}
