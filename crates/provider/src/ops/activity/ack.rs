//! `ack_work_item`: one batch deletes the activity and creates its completion. While
//! it runs, the next activity is locked for the same worker.

use duroxide::providers::WorkItem;
use perihelion_client::{Batch, Etag};
use tokio::time::Instant;

use crate::documents::lock_token::{LockToken, nonce};
use crate::documents::{Activity, Garbage, Message};
use crate::failure::Failure;
use crate::ops::activity::{ATTEMPTS_MAX, activity_lock, prefetch, sessions};
use crate::ops::core::Core;
use crate::ops::payload::{self, PreparedMessage};
use crate::ops::repair::garbage;
use crate::ops::token_lock;
use crate::plan::{message_document, target_instance};
use crate::process::clock::HybridClock;
use crate::process::lock_table::LockedActivity;
use crate::store::{ConflictBudget, SharedDocument, Store, batch_without_content, retry_until};

pub(crate) async fn run(core: &Core, token: &str, completion: Option<&WorkItem>) -> Result<(), Failure> {
    let (token, held) = activity_lock::of(core, token).await?;
    let mut held = held.lock().await;
    token_lock::check(held.until)?;
    // This worker fetches again after the ack.
    let worker = held.worker.clone();
    let (acked, ()) =
        tokio::join!(complete(core, &token, &mut held, completion), prefetch::run(core, worker.as_ref()));
    acked
}

async fn complete(
    core: &Core,
    token: &LockToken,
    held: &mut LockedActivity,
    completion: Option<&WorkItem>,
) -> Result<(), Failure> {
    let completion = match completion {
        Some(item) => {
            let message = completion_of(&core.clock, token, held, item)?;
            Some(payload::prepare_message(&core.store, message, core.clock.stamp(), held.until).await?)
        }
        None => None,
    };
    let end = End { garbage: garbage_of(&core.clock, held), completion };
    let mut budget = ConflictBudget::new(SharedDocument::Activity(&token.id), ATTEMPTS_MAX);
    let is_answered = loop {
        budget.spend()?;
        if let Some(is_answered) = write(core, token, held, &end).await? {
            break is_answered;
        }
    };
    conclude(core, token, held, end, is_answered).await;
    // A caller that waits for the same lock must fail.
    held.until = Instant::now();
    Ok(())
}

/// Writes the batch. `Some(true)` when it was applied and answered, `Some(false)`
/// when it was applied and the answer was lost, `None` to try again.
async fn write(
    core: &Core,
    token: &LockToken,
    held: &mut LockedActivity,
    end: &End,
) -> Result<Option<bool>, Failure> {
    token_lock::check(held.until)?;
    let etag = held.activity.etag.clone();
    let send = || async { Ok(core.store.container.batch(as_batch(token, end, &etag)?).await?) };
    match retry_until(held.until, send).await {
        // A batch that was found applied by its witness has no results.
        Ok(results) => Ok(Some(results.get(0).is_some())),
        Err(Failure::Storage(error)) if error.is_precondition_failed() || error.is_not_found() => {
            let Err(failure) = activity_lock::refresh(core, token, held).await else { return Ok(None) };
            match retry_until(held.until, || is_done(&core.store, token)).await? {
                true => Ok(Some(false)),
                false => Err(failure),
            }
        }
        // The completion exists: the same activity was completed before.
        Err(Failure::Storage(error)) if error.is_conflict() => {
            Err(Failure::Refused(format!("activity {} was completed before", token.id)))
        }
        Err(failure) => Err(failure),
    }
}

/// Whether an activity that is gone was removed by an ack of this lock whose answer
/// was lost and whose completion was consumed since. Only a deletion of the instance
/// removes it otherwise: a cancellation leaves a document, and other workers take it
/// only after the lock has expired.
async fn is_done(store: &Store, token: &LockToken) -> Result<bool, Failure> {
    if store.find::<serde_json::Value>(&token.instance, &token.id).await?.is_some() {
        return Ok(false);
    }
    let state = store.state(&token.instance).await?.map(|state| state.value);
    Ok(state.is_some_and(|state| {
        !state.is_deleted() && state.deletion.is_none() && state.incarnation == token.incarnation
    }))
}

/// The documents that replace an activity.
struct End {
    completion: Option<PreparedMessage>,
    /// The activity's input, if it is stored in parts.
    garbage: Option<Garbage>,
}

fn garbage_of(clock: &HybridClock, held: &LockedActivity) -> Option<Garbage> {
    let Activity { instance_id, item, .. } = &held.activity.value;
    let parts = item.parts()?.clone();
    let blank = Garbage::blank(instance_id, &nonce(), clock.stamp());
    Some(Garbage { parts: vec![parts], ..blank })
}

/// Updates this process after the ack. When the answer was lost, the completion may
/// have been found and consumed in the meantime, so the instance must be read.
async fn conclude(core: &Core, token: &LockToken, held: &LockedActivity, end: End, is_answered: bool) {
    core.activity_locks.remove(&token.nonce);
    core.hints.activities.quietly(|hints| hints.forget(&token.instance, &token.id));
    if let Some(PreparedMessage { message, .. }) = end.completion {
        core.hints.instances.tell(|hints| match is_answered {
            true => hints.add_message(message),
            false => hints.hint(&message.instance_id, message.visible_at),
        });
    }
    sessions::touch(&core.store, &core.clock, held.activity.value.session_id.as_deref()).await;
    if let Some(garbage) = end.garbage {
        garbage::run(core, garbage).await;
    }
}

/// The completion as a message. Every attempt uses the same id.
fn completion_of(
    clock: &HybridClock,
    token: &LockToken,
    held: &LockedActivity,
    item: &WorkItem,
) -> Result<Message, Failure> {
    if !matches!(item, WorkItem::ActivityCompleted { .. } | WorkItem::ActivityFailed { .. }) {
        return Err(Failure::Refused("an activity ends with ActivityCompleted or ActivityFailed".to_owned()));
    }
    if target_instance(item) != token.instance {
        return Err(Failure::Refused("the completion is for another instance than the activity".to_owned()));
    }
    let id = token.id.replacen("a:", "c:", 1);
    let mut message = message_document(item, id, clock.stamp(), None)?;
    message.incarnation.clone_from(&held.activity.value.incarnation);
    message.lock_nonce = Some(token.nonce.clone());
    Ok(message)
}

fn as_batch(token: &LockToken, end: &End, etag: &Etag) -> Result<Batch, Failure> {
    let mut batch = Batch::new(token.instance.as_str());
    batch.delete_if_match(&token.id, etag)?;
    if let Some(garbage) = &end.garbage {
        batch.create(garbage)?;
    }
    let batch = batch.with_options(batch_without_content());
    let Some(PreparedMessage { message, staged }) = &end.completion else { return Ok(batch) };
    let mut batch = batch.with_witness(message.id.as_str(), "/by", token.nonce.as_str());
    batch.create(message)?;
    if let Some(staged) = staged {
        batch.delete_if_match(&staged.id, &staged.etag)?;
    }
    Ok(batch)
}
