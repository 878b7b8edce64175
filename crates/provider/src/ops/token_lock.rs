//! Finds the lock that a lock token names: in the lock table of this process, or in the
//! document that has the lock. Used for instances and for activities.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::documents::lock_token::{LockKind, LockToken};
use crate::failure::Failure;
use crate::process::lock_table::LockTable;
use crate::store::{RETRY_FOR, retry_until};

/// Decodes a token and finds its lock. If the table does not have the lock, `read_lock` reads
/// it from the document; transient failures are retried for [`RETRY_FOR`]. Fails with
/// [`Failure::LockLost`] if `encoded_token` is not a token of this kind, or if this process knows that
/// the lock has ended.
pub(crate) async fn find<T, F>(
    table: &LockTable<T>,
    kind: LockKind,
    encoded_token: &str,
    read_lock: impl Fn(LockToken) -> F,
) -> Result<(LockToken, Arc<Mutex<T>>), Failure>
where
    F: Future<Output = Result<T, Failure>>,
{
    let token = LockToken::decode(encoded_token, kind).ok_or(Failure::LockLost)?;
    if let Some(held) = table.get(&token.nonce) {
        return Ok((token, held));
    }
    if table.has_ended(&token.nonce) {
        return Err(Failure::LockLost);
    }
    // A lock that is not in the table is rare, so its future is boxed.
    let lock = Box::pin(retry_until(Instant::now() + RETRY_FOR, || read_lock(token.clone()))).await?;
    let held = table.insert(&token.nonce, lock);
    Ok((token, held))
}

/// Fails with [`Failure::LockLost`] if a lock that ends at `until` has expired, even if no
/// other process has taken its instance or activity.
pub(crate) fn check_not_expired(until: Instant) -> Result<(), Failure> {
    if until <= Instant::now() { Err(Failure::LockLost) } else { Ok(()) }
}

/// The least lease that is assumed for a lock that was read from a document. The document stores
/// only the end of the lock, so the time that is left is taken as its lease.
pub(crate) const LEASE_MIN: Duration = Duration::from_secs(1);

/// The time at which an ack renews its lock: a third of the lease before `until`, when the lock ends.
pub(crate) fn renewal_due(until: Instant, lease: Duration) -> Instant {
    until.checked_sub(lease / 3).unwrap_or(until)
}

/// Runs `work` and, from `due` on, `renew`, which renews the lock. Both make progress at the same
/// time, because the work may hold what the renewal waits for. The renewal fails with
/// [`Failure::LockLost`] at `until`, when the lock ends.
///
/// If the renewal ends first, the function returns its outcome, and the caller goes on with `work`. If
/// the work ends first, the function returns its outcome; a renewal that has begun is awaited, and one
/// that has not begun is dropped. The outcome that is not known is `None`.
pub(crate) async fn renew_beside<T, R>(
    mut work: Pin<&mut impl Future<Output = T>>,
    due: Instant,
    until: Instant,
    renew: impl Future<Output = Result<R, Failure>>,
) -> Result<(Option<T>, Option<R>), Failure> {
    let is_renewing = AtomicBool::new(false);
    let renewal = async {
        tokio::time::sleep_until(due).await;
        is_renewing.store(true, Ordering::Relaxed);
        tokio::time::timeout_at(until, renew).await.unwrap_or(Err(Failure::LockLost))
    };
    tokio::pin!(renewal);
    tokio::select! {
        done = &mut work => match is_renewing.load(Ordering::Relaxed) {
            true => Ok((Some(done), Some(renewal.await?))),
            false => Ok((Some(done), None)),
        },
        renewed = &mut renewal => Ok((None, Some(renewed?))),
    }
}
