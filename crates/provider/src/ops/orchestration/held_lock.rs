//! The lock on an instance that a dispatcher holds: finds the lock by its token, checks it
//! again after the state has changed, and gives it up.

use std::sync::Arc;

use tokio::sync::Mutex;

use crate::documents::dedup::DedupEntry;
use crate::documents::lock_token::{LockKind, LockToken};
use crate::documents::{State, Versioned};
use crate::failure::Failure;
use crate::ops::core::Core;
use crate::ops::token_lock;
use crate::process::lock_table::{self, LockedInstance};
use crate::store::retry_until;

/// Finds the lock of a token.
pub(crate) async fn find(
    core: &Core,
    token: &str,
) -> Result<(LockToken, Arc<Mutex<LockedInstance>>), Failure> {
    let read_lock = |token: LockToken| async move {
        let state = core.store.state(&token.instance).await?.ok_or(Failure::LockLost)?;
        locked_instance(&token, state, core.clock.now_ms()).ok_or(Failure::LockLost)
    };
    token_lock::find(&core.instance_locks, LockKind::Orchestration, token, read_lock).await
}

/// Reads the state again after another writer has changed it. A written lock still holds if it
/// is in the state. A lock that was never written still holds if no process has committed or
/// locked since. A deletion of the instance ends the lock. If the lock does not hold, gives it
/// up and fails with [`Failure::LockLost`]. `held.until` does not change, even if the state
/// has another end of the lock.
pub(crate) async fn refresh(
    core: &Core,
    token: &LockToken,
    held: &mut LockedInstance,
) -> Result<(), Failure> {
    core.store.state_cache.forget(&token.instance);
    let state = retry_until(held.until, || core.store.state(&token.instance)).await?;
    let is_written = state.as_ref().is_some_and(|state| has_lock(token, &state.value));
    let still_held = state.filter(|state| is_written || is_unwritten_lock_valid(held, &state.value));
    let Some(Versioned { mut value, etag }) = still_held else {
        give_up(core, token);
        return Err(Failure::LockLost);
    };
    if !is_written {
        value.lock.clone_from(&held.state.lock);
        value.started_by.clone_from(&held.state.started_by);
    }
    (held.state, held.etag, held.is_durable) = (value, Some(etag), is_written);
    Ok(())
}

/// Gives up the lock without a commit. After that the token is invalid, and fetches look
/// at the instance again.
pub(crate) fn give_up(core: &Core, token: &LockToken) {
    core.instance_locks.remove(&token.nonce);
    core.store.state_cache.forget(&token.instance);
    core.hints.instances.update_and_wake(|hints| hints.record_release(&token.instance));
}

/// Whether the state has the lock of the token, and the instance is not being deleted.
fn has_lock(token: &LockToken, state: &State) -> bool {
    state.lock.as_ref().is_some_and(|lock| lock.nonce == token.nonce)
        && state.incarnation == token.incarnation
        && state.deletion.is_none()
        && !state.is_deleted()
}

/// Whether the lock was never written, and no process has locked, committed or deleted the
/// instance since the lock was taken.
fn is_unwritten_lock_valid(held: &LockedInstance, state: &State) -> bool {
    !held.is_durable
        && state.lock.is_none()
        && state.incarnation == held.state.incarnation
        && state.commit_number == held.state.commit_number
        && state.deletion.is_none()
        && !state.is_deleted()
}

/// The lock of a token, from the state; `None` if the state does not have the lock. The state
/// does not tell whether the instance has more messages, so this is assumed.
fn locked_instance(token: &LockToken, state: Versioned<State>, now_ms: u64) -> Option<LockedInstance> {
    let Versioned { value: state, etag } = state;
    let lock = state.lock.as_ref().filter(|_| has_lock(token, &state))?;
    let until = lock_table::deadline(lock.until, now_ms);
    // The lock does not say which messages need dedup, so all of them get an entry.
    let dedup_entries =
        lock.attempts.keys().map(|id| DedupEntry { id: id.clone(), low_water_mark: 0 }).collect();
    Some(LockedInstance {
        state,
        etag: Some(etag),
        is_durable: true,
        history: None,
        dedup_entries,
        until,
        has_more_messages: true,
    })
}
