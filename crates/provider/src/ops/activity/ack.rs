//! `ack_work_item`: one batch deletes the activity and, if the caller passes a completion,
//! creates the completion. At the same time `prefetch` may lock the next activity.

use std::time::Duration;

use duroxide::providers::WorkItem;
use perihelion_client::{Batch, Etag};
use tokio::time::Instant;

use crate::documents::lock_token::{LockKind, LockToken, nonce};
use crate::documents::{Activity, DocumentType, Garbage, Message};
use crate::failure::Failure;
use crate::ops::activity::{ATTEMPTS_MAX, held_lock, next_turn, prefetch, sessions};
use crate::ops::core::Core;
use crate::ops::payload::{self, PreparedMessage};
use crate::ops::repair::garbage;
use crate::ops::token_lock;
use crate::plan::{message_document, target_instance};
use crate::process::clock::HybridClock;
use crate::process::lock_table::LockedActivity;
use crate::store::{ConflictBudget, SharedDocument, Store, batch_without_content, retry_until};
use crate::timing::{LATE_ATTEMPT_MAX, STAGING_GUARD_TTL};

/// How long one attempt to stage the text of a completion may take. The lock is renewed
/// meanwhile.
const STAGED_WITHIN: Duration = Duration::from_secs(600);

// The guard document of a staging outlives the last attempt to create it.
const _: () =
    assert!(STAGING_GUARD_TTL.as_secs() > 2 * (STAGED_WITHIN.as_secs() + LATE_ATTEMPT_MAX.as_secs()));

pub(crate) async fn run(core: &Core, token: &str, completion: Option<&WorkItem>) -> Result<(), Failure> {
    match ack(core, token, completion).await {
        // The runtime acks a cancelled activity without a completion. There is nothing left to do,
        // and for an error the runtime would log a warning.
        Err(Failure::LockLost) if completion.is_none() && was_cancelled(&core.store, token).await => Ok(()),
        acked => acked,
    }
}

/// Whether the activity of a token was cancelled: its document is a tombstone. False if the
/// document cannot be read.
async fn was_cancelled(store: &Store, token: &str) -> bool {
    let Some(token) = LockToken::decode(token, LockKind::Activity) else { return false };
    let found = store.find::<serde_json::Value>(&token.instance, &token.id).await;
    found.is_ok_and(|found| {
        found.is_some_and(|found| DocumentType::of(&found.value) == Some(DocumentType::Cancelled))
    })
}

async fn ack(core: &Core, token: &str, completion: Option<&WorkItem>) -> Result<(), Failure> {
    let (token, held) = held_lock::find(core, token).await?;
    let mut held = held.lock().await;
    token_lock::check_not_expired(held.until)?;
    // The worker fetches again after the ack, so its next activity is locked now.
    let worker = held.worker.clone();
    let (acked, ()) =
        tokio::join!(complete(core, &token, &mut held, completion), prefetch::run(core, worker.as_ref()));
    acked
}

/// Deletes the activity, creates its completion if there is one, and then updates hints,
/// session and garbage.
async fn complete(
    core: &Core,
    token: &LockToken,
    held: &mut LockedActivity,
    completion: Option<&WorkItem>,
) -> Result<(), Failure> {
    let mut sent_charge = None;
    let completion = match completion {
        Some(item) => {
            let mut message = completion_message(&core.clock, token, held, item)?;
            message.is_left_to_owner = next_turn::is_left_to_owner(core, &token.instance);
            if message.is_left_to_owner {
                let taken = core.costs.take(&token.instance);
                message.cost = taken.charge();
                sent_charge = Some(taken);
            }
            Some(prepare_completion(core, token, held, message).await?)
        }
        None => None,
    };
    let replacement = Replacement { garbage: input_garbage(&core.clock, held), completion };
    let mut budget = ConflictBudget::new(SharedDocument::Activity(&token.id), ATTEMPTS_MAX);
    if let Some(sent) = &mut sent_charge {
        sent.mark_sent();
    }
    let is_answered = loop {
        budget.spend()?;
        match write_batch(core, token, held, &replacement).await? {
            BatchOutcome::Applied { is_answered } => break is_answered,
            BatchOutcome::Changed => {}
            BatchOutcome::NotApplied(failure) => {
                if let Some(sent) = sent_charge {
                    sent.put_back();
                }
                return Err(failure);
            }
        }
    };
    finish_ack(core, token, held, replacement, is_answered).await;
    // Another call with the same token may wait for the mutex. It must fail.
    held.until = Instant::now();
    Ok(())
}

