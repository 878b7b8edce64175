//! The lock of an instance that a dispatcher holds: finds it by its token, renews it, reads
//! it again after the state changed, and gives it up.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::documents::dedup::DedupEntry;
use crate::documents::lock_token::{LockKind, LockToken};
use crate::documents::stamp::{Stamp, deadline_ms};
use crate::documents::{Charge, State, Versioned};
use crate::failure::Failure;
use crate::ops::core::Core;
use crate::ops::token_lock;
use crate::process::lock_table::{self, LockedInstance};
use crate::store::{retry_until, unless_stale};

/// The outcome of a renewal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Renewal {
    Renewed,
    /// Another writer has changed the state. Whether the lock still holds is not known:
    /// [`refresh`] finds out.
    Stale,
}

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

/// Writes the lock with a later end: `extend_for` from now. Never shortens it. An expired lock
/// is lost. Transient failures are retried until the lock expires.
pub(crate) async fn renew(
    core: &Core,
    token: &LockToken,
    held: &mut LockedInstance,
    extend_for: Duration,
) -> Result<Renewal, Failure> {
    token_lock::check_not_expired(held.until)?;
    let mut next = held.state.clone();
    let lock = next.lock.as_mut().filter(|lock| lock.nonce == token.nonce).ok_or(Failure::LockLost)?;
    lock.until = lock.until.max(deadline_ms(core.clock.now_ms(), extend_for));
    let until = lock.until;
    let etag = held.etag.clone();
    let put = || core.store.put_state(&next, etag.as_ref(), "/lock/until", until.into());
    let Some(etag) = unless_stale(retry_until(held.until, put).await)? else { return Ok(Renewal::Stale) };
    // A lock that was only in memory is written now.
    (held.state, held.etag, held.is_durable) = (next, Some(etag), true);
    held.until = lock_table::deadline(until, core.clock.now_ms());
    core.hints.instances.with(|hints| hints.record_renewal(&token.instance, Stamp::at_ms(until)));
    Ok(Renewal::Renewed)
}

/// Runs work that may take longer than the lock lasts, and renews the lock meanwhile. `None`
/// if another writer has changed the state: the work is dropped then.
pub(crate) async fn renew_during<T>(
    core: &Core,
    token: &LockToken,
    held: &mut LockedInstance,
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<Option<T>, Failure> {
    tokio::pin!(work);
    loop {
        let (until, lease) = (held.until, held.lease);
        let due = token_lock::renewal_due(until, lease);
        match token_lock::renew_beside(work.as_mut(), due, until, renew(core, token, held, lease)).await? {
            (_, Some(Renewal::Stale)) => return Ok(None),
            (Some(done), _) => return done.map(Some),
            (None, _) => {}
        }
    }
}

/// When the ack renews its lock: when a third of the lease is left.
pub(crate) fn renewal_due(held: &LockedInstance) -> Instant {
    token_lock::renewal_due(held.until, held.lease)
}

/// Gives up the lock without a commit. After that the token is invalid, and fetches look
/// at the instance again.
pub(crate) fn give_up(core: &Core, token: &LockToken) {
    core.instance_locks.end(&token.nonce);
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
/// does not tell whether the instance has more messages, so more messages are assumed.
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
        is_optimistic: false,
        history: None,
        dedup_entries,
        message_etags: HashMap::new(),
        charge_in_messages: Charge::default(),
        until,
        lease: until.saturating_duration_since(Instant::now()).max(token_lock::LEASE_MIN),
        has_more_messages: true,
    })
}
