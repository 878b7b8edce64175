//! `ack_work_item`: the activity goes and its completion comes, in one batch;
//! meanwhile the next one is locked for the same worker.

use std::sync::Arc;

use duroxide::providers::WorkItem;
use perihelion_client::{Batch, Etag};
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::documents::lock_token::{LockKind, LockToken, nonce};
use crate::documents::{Activity, Garbage, Message, Versioned, kind};
use crate::failure::Failure;
use crate::ops::activity::prefetch;
use crate::ops::activity::sessions;
use crate::ops::core::Core;
use crate::ops::payload::{self, Ready};
use crate::ops::repair::garbage;
use crate::plan::{instance_of, message};
use crate::process::lock_table::{self, LockedActivity};
use crate::store::{RETRY_FOR, quiet_operation, retry_until};

/// Attempts when the document changes under the lock: renewals do it, in this
/// process one after the other.
const ATTEMPTS_MAX: usize = 16;

pub(crate) async fn run(core: &Core, token: &str, completion: Option<&WorkItem>) -> Result<(), Failure> {
    let (token, work) = held(core, token).await?;
    let mut work = work.lock().await;
    check(&work)?;
    // Its worker comes back for more.
    let worker = work.worker.clone();
    let (acked, ()) =
        tokio::join!(end(core, &token, &mut work, completion), prefetch::run(core, worker.as_ref()));
    acked
}

async fn end(
    core: &Core,
    token: &LockToken,
    work: &mut LockedActivity,
    completion: Option<&WorkItem>,
) -> Result<(), Failure> {
    let completion = match completion {
        Some(item) => {
            let message = completion_of(core, token, work, item)?;
            Some(payload::prepare(&core.store, message, core.clock.stamp(), work.until).await?)
        }
        None => None,
    };
    let end = End { garbage: garbage_of(core, work), completion };
    for _ in 0..ATTEMPTS_MAX {
        check(work)?;
        let etag = work.activity.etag.clone();
        let send = || async { Ok(core.store.container.batch(as_batch(token, &end, &etag)?).await?) };
        match retry_until(work.until, send).await {
            Ok(results) => {
                // Nothing is told of an answer that was lost.
                let is_answered = results.get(0).is_some();
                conclude(core, token, work, end, is_answered).await;
                // Whoever waits with the same token comes too late.
                work.until = Instant::now();
                return Ok(());
            }
            Err(Failure::Storage(error)) if error.is_precondition_failed() || error.is_not_found() => {
                if let Err(failure) = refresh(core, token, work).await {
                    if !retry_until(work.until, || is_done(core, token)).await? {
                        return Err(failure);
                    }
                    conclude(core, token, work, end, false).await;
                    work.until = Instant::now();
                    return Ok(());
                }
            }
            // Its completion is there: an earlier one of the same activity.
            Err(Failure::Storage(error)) if error.is_conflict() => {
                return Err(Failure::Refused(format!("activity {} was completed before", token.id)));
            }
            Err(failure) => return Err(failure),
        }
    }
    Err(Failure::Contended(format!("the activity {} keeps changing", token.id)))
}

/// Whether an activity that is locked here and yet gone went by an ack of this
/// lock, whose answer was lost and whose completion was consumed since. Nobody
/// else removes it but a deletion: a cancellation leaves something, and others
/// take it only when the lock has run out.
async fn is_done(core: &Core, token: &LockToken) -> Result<bool, Failure> {
    if core.store.find::<serde_json::Value>(&token.instance, &token.id).await?.is_some() {
        return Ok(false);
    }
    let state = core.store.state(&token.instance).await?.map(|state| state.value);
    Ok(state.is_some_and(|state| {
        !state.is_deleted() && state.del.is_none() && state.incarnation == token.incarnation
    }))
}

/// What comes when an activity goes.
struct End {
    completion: Option<Ready>,
    /// Its input, if that lies in parts.
    garbage: Option<Garbage>,
}

fn garbage_of(core: &Core, work: &LockedActivity) -> Option<Garbage> {
    let Activity { instance_id, item, .. } = &work.activity.value;
    let parts = item.parts()?.clone();
    let blank = Garbage::blank(instance_id, &nonce(), core.clock.stamp());
    Some(Garbage { parts: vec![parts], ..blank })
}

