//! Finds the lock that a lock token names: in the lock table of this process, or in the
//! document that has the lock. Used for instances and for activities.

use std::future::Future;
use std::sync::Arc;

use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::documents::lock_token::{LockKind, LockToken};
use crate::failure::Failure;
use crate::process::lock_table::LockTable;
use crate::store::{RETRY_FOR, retry_until};

/// Decodes a token and finds its lock. If the table does not have the lock, `read_lock` reads
/// it from the document; transient failures are retried for [`RETRY_FOR`]. Fails with
/// [`Failure::LockLost`] if `encoded_token` is not a token of this kind.
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
    let lock = retry_until(Instant::now() + RETRY_FOR, || read_lock(token.clone())).await?;
    let held = table.insert(&token.nonce, lock);
    Ok((token, held))
}

/// Fails with [`Failure::LockLost`] if a lock that ends at `until` has expired, even if no
/// other process has taken its instance or activity.
pub(crate) fn check_not_expired(until: Instant) -> Result<(), Failure> {
    if until <= Instant::now() { Err(Failure::LockLost) } else { Ok(()) }
}
