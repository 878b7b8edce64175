//! The lock on an activity that a worker holds: finds the lock by its token, and reads it
//! again after the document has changed.

use std::sync::Arc;

use tokio::sync::Mutex;

use crate::documents::lock_token::{LockKind, LockToken};
use crate::documents::{Activity, DocumentType, Versioned};
use crate::failure::Failure;
use crate::ops::core::Core;
use crate::ops::token_lock;
use crate::process::clock::HybridClock;
use crate::process::lock_table::{self, LockedActivity};
use crate::store::{Store, retry_until};

/// Finds the lock of a token.
pub(crate) async fn find(
    core: &Core,
    token: &str,
) -> Result<(LockToken, Arc<Mutex<LockedActivity>>), Failure> {
    let read = |token: LockToken| async move { read_lock(&core.store, &core.clock, &token).await };
    token_lock::find(&core.activity_locks, LockKind::Activity, token, read).await
}

/// Reads the document again, but keeps the end of the lock that this process knows. If the
/// document no longer has this lock or cannot be read, fails, and the lock table and the hints
/// forget the activity.
pub(crate) async fn refresh(
    core: &Core,
    token: &LockToken,
    held: &mut LockedActivity,
) -> Result<(), Failure> {
    match retry_until(held.until, || read_lock(&core.store, &core.clock, token)).await {
        Ok(found) => held.activity = found.activity,
        Err(failure) => {
            core.activity_locks.remove(&token.nonce);
            core.hints.activities.with(|hints| hints.forget(&token.instance, &token.id));
            return Err(failure);
        }
    }
    Ok(())
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
    Ok(LockedActivity { activity: Versioned { value, etag }, until, worker: None })
}
