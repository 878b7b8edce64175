//! The lock behind a token: from the lock table of this process, or read from the
//! document that has the lock. Instances and activities share it.

use std::future::Future;
use std::sync::Arc;

use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::documents::lock_token::{LockKind, LockToken};
use crate::failure::Failure;
use crate::process::lock_table::LockTable;
use crate::store::{RETRY_FOR, retry_until};

/// Finds the lock of a token. `find` reads it when the table does not have it.
pub(crate) async fn of<T, F>(
    table: &LockTable<T>,
    kind: LockKind,
    text: &str,
    find: impl Fn(LockToken) -> F,
) -> Result<(LockToken, Arc<Mutex<T>>), Failure>
where
    F: Future<Output = Result<T, Failure>>,
{
    let token = LockToken::decode(text, kind).ok_or(Failure::LockLost)?;
    if let Some(held) = table.get(&token.nonce) {
        return Ok((token, held));
    }
    let found = retry_until(Instant::now() + RETRY_FOR, || find(token.clone())).await?;
    let held = table.insert(&token.nonce, found);
    Ok((token, held))
}

/// An expired lock is refused, even when no other process has taken it.
pub(crate) fn check(until: Instant) -> Result<(), Failure> {
    if until <= Instant::now() { Err(Failure::LockLost) } else { Ok(()) }
}
