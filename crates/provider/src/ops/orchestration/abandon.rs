//! `abandon_orchestration_item`: ends the lock. The messages that were fetched with the lock
//! are visible again at once or after a delay; the delay does not apply to other messages of
//! the instance. With `ignore_attempt` the attempt is not counted. An expired lock can be
//! abandoned as long as no other process has taken or deleted the instance.

use std::time::Duration;

use perihelion_client::{Batch, Etag, Patch};
use tokio::time::Instant;

use crate::documents::lock_token::nonce;
use crate::documents::stamp::Stamp;
use crate::documents::{Lock, STATE_ID, State};
use crate::failure::Failure;
use crate::ops::core::Core;
use crate::ops::heartbeat;
use crate::ops::orchestration::held_lock;
use crate::plan::CONSUMED_IN_COMMIT_MAX;
use crate::process::lock_table::LockedInstance;
use crate::store::{ConflictBudget, RETRY_FOR, SharedDocument, batch_without_content, retry_until};
use crate::timing::LEFT_TO_OTHERS_FOR;

/// The most attempts to end the lock. An attempt fails if the state has changed or a message
/// was deleted. So one attempt may be needed for each message, and a few for the state.
const ATTEMPTS_MAX: usize = 80;

pub(crate) async fn run(
    core: &Core,
    token: &str,
    delay: Option<Duration>,
    ignore_attempt: bool,
) -> Result<(), Failure> {
    let (token, held) = held_lock::find(core, token).await?;
    let mut held = held.lock().await;
    let now = core.clock.stamp();
    let delay = delay.filter(|delay| !delay.is_zero());
    let visible_at = delay.map(|delay| now.plus(delay));
    if delay.is_some() {
        // Another process may have joined since the last poll found rows.
        heartbeat::refresh_view(&core.store, &core.clock, &core.membership).await;
    }
    let is_alone = core.membership.is_alone();
    let left_until = delay.filter(|_| !is_alone).map(|delay| left_until(core, now, delay));
    // The runtime usually abandons with a delay because it cannot run the instance: the
    // orchestration, or its version, is not registered in this program. The first time that this
    // process leaves an instance to others, the attempt is not counted. So during a rolling deployment
    // the many processes that still run the old program do not use up the attempts.
    let is_first =
        left_until.is_some_and(|until| core.hints.left_instances.record(&token.instance, until, now));
    if left_until.is_some() {
        // Other processes find the instance sooner if they poll the slice too.
        core.membership.share_slice_of(&token.instance);
    }
    let ignore_attempt = ignore_attempt || is_first;
    let (mut deleted_messages, mut are_others_written) = (Vec::<String>::new(), false);
    let until = Instant::now() + RETRY_FOR;
    let mut budget = ConflictBudget::new(SharedDocument::State(&token.instance), ATTEMPTS_MAX);
    loop {
        budget.spend()?;
        let state = &held.state;
        let lock = state.lock.clone().filter(|lock| lock.nonce == token.nonce).ok_or(Failure::LockLost)?;
        let (next, mut messages) = without_lock(state, lock, &deleted_messages);
        // The other messages, for which the batch has no room, are patched first. So a turn that begins
        // when the lock ends sees their delay.
        let other_messages = messages.split_off(messages.len().min(CONSUMED_IN_COMMIT_MAX));
        if !are_others_written {
            match write_attempts(core, &mut held, &other_messages, visible_at, ignore_attempt).await {
                Ok(()) => are_others_written = true,
                Err(failure) if failure.is_stale() => {
                    held_lock::refresh(core, &token, &mut held).await?;
                    continue;
                }
                Err(failure) => return Err(failure),
            }
        }
        let batch = || as_batch(&next, &messages, visible_at, ignore_attempt, held.etag.as_ref());
        let send = || async { Ok(core.store.container.batch(batch()?).await?) };
        match retry_until(until, send).await {
            Ok(_) => break,
            Err(failure) => match deleted_message_index(&failure) {
                Some(index) => deleted_messages.extend(messages.get(index).map(|(id, _)| id.clone())),
                None if failure.is_stale() => held_lock::refresh(core, &token, &mut held).await?,
                None => return Err(failure),
            },
        }
    }
    core.instance_locks.remove(&token.nonce);
    core.store.state_cache.forget(&token.instance);
    core.hints
        .instances
        .update_and_wake(|hints| hints.record_abandon(&token.instance, visible_at, now, left_until));
    Ok(())
}

/// A process that abandons work at `now` with this delay leaves the work to other processes until
/// the returned time. Under throttling the other processes take the work later.
pub(crate) fn left_until(core: &Core, now: Stamp, delay: Duration) -> Stamp {
    let extra_wait = core.congestion.extra_wait(Instant::now());
    now.plus(delay).plus(delay.max(LEFT_TO_OTHERS_FOR + extra_wait))
}

/// The index of the message that no longer exists, if the batch was refused for that
/// reason. The first operation of the batch writes the state.
fn deleted_message_index(failure: &Failure) -> Option<usize> {
    missing_operation(failure)?.checked_sub(1)
}

