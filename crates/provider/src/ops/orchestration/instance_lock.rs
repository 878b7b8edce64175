//! A token's turn: what this process holds, or what the state document says.

use std::sync::Arc;

use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::documents::dedup::Once;
use crate::documents::lock_token::{LockKind, LockToken};
use crate::documents::{State, Versioned};
use crate::failure::Failure;
use crate::ops::core::Core;
use crate::process::lock_table::{self, LockedInstance};
use crate::store::{RETRY_FOR, retry_until};

/// What a token of an instance stands for.
pub(crate) async fn of(core: &Core, text: &str) -> Result<(LockToken, Arc<Mutex<LockedInstance>>), Failure> {
    let token = LockToken::read(text, LockKind::Orchestration).ok_or(Failure::LockLost)?;
    if let Some(turn) = core.instance_locks.get(&token.nonce) {
        return Ok((token, turn));
    }
    let until = Instant::now() + RETRY_FOR;
    let state = retry_until(until, || core.store.state(&token.instance)).await?.ok_or(Failure::LockLost)?;
    let turn = as_turn(&token, state, core.clock.now_ms()).ok_or(Failure::LockLost)?;
    let turn = core.instance_locks.insert(&token.nonce, turn);
    Ok((token, turn))
}

/// The state was changed behind our back: if the lock in it is still ours, or no
/// lock of ours was written and nobody has committed or locked since, the turn
/// goes on from what it is now.
pub(crate) async fn refresh(
    core: &Core,
    token: &LockToken,
    turn: &mut LockedInstance,
) -> Result<(), Failure> {
    core.store.state_cache.forget(&token.instance);
    let found = retry_until(turn.until, || core.store.state(&token.instance)).await?;
    let is_written = found.as_ref().is_some_and(|found| has_lock(token, &found.value));
    let Some(Versioned { mut value, etag }) = found.filter(|found| is_written || is_free(turn, &found.value))
    else {
        lose(core, token);
        return Err(Failure::LockLost);
    };
    if !is_written {
        value.lock.clone_from(&turn.state.lock);
        value.started_by.clone_from(&turn.state.started_by);
    }
    (turn.state, turn.etag, turn.is_durable) = (value, Some(etag), is_written);
    Ok(())
}

/// The turn is over without a commit: its token is dead, and the instance is
/// looked at again.
pub(crate) fn lose(core: &Core, token: &LockToken) {
    core.instance_locks.remove(&token.nonce);
    core.store.state_cache.forget(&token.instance);
    core.hints.instances.tell(|hints| hints.released(&token.instance));
}

/// Whether the token's lock is in the state.
fn has_lock(token: &LockToken, state: &State) -> bool {
    state.lock.as_ref().is_some_and(|lock| lock.n == token.nonce)
        && state.incarnation == token.incarnation
        && state.del.is_none()
        && !state.is_deleted()
}

/// For a lock that is not written: whether nobody has been there since.
fn is_free(turn: &LockedInstance, state: &State) -> bool {
    !turn.is_durable
        && state.lock.is_none()
        && state.incarnation == turn.state.incarnation
        && state.seq == turn.state.seq
        && state.del.is_none()
        && !state.is_deleted()
}

fn as_turn(token: &LockToken, state: Versioned<State>, now_ms: u64) -> Option<LockedInstance> {
    let Versioned { value: state, etag } = state;
    let lock = state.lock.as_ref().filter(|_| has_lock(token, &state))?;
    let until = lock_table::deadline(lock.until, now_ms);
    // Which of them must not come twice is not in the lock: all of them, then.
    let once = lock.att.keys().map(|id| Once { id: id.clone(), low: 0 }).collect();
    Some(LockedInstance {
        state,
        etag: Some(etag),
        is_durable: true,
        history: None,
        once,
        until,
        is_more: true,
    })
}

/// A lock that ran out is no lock, even if nobody has taken it since.
pub(crate) fn check(turn: &LockedInstance) -> Result<(), Failure> {
    if turn.until <= Instant::now() { Err(Failure::LockLost) } else { Ok(()) }
}