/// Stages the text of the completion if it is large. The lock is renewed meanwhile. The futures
/// of the staging are large and rarely needed, so they are boxed.
async fn prepare_completion(
    core: &Core,
    token: &LockToken,
    held: &mut LockedActivity,
    message: Message,
) -> Result<PreparedMessage, Failure> {
    if !payload::needs_staging(&message) {
        return Ok(PreparedMessage { message, staged: None });
    }
    let mut budget = ConflictBudget::new(SharedDocument::Activity(&token.id), ATTEMPTS_MAX);
    loop {
        budget.spend()?;
        let until = Instant::now() + STAGED_WITHIN;
        let prepared = payload::prepare_message(&core.store, message.clone(), core.clock.stamp(), until);
        if let Some(prepared) = Box::pin(held_lock::renew_during(core, held, prepared)).await? {
            return Ok(prepared);
        }
        Box::pin(held_lock::refresh(core, token, held)).await?;
    }
}

/// The outcome of the batch of an ack.
enum BatchOutcome {
    /// `is_answered` is false if the answer was lost.
    Applied { is_answered: bool },
    /// The activity has changed, but the lock still holds: the caller tries again.
    Changed,
    /// The batch was not applied and can no longer be applied.
    NotApplied(Failure),
}

/// Writes the batch. After an error, it is not known whether the batch was applied.
async fn write_batch(
    core: &Core,
    token: &LockToken,
    held: &mut LockedActivity,
    replacement: &Replacement,
) -> Result<BatchOutcome, Failure> {
    token_lock::check_not_expired(held.until)?;
    let etag = held.activity.etag.clone();
    let send = || async { Ok(core.store.container.batch(as_batch(token, replacement, &etag)?).await?) };
    match retry_until(held.until, send).await {
        // The results are empty if the answer was lost and the witness showed that the batch
        // was applied.
        Ok(results) => Ok(BatchOutcome::Applied { is_answered: results.get(0).is_some() }),
        Err(Failure::Storage(error)) if error.is_precondition_failed() || error.is_document_not_found() => {
            let refreshed = Box::pin(held_lock::refresh(core, token, held)).await;
            let Err(failure) = refreshed else { return Ok(BatchOutcome::Changed) };
            match Box::pin(retry_until(held.until, || was_completed(&core.store, token))).await? {
                true => Ok(BatchOutcome::Applied { is_answered: false }),
                false => Ok(BatchOutcome::NotApplied(failure)),
            }
        }
        // The completion exists, because the same activity was completed before.
        Err(Failure::Storage(error)) if error.is_conflict() => {
            Ok(BatchOutcome::NotApplied(Failure::Refused(format!(
                "activity {} of {} was completed before; this result is dropped",
                token.id, token.instance
            ))))
        }
        Err(failure) => Err(failure),
    }
}

/// Whether an earlier attempt of this ack has deleted the activity, and only the answer was
/// lost. That is the case if the activity does not exist and the instance was not deleted. Nothing
/// else removes an activity under a lock: a cancellation leaves a tombstone, and other workers
/// take the activity only after the lock has expired. A missing completion proves
/// nothing: it may have been consumed, or the ack had none.
///
/// An instance that was deleted and created again counts as deleted: its incarnation differs.
/// An activity that was enqueued outside a turn has no incarnation to compare, so for such an
/// activity the answer is always false.
async fn was_completed(store: &Store, token: &LockToken) -> Result<bool, Failure> {
    if store.find::<serde_json::Value>(&token.instance, &token.id).await?.is_some() {
        return Ok(false);
    }
    let state = store.state(&token.instance).await?.map(|state| state.value);
    Ok(state.is_some_and(|state| {
        !state.is_deleted() && state.deletion.is_none() && state.incarnation == token.incarnation
    }))
}

