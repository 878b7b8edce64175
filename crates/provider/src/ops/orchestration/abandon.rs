//! `abandon_orchestration_item`: the lock ends, and the messages that came with
//! it, and no others, are seen again at once or after a delay. A lock that ran
//! out may be given back as long as nobody else has taken it.

use std::time::Duration;

use perihelion_client::{Batch, Etag, Patch};

use crate::documents::lock_token::nonce;
use crate::documents::stamp::Stamp;
use crate::documents::{Lock, STATE, State};
use crate::failure::Failure;
use crate::ops::core::Core;
use crate::ops::orchestration::instance_lock;
use crate::store::{RETRY_FOR, quiet_operation, retry_until};

/// Attempts when the state changes, or messages go, under the lock.
const ATTEMPTS_MAX: usize = 80;

pub(crate) async fn run(
    core: &Core,
    token: &str,
    delay: Option<Duration>,
    ignore_attempt: bool,
) -> Result<(), Failure> {
    let (token, turn) = instance_lock::of(core, token).await?;
    let mut turn = turn.lock().await;
    let now = core.clock.stamp();
    let visible_at = delay.filter(|delay| !delay.is_zero()).map(|delay| now.after(delay));
    let mut gone: Vec<String> = Vec::new();
    let until = tokio::time::Instant::now() + RETRY_FOR;
    for _ in 0..ATTEMPTS_MAX {
        let state = &turn.state;
        let lock = state.lock.clone().filter(|lock| lock.n == token.nonce).ok_or(Failure::LockLost)?;
        let (next, messages) = released(state, lock, &gone);
        let batch = || as_batch(&next, &messages, visible_at, ignore_attempt, turn.etag.as_ref());
        let send = || async { Ok(core.store.container.batch(batch()?).await?) };
        match retry_until(until, send).await {
            Ok(_) => {
                core.instance_locks.remove(&token.nonce);
                core.store.state_cache.forget(&token.instance);
                core.hints.instances.tell(|hints| {
                    hints.abandoned(&token.instance, visible_at, now);
                });
                return Ok(());
            }
            Err(Failure::Storage(error))
                if error.is_not_found() && error.operation_index().is_some_and(|index| index > 0) =>
            {
                let index = error.operation_index().unwrap_or(0);
                gone.extend(messages.get(index - 1).map(|(id, _)| id.clone()));
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

/// The state without its lock, and what the lock counted.
fn released(state: &State, lock: Lock, gone: &[String]) -> (State, Vec<(String, u32)>) {
    let next = State { lock: None, ack: nonce(), ..state.clone() };
    let messages = lock.att.into_iter().filter(|(id, _)| !gone.contains(id)).collect();
    (next, messages)
}

fn as_batch(
    next: &State,
    messages: &[(String, u32)],
    visible_at: Option<Stamp>,
    ignore_attempt: bool,
    etag: Option<&Etag>,
) -> Result<Batch, Failure> {
    let mut batch = Batch::new(next.instance_id.as_str());
    match etag {
        Some(etag) => batch.replace_if_match(STATE, next, etag)?,
        // A turn that was locked in memory only: this one is the first to write.
        None => batch.create(next)?,
    };
    for (id, attempts) in messages {
        let count = if ignore_attempt { attempts.saturating_sub(1) } else { *attempts };
        let mut patch = Patch::new().set("/attemptCount", count)?;
        if let Some(visible_at) = visible_at {
            patch = patch.set("/visibleAt", visible_at)?;
        }
        batch.patch(id, &patch)?;
    }
    Ok(batch.with_witness(STATE, "/ack", next.ack.as_str()).with_options(quiet_operation()))
}
