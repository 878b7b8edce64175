//! The lock behind a token: from the lock table of this process, or read from the
//! document that has the lock. Used for instances and for activities.

use std::future::Future;
use std::sync::Arc;

use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::documents::lock_token::{LockKind, LockToken};
use crate::failure::Failure;
use crate::process::lock_table::LockTable;
use crate::store::{RETRY_FOR, retry_until};

/// Finds the lock of a token, given as text. If the table does not have the lock, `read`
/// reads it; transient failures are retried for [`RETRY_FOR`]. Fails with
/// [`Failure::LockLost`] if the text is not a token of this kind.
pub(crate) async fn find<T, F>(
    table: &LockTable<T>,
    kind: LockKind,
    text: &str,
    read: impl Fn(LockToken) -> F,
) -> Result<(LockToken, Arc<Mutex<T>>), Failure>
where
    F: Future<Output = Result<T, Failure>>,
{
    let token = LockToken::decode(text, kind).ok_or(Failure::LockLost)?;
    if let Some(held) = table.get(&token.nonce) {
        return Ok((token, held));
    }
    let found = retry_until(Instant::now() + RETRY_FOR, || read(token.clone())).await?;
    let held = table.insert(&token.nonce, found);
    Ok((token, held))
}

/// Refuses an expired lock, even if no other process has taken it.
pub(crate) fn check_not_expired(until: Instant) -> Result<(), Failure> {
    if until <= Instant::now() { Err(Failure::LockLost) } else { Ok(()) }
}
