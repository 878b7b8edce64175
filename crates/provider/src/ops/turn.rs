//! A token's turn: what this process holds, or what the state document says.

use std::sync::Arc;

use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::consumed::Once;
use crate::documents::{State, Versioned};
use crate::failure::Failure;
use crate::held::{self, Turn};
use crate::inner::Inner;
use crate::store::{PATIENCE, patiently};
use crate::token::{Kind, Token};

/// What a token of an instance stands for.
pub(crate) async fn of(inner: &Inner, text: &str) -> Result<(Token, Arc<Mutex<Turn>>), Failure> {
    let token = Token::read(text, Kind::Orchestration).ok_or(Failure::LockLost)?;
    if let Some(turn) = inner.turns.get(&token.nonce) {
        return Ok((token, turn));
    }
    let until = Instant::now() + PATIENCE;
    let state = patiently(until, || inner.store.state(&token.instance)).await?.ok_or(Failure::LockLost)?;
    let turn = as_turn(&token, state, inner.clock.now_ms()).ok_or(Failure::LockLost)?;
    let turn = inner.turns.insert(&token.nonce, turn);
    Ok((token, turn))
}

/// The state was changed behind our back: if the lock in it is still ours, or no
/// lock of ours was written and nobody has committed or locked since, the turn
/// goes on from what it is now.
pub(crate) async fn refresh(inner: &Inner, token: &Token, turn: &mut Turn) -> Result<(), Failure> {
    inner.store.snapshots.forget(&token.instance);
    let found = patiently(turn.until, || inner.store.state(&token.instance)).await?;
    let is_written = found.as_ref().is_some_and(|found| has_lock(token, &found.value));
    let Some(Versioned { mut value, etag }) = found.filter(|found| is_written || is_free(turn, &found.value))
    else {
        lose(inner, token);
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
pub(crate) fn lose(inner: &Inner, token: &Token) {
    inner.turns.remove(&token.nonce);
    inner.store.snapshots.forget(&token.instance);
    inner.hub.instances.tell(|hints| hints.released(&token.instance));
}

/// Whether the token's lock is in the state.
fn has_lock(token: &Token, state: &State) -> bool {
    state.lock.as_ref().is_some_and(|lock| lock.n == token.nonce)
        && state.incarnation == token.incarnation
        && state.del.is_none()
        && !state.is_deleted()
}

/// For a lock that is not written: whether nobody has been there since.
fn is_free(turn: &Turn, state: &State) -> bool {
    !turn.is_durable
        && state.lock.is_none()
        && state.incarnation == turn.state.incarnation
        && state.seq == turn.state.seq
        && state.del.is_none()
        && !state.is_deleted()
}

fn as_turn(token: &Token, state: Versioned<State>, now_ms: u64) -> Option<Turn> {
    let Versioned { value: state, etag } = state;
    let lock = state.lock.as_ref().filter(|_| has_lock(token, &state))?;
    let until = held::deadline(lock.until, now_ms);
    // Which of them must not come twice is not in the lock: all of them, then.
    let once = lock.att.keys().map(|id| Once { id: id.clone(), low: 0 }).collect();
    Some(Turn { state, etag: Some(etag), is_durable: true, history: None, once, until, is_more: true })
}

/// A lock that ran out is no lock, even if nobody has taken it since.
pub(crate) fn check(turn: &Turn) -> Result<(), Failure> {
    if turn.until <= Instant::now() { Err(Failure::LockLost) } else { Ok(()) }
}