/// The documents that replace an activity.
struct Replacement {
    completion: Option<PreparedMessage>,
    /// The garbage record of the activity's input, if the input is stored in parts.
    garbage: Option<Garbage>,
}

/// The garbage record for the parts of the activity's input; `None` if the input is inline.
fn input_garbage(clock: &HybridClock, held: &LockedActivity) -> Option<Garbage> {
    let Activity { instance_id, item, .. } = &held.activity.value;
    let parts = item.parts()?.clone();
    let blank = Garbage::blank(instance_id, &nonce(), clock.stamp());
    Some(Garbage { parts: vec![parts], ..blank })
}

/// Does the work after the batch: hints, session and garbage. If the answer was lost, the
/// completion may have been consumed in the meantime. So the hint gets only the time of the
/// completion, and the next turn reads the instance.
async fn finish_ack(
    core: &Core,
    token: &LockToken,
    held: &LockedActivity,
    replacement: Replacement,
    is_answered: bool,
) {
    core.activity_locks.remove(&token.nonce);
    core.hints.activities.with(|hints| hints.remove(&token.instance, &token.id));
    if let Some(PreparedMessage { message, .. }) = replacement.completion {
        let now = core.clock.now();
        if !message.is_left_to_owner {
            core.hints.instances.update_and_wake(|hints| match is_answered {
                true => hints.add_message(message, now),
                false => drop(hints.add_due(&message.instance_id, message.visible_at)),
            });
        }
    }
    sessions::record_use(core, held.activity.value.session_id.as_deref()).await;
    if let Some(garbage) = replacement.garbage {
        garbage::collect_in_background(core, garbage).await;
    }
}

/// The completion as a message. Its id follows from the id of the activity, so every attempt
/// uses the same id.
fn completion_message(
    clock: &HybridClock,
    token: &LockToken,
    held: &LockedActivity,
    item: &WorkItem,
) -> Result<Message, Failure> {
    if !matches!(item, WorkItem::ActivityCompleted { .. } | WorkItem::ActivityFailed { .. }) {
        return Err(Failure::Refused(format!(
            "cannot ack activity {} of {}: its completion must be ActivityCompleted or ActivityFailed",
            token.id, token.instance
        )));
    }
    if target_instance(item) != token.instance {
        return Err(Failure::Refused(format!(
            "cannot ack activity {} of {}: its completion is for another instance",
            token.id, token.instance
        )));
    }
    let id = token.id.replacen("a:", "c:", 1);
    let mut message = message_document(item, id, clock.stamp(), None)?;
    message.incarnation.clone_from(&held.activity.value.incarnation);
    message.lock_nonce = Some(token.nonce.clone());
    Ok(message)
}

/// The batch: the activity is deleted first, under its etag.
fn as_batch(token: &LockToken, replacement: &Replacement, etag: &Etag) -> Result<Batch, Failure> {
    let mut batch = Batch::new(token.instance.as_str());
    batch.delete_if_match(&token.id, etag)?;
    if let Some(garbage) = &replacement.garbage {
        batch.create(garbage)?;
    }
    let batch = batch.with_options(batch_without_content());
    let Some(PreparedMessage { message, staged }) = &replacement.completion else { return Ok(batch) };
    let mut batch = batch.with_witness(message.id.as_str(), "/by", token.nonce.as_str());
    batch.create(message)?;
    if let Some(staged) = staged {
        batch.delete_if_match(&staged.id, &staged.etag)?;
    }
    Ok(batch)
}
