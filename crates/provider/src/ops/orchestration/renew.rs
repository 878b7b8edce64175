//! `renew_orchestration_item_lock`: writes a later end of the lock. A renewal never shortens a
//! lock, and an expired lock is not renewed. Transient failures are retried until the lock
//! expires.

use std::time::Duration;

use crate::documents::stamp::{Stamp, deadline_ms};
use crate::failure::Failure;
use crate::ops::core::Core;
use crate::ops::orchestration::held_lock;
use crate::ops::token_lock;
use crate::process::lock_table;
use crate::store::{ConflictBudget, SharedDocument, retry_until, unless_stale};

/// The most attempts. An attempt fails if another writer changes the state under the lock.
const ATTEMPTS_MAX: usize = 16;

pub(crate) async fn run(core: &Core, token: &str, extend_for: Duration) -> Result<(), Failure> {
    let (token, held) = held_lock::find(core, token).await?;
    let mut held = held.lock().await;
    let mut budget = ConflictBudget::new(SharedDocument::State(&token.instance), ATTEMPTS_MAX);
    loop {
        budget.spend()?;
        token_lock::check_not_expired(held.until)?;
        let mut next = held.state.clone();
        let lock = next.lock.as_mut().filter(|lock| lock.nonce == token.nonce).ok_or(Failure::LockLost)?;
        lock.until = lock.until.max(deadline_ms(core.clock.now_ms(), extend_for));
        let until_ms = lock.until;
        let etag = held.etag.clone();
        let put = || core.store.put_state(&next, etag.as_ref(), "/lock/until", until_ms.into());
        let Some(etag) = unless_stale(retry_until(held.until, put).await)? else {
            held_lock::refresh(core, &token, &mut held).await?;
            continue;
        };
        // A lock that was only in memory is written now.
        (held.state, held.etag, held.is_durable) = (next, Some(etag), true);
        held.until = lock_table::deadline(until_ms, core.clock.now_ms());
        core.hints.instances.with(|hints| hints.record_renewal(&token.instance, Stamp::at_ms(until_ms)));
        return Ok(());
    }
}
