//! A token's turn: what this process holds, or what the state document says.

use std::sync::Arc;

use tokio::sync::Mutex;
use tokio::time::Instant;

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

/// The state was changed behind our back: if the lock in it is still ours, the
/// turn goes on from what it is now.
pub(crate) async fn refresh(inner: &Inner, token: &Token, turn: &mut Turn) -> Result<(), Failure> {
    let found = patiently(turn.until, || inner.store.state(&token.instance)).await?;
    let Some(fresh) = found.and_then(|state| as_turn(token, state, inner.clock.now_ms())) else {
        inner.turns.remove(&token.nonce);
        return Err(Failure::LockLost);
    };
    turn.state = fresh.state;
    Ok(())
}

fn as_turn(token: &Token, state: Versioned<State>, now_ms: u64) -> Option<Turn> {
    let lock = state.value.lock.as_ref().filter(|lock| lock.n == token.nonce)?;
    if state.value.incarnation != token.incarnation || state.value.del.is_some() || state.value.is_deleted() {
        return None;
    }
    let until = held::deadline(lock.until, now_ms);
    // Which of them must not come twice is not in the lock: all of them, then.
    let once = lock.att.keys().cloned().collect();
    Some(Turn { state, once, until, is_more: true })
}

/// A lock that ran out is no lock, even if nobody has taken it since.
pub(crate) fn check(turn: &Turn) -> Result<(), Failure> {
    if turn.until <= Instant::now() { Err(Failure::LockLost) } else { Ok(()) }
}