/// The index of the operation whose document does not exist, if a batch was refused for that
/// reason.
fn missing_operation(failure: &Failure) -> Option<usize> {
    let Failure::Storage(error) = failure else { return None };
    error.operation_index().filter(|_| error.is_document_not_found())
}

/// The state without its lock, and the id and attempt count of each message that is not in
/// `deleted_messages`.
fn without_lock(state: &State, lock: Lock, deleted_messages: &[String]) -> (State, Vec<(String, u32)>) {
    let next = State { lock: None, commit_nonce: nonce(), ..state.clone() };
    let messages = lock.attempts.into_iter().filter(|(id, _)| !deleted_messages.contains(id)).collect();
    (next, messages)
}

/// Writes the attempt counts of the messages for which the batch that ends the lock has no room, in
/// batches. Messages that do not exist any more are left out. Each batch also writes the state under
/// its etag, so it is refused if another process has taken the lock. Each batch changes the etag, so
/// the batches are sent one after the other.
async fn write_attempts(
    core: &Core,
    held: &mut LockedInstance,
    messages: &[(String, u32)],
    visible_at: Option<Stamp>,
    ignore_attempt: bool,
) -> Result<(), Failure> {
    let patch = |(id, attempts): &(String, u32)| {
        Ok((id.clone(), attempt_patch(*attempts, visible_at, ignore_attempt)?))
    };
    let patches: Vec<(String, Patch)> = messages.iter().map(patch).collect::<Result<_, Failure>>()?;
    // One operation of each batch writes the state.
    for patches in patches.chunks(Batch::OPERATIONS_MAX - 1) {
        patch_existing(core, held, patches).await?;
    }
    Ok(())
}

/// Patches messages with one batch, if the state has not changed. If one of the messages does not
/// exist, sends the batch again without it. If an answer is lost, a patch may be applied twice, with the
/// same values. Without a state document no other process has written a lock, and the batch has no
/// condition.
async fn patch_existing(
    core: &Core,
    held: &mut LockedInstance,
    patches: &[(String, Patch)],
) -> Result<(), Failure> {
    let until = Instant::now() + RETRY_FOR;
    let mut remaining: Vec<&(String, Patch)> = patches.iter().collect();
    let first_message = usize::from(held.etag.is_some());
    // The member has this value already, so the patch only checks and changes the etag.
    let unchanged = Patch::new().set("/enq", held.state.enqueued_at)?;
    while !remaining.is_empty() {
        let send = || async {
            let mut batch = Batch::new(held.state.instance_id.as_str());
            if let Some(etag) = &held.etag {
                batch.patch_if_match(STATE_ID, &unchanged, etag)?;
            }
            for (id, patch) in &remaining {
                batch.patch(id, patch)?;
            }
            Ok(core.store.container.batch(batch.with_options(batch_without_content())).await?)
        };
        let missing_message = |failure: &Failure| {
            let index = missing_operation(failure)?.checked_sub(first_message)?;
            (index < remaining.len()).then_some(index)
        };
        match retry_until(until, send).await {
            Ok(results) if first_message == 1 => {
                held.etag =
                    Some(results.get(0).and_then(|result| result.etag()).cloned().ok_or_else(|| {
                        Failure::Contended(format!(
                            "the answer to a batch of {} has no etag of the state",
                            held.state.instance_id
                        ))
                    })?);
                return Ok(());
            }
            Ok(_) => return Ok(()),
            Err(failure) => match missing_message(&failure) {
                Some(index) => drop(remaining.remove(index)),
                None => return Err(failure),
            },
        }
    }
    Ok(())
}

/// The patch for a message of an abandoned turn: its attempt count and, with a delay, the time at
/// which it is visible again.
fn attempt_patch(attempts: u32, visible_at: Option<Stamp>, ignore_attempt: bool) -> Result<Patch, Failure> {
    let count = if ignore_attempt { attempts.saturating_sub(1) } else { attempts };
    let patch = Patch::new().set("/attemptCount", count)?;
    Ok(match visible_at {
        Some(visible_at) => patch.set("/visibleAt", visible_at)?,
        None => patch,
    })
}

/// The batch that ends the lock and writes the attempt counts to the messages. `visible_at` is
/// `None` if there is no delay. `etag` is `None` if there is no state document.
fn as_batch(
    next: &State,
    messages: &[(String, u32)],
    visible_at: Option<Stamp>,
    ignore_attempt: bool,
    etag: Option<&Etag>,
) -> Result<Batch, Failure> {
    let mut batch = Batch::new(next.instance_id.as_str());
    match etag {
        Some(etag) => batch.replace_if_match(STATE_ID, next, etag)?,
        // The lock was in memory only, and the instance has no state document yet.
        None => batch.create(next)?,
    };
    for (id, attempts) in messages {
        batch.patch(id, &attempt_patch(*attempts, visible_at, ignore_attempt)?)?;
    }
    Ok(batch.with_witness(STATE_ID, "/ack", next.commit_nonce.as_str()).with_options(batch_without_content()))
}
