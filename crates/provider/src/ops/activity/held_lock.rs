//! The lock on an activity that a worker holds: finds the lock by its token, and reads it
//! again after the document has changed.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::documents::lock_token::{LockKind, LockToken};
use crate::documents::stamp::{Stamp, deadline_ms};
use crate::documents::{Activity, DocumentType, Versioned};
use crate::failure::Failure;
use crate::ops::activity::write_lock;
use crate::ops::core::Core;
use crate::ops::token_lock;
use crate::process::clock::HybridClock;
use crate::process::lock_table::{self, LockedActivity};
use crate::store::{Store, retry_until, unless_stale, without_content};

/// Finds the lock of a token.
pub(crate) async fn find(
    core: &Core,
    token: &str,
) -> Result<(LockToken, Arc<Mutex<LockedActivity>>), Failure> {
    let read = |token: LockToken| async move { read_lock(&core.store, &core.clock, &token).await };
    token_lock::find(&core.activity_locks, LockKind::Activity, token, read).await
}

/// The shortest time limit of an attempt to renew a lock.
const ATTEMPT_TIME_MIN: Duration = Duration::from_millis(500);

/// Reads the document again, but keeps the end of the lock that this process knows. If the
/// document no longer has this lock or cannot be read, fails, and the hints forget the activity.
/// If the document no longer has this lock, the lock table also forgets the lock.
pub(crate) async fn refresh(
    core: &Core,
    token: &LockToken,
    held: &mut LockedActivity,
) -> Result<(), Failure> {
    match retry_until(held.until, || read_lock(&core.store, &core.clock, token)).await {
        Ok(found) => held.activity = found.activity,
        Err(failure) => {
            if matches!(failure, Failure::LockLost) {
                core.activity_locks.remove(&token.nonce);
            }
            core.hints.activities.with(|hints| hints.forget(&token.instance, &token.id));
            return Err(failure);
        }
    }
    Ok(())
}

/// Writes the lock with a later end: `extend_for` from now. Never shortens it. An expired lock
/// is lost. Transient failures are retried until the lock expires. Returns whether the lock was
/// renewed; false if the document has changed.
pub(crate) async fn renew(
    core: &Core,
    held: &mut LockedActivity,
    extend_for: Duration,
) -> Result<bool, Failure> {
    token_lock::check_not_expired(held.until)?;
    let mut next = held.activity.value.clone();
    let until = next.visible_at.ms().max(deadline_ms(core.clock.now_ms(), extend_for));
    next.visible_at = Stamp::at_ms(until);
    let etag = held.activity.etag.clone();
    // Each attempt may take half of the time that is left. With all of it, the driver, which waits
    // longer after each failed request, could wait until the lock has expired. The runtime renews five
    // seconds before the end, so the first attempt has 2.5 seconds: a slow request may take that long.
    let timeout = || (held.until.saturating_duration_since(Instant::now()) / 2).max(ATTEMPT_TIME_MIN);
    let options = || {
        let options = without_content().with_witness(next.id.as_str(), "/visibleAt", next.visible_at.0);
        options.with_timeout(timeout())
    };
    let write = || write_lock(&core.store, &next, &etag, options());
    let Some(etag) = unless_stale(retry_until(held.until, write).await)? else { return Ok(false) };
    core.hints.activities.with(|hints| hints.offer((next.clone(), etag.clone())));
    (held.activity.value, held.activity.etag) = (next, etag);
    held.until = lock_table::deadline(until, core.clock.now_ms());
    Ok(true)
}

/// Runs work that may take longer than the lock lasts, and renews the lock meanwhile. `None`
/// if the document has changed: the work is dropped then.
pub(crate) async fn renew_during<T>(
    core: &Core,
    held: &mut LockedActivity,
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<Option<T>, Failure> {
    tokio::pin!(work);
    loop {
        let (until, lease) = (held.until, held.lease);
        let due = token_lock::renewal_due(until, lease);
        match token_lock::renew_beside(work.as_mut(), due, until, renew(core, held, lease)).await? {
            (_, Some(false)) => return Ok(None),
            (Some(done), _) => return done.map(Some),
            (None, _) => {}
        }
    }
}

/// Reads the lock of a token from the activity document. Fails with [`Failure::LockLost`] if
/// the document does not exist, is not a readable activity, or has another lock.
async fn read_lock(store: &Store, clock: &HybridClock, token: &LockToken) -> Result<LockedActivity, Failure> {
    let found: Option<Versioned<serde_json::Value>> = store.find(&token.instance, &token.id).await?;
    let Versioned { value, etag } = found.ok_or(Failure::LockLost)?;
    if DocumentType::of(&value) != Some(DocumentType::Activity) || value["lock"] != token.nonce.as_str() {
        return Err(Failure::LockLost);
    }
    let value: Activity = serde_json::from_value(value).map_err(|_| Failure::LockLost)?;
    let until = lock_table::deadline(value.visible_at.ms(), clock.now_ms());
    let lease = until.saturating_duration_since(Instant::now()).max(token_lock::LEASE_MIN);
    Ok(LockedActivity { activity: Versioned { value, etag }, until, lease, worker: None })
}