/// The activity is over. Its completion is known here whole; but when the answer
/// was lost it may have been found and consumed meanwhile, and is to be read.
async fn conclude(core: &Core, token: &LockToken, work: &LockedActivity, end: End, is_answered: bool) {
    core.activity_locks.remove(&token.nonce);
    core.hints.activities.quietly(|hints| hints.forget(&token.instance, &token.id));
    if let Some(Ready { message, .. }) = end.completion {
        core.hints.instances.tell(|hints| match is_answered {
            true => hints.bring(message),
            false => hints.hint(&message.instance_id, message.visible_at),
        });
    }
    sessions::touch(core, work.activity.value.session_id.as_deref()).await;
    if let Some(garbage) = end.garbage {
        garbage::run(core, garbage).await;
    }
}

/// The completion as a message, under an id that every attempt shares.
fn completion_of(
    core: &Core,
    token: &LockToken,
    work: &LockedActivity,
    item: &WorkItem,
) -> Result<Message, Failure> {
    if !matches!(item, WorkItem::ActivityCompleted { .. } | WorkItem::ActivityFailed { .. }) {
        return Err(Failure::Refused("an activity ends with ActivityCompleted or ActivityFailed".to_owned()));
    }
    if instance_of(item) != token.instance {
        return Err(Failure::Refused("the completion is for another instance than the activity".to_owned()));
    }
    let id = token.id.replacen("a:", "c:", 1);
    let mut message = message(item, id, core.clock.stamp(), None)?;
    message.inc.clone_from(&work.activity.value.inc);
    message.by = Some(token.nonce.clone());
    Ok(message)
}

fn as_batch(token: &LockToken, end: &End, etag: &Etag) -> Result<Batch, Failure> {
    let mut batch = Batch::new(token.instance.as_str());
    batch.delete_if_match(&token.id, etag)?;
    if let Some(garbage) = &end.garbage {
        batch.create(garbage)?;
    }
    let batch = batch.with_options(quiet_operation());
    let Some(Ready { message, staged }) = &end.completion else { return Ok(batch) };
    let mut batch = batch.with_witness(message.id.as_str(), "/by", token.nonce.as_str());
    batch.create(message)?;
    if let Some(staged) = staged {
        batch.delete_if_match(&staged.id, &staged.etag)?;
    }
    Ok(batch)
}

/// What a token of an activity stands for.
pub(crate) async fn held(
    core: &Core,
    text: &str,
) -> Result<(LockToken, Arc<Mutex<LockedActivity>>), Failure> {
    let token = LockToken::read(text, LockKind::Activity).ok_or(Failure::LockLost)?;
    if let Some(work) = core.activity_locks.get(&token.nonce) {
        return Ok((token, work));
    }
    let work = retry_until(Instant::now() + RETRY_FOR, || find(core, &token)).await?;
    let work = core.activity_locks.insert(&token.nonce, work);
    Ok((token, work))
}

/// Takes up what the document says now, if the lock in it is still ours.
pub(crate) async fn refresh(
    core: &Core,
    token: &LockToken,
    work: &mut LockedActivity,
) -> Result<(), Failure> {
    match retry_until(work.until, || find(core, token)).await {
        Ok(found) => work.activity = found.activity,
        Err(failure) => {
            core.activity_locks.remove(&token.nonce);
            core.hints.activities.quietly(|hints| hints.forget(&token.instance, &token.id));
            return Err(failure);
        }
    }
    Ok(())
}

async fn find(core: &Core, token: &LockToken) -> Result<LockedActivity, Failure> {
    let found: Option<Versioned<serde_json::Value>> = core.store.find(&token.instance, &token.id).await?;
    let Versioned { value, etag } = found.ok_or(Failure::LockLost)?;
    if value["type"] != kind::ACTIVITY || value["lock"] != token.nonce.as_str() {
        return Err(Failure::LockLost);
    }
    let value: Activity = serde_json::from_value(value).map_err(|_| Failure::LockLost)?;
    let until = lock_table::deadline(value.visible_at.ms(), core.clock.now_ms());
    Ok(LockedActivity { activity: Versioned { value, etag }, until, worker: None })
}

/// A lock that ran out is no lock, even if nobody has taken it since.
pub(crate) fn check(work: &LockedActivity) -> Result<(), Failure> {
    if work.until <= Instant::now() { Err(Failure::LockLost) } else { Ok(()) }
}
