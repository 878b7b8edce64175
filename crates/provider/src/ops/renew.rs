//! Renewing locks. A renewal never shortens a lock, and a transient failure is
//! waited out: the runtime would cancel a running activity for it.

use std::time::Duration;

use crate::clock::{Stamp, ends_ms};
use crate::failure::Failure;
use crate::held;
use crate::inner::Inner;
use crate::ops::{ack_work, sessions, turn};
use crate::store::{patiently, quiet};

/// Attempts when the document changes under the lock.
const ATTEMPTS_MAX: usize = 16;

pub(crate) async fn orchestration(inner: &Inner, token: &str, extend_for: Duration) -> Result<(), Failure> {
    let (token, turn) = turn::of(inner, token).await?;
    let mut turn = turn.lock().await;
    for _ in 0..ATTEMPTS_MAX {
        turn::check(&turn)?;
        let mut next = turn.state.clone();
        let lock = next.lock.as_mut().filter(|lock| lock.n == token.nonce).ok_or(Failure::LockLost)?;
        lock.until = lock.until.max(ends_ms(inner.clock.now_ms(), extend_for));
        let until = lock.until;
        let etag = turn.etag.clone();
        let put = || inner.store.put_state(&next, etag.as_ref(), "/lock/until", until.into());
        match patiently(turn.until, put).await {
            // A lock that was only in memory is written now.
            Ok(etag) => {
                (turn.state, turn.etag, turn.is_durable) = (next, Some(etag), true);
                turn.until = held::deadline(until, inner.clock.now_ms());
                inner.hub.instances.quietly(|hints| hints.renewed(&token.instance, Stamp::at_ms(until)));
                return Ok(());
            }
            Err(Failure::Storage(error))
                if error.is_precondition_failed() || error.is_not_found() || error.is_conflict() =>
            {
                turn::refresh(inner, &token, &mut turn).await?;
            }
            Err(failure) => return Err(failure),
        }
    }
    Err(Failure::Contended(format!("the state of {} keeps changing", token.instance)))
}

pub(crate) async fn work(inner: &Inner, token: &str, extend_for: Duration) -> Result<(), Failure> {
    let (token, work) = ack_work::held(inner, token).await?;
    let mut work = work.lock().await;
    for _ in 0..ATTEMPTS_MAX {
        ack_work::check(&work)?;
        let mut next = work.activity.value.clone();
        let until = next.visible_at.ms().max(ends_ms(inner.clock.now_ms(), extend_for));
        next.visible_at = Stamp::at_ms(until);
        let etag = work.activity.etag.clone();
        let options = || quiet().with_witness(next.id.as_str(), "/visibleAt", next.visible_at.0);
        let put = || inner.store.put(&next.instance_id, &next.id, &next, &etag, options());
        match patiently(work.until, put).await {
            Ok(etag) => {
                inner.hub.works.quietly(|hints| hints.offer((next.clone(), etag.clone())));
                (work.activity.value, work.activity.etag) = (next, etag);
                work.until = held::deadline(until, inner.clock.now_ms());
                sessions::touch(inner, work.activity.value.session_id.as_deref()).await;
                return Ok(());
            }
            Err(Failure::Storage(error)) if error.is_precondition_failed() || error.is_not_found() => {
                ack_work::refresh(inner, &token, &mut work).await?;
            }
            Err(failure) => return Err(failure),
        }
    }
    Err(Failure::Contended(format!("the activity {} keeps changing", token.id)))
}
