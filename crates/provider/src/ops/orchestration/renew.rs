//! `renew_orchestration_item_lock`. A renewal never shortens a lock, and a transient failure is
//! waited out: the runtime would cancel a running activity for it.

use std::time::Duration;

use crate::documents::stamp::{Stamp, ends_ms};
use crate::failure::Failure;
use crate::ops::core::Core;
use crate::ops::orchestration::instance_lock;
use crate::process::lock_table;
use crate::store::retry_until;

/// Attempts when the document changes under the lock.
const ATTEMPTS_MAX: usize = 16;

pub(crate) async fn run(core: &Core, token: &str, extend_for: Duration) -> Result<(), Failure> {
    let (token, turn) = instance_lock::of(core, token).await?;
    let mut turn = turn.lock().await;
    for _ in 0..ATTEMPTS_MAX {
        instance_lock::check(&turn)?;
        let mut next = turn.state.clone();
        let lock = next.lock.as_mut().filter(|lock| lock.n == token.nonce).ok_or(Failure::LockLost)?;
        lock.until = lock.until.max(ends_ms(core.clock.now_ms(), extend_for));
        let until = lock.until;
        let etag = turn.etag.clone();
        let put = || core.store.put_state(&next, etag.as_ref(), "/lock/until", until.into());
        match retry_until(turn.until, put).await {
            // A lock that was only in memory is written now.
            Ok(etag) => {
                (turn.state, turn.etag, turn.is_durable) = (next, Some(etag), true);
                turn.until = lock_table::deadline(until, core.clock.now_ms());
                core.hints.instances.quietly(|hints| hints.renewed(&token.instance, Stamp::at_ms(until)));
                return Ok(());
            }
            Err(Failure::Storage(error))
                if error.is_precondition_failed() || error.is_not_found() || error.is_conflict() =>
            {
                instance_lock::refresh(core, &token, &mut turn).await?;
            }
            Err(failure) => return Err(failure),
        }
    }
    Err(Failure::Contended(format!("the state of {} keeps changing", token.instance)))
}
