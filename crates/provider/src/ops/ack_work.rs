//! `ack_work_item`: the activity goes and its completion comes, in one batch;
//! meanwhile the next one is locked for the same worker.

use std::sync::Arc;

use duroxide::providers::WorkItem;
use perihelion_client::{Batch, Etag};
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::documents::{Activity, Litter, Message, Versioned, kind};
use crate::failure::Failure;
use crate::held::{self, Work};
use crate::inner::Inner;
use crate::ops::payload::{self, Ready};
use crate::ops::{ahead, litter, sessions};
use crate::plan::{instance_of, message};
use crate::store::{PATIENCE, patiently, quiet_operation};
use crate::token::{Kind, Token, nonce};

/// Attempts when the document changes under the lock: renewals do it, in this
/// process one after the other.
const ATTEMPTS_MAX: usize = 16;

pub(crate) async fn run(inner: &Inner, token: &str, completion: Option<&WorkItem>) -> Result<(), Failure> {
    let (token, work) = held(inner, token).await?;
    let mut work = work.lock().await;
    check(&work)?;
    // Its worker comes back for more.
    let worker = work.worker.clone();
    let (acked, ()) =
        tokio::join!(end(inner, &token, &mut work, completion), ahead::run(inner, worker.as_ref()));
    acked
}

async fn end(
    inner: &Inner,
    token: &Token,
    work: &mut Work,
    completion: Option<&WorkItem>,
) -> Result<(), Failure> {
    let completion = match completion {
        Some(item) => {
            let message = completion_of(inner, token, work, item)?;
            Some(payload::prepare(&inner.store, message, inner.clock.stamp(), work.until).await?)
        }
        None => None,
    };
    let end = End { litter: litter_of(inner, work), completion };
    for _ in 0..ATTEMPTS_MAX {
        check(work)?;
        let etag = work.activity.etag.clone();
        let send = || async { Ok(inner.store.container.batch(as_batch(token, &end, &etag)?).await?) };
        match patiently(work.until, send).await {
            Ok(results) => {
                // Nothing is told of an answer that was lost.
                let is_answered = results.get(0).is_some();
                conclude(inner, token, work, end, is_answered).await;
                // Whoever waits with the same token comes too late.
                work.until = Instant::now();
                return Ok(());
            }
            Err(Failure::Storage(error)) if error.is_precondition_failed() || error.is_not_found() => {
                if let Err(failure) = refresh(inner, token, work).await {
                    if !patiently(work.until, || is_done(inner, token)).await? {
                        return Err(failure);
                    }
                    conclude(inner, token, work, end, false).await;
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
async fn is_done(inner: &Inner, token: &Token) -> Result<bool, Failure> {
    if inner.store.find::<serde_json::Value>(&token.instance, &token.id).await?.is_some() {
        return Ok(false);
    }
    let state = inner.store.state(&token.instance).await?.map(|state| state.value);
    Ok(state.is_some_and(|state| {
        !state.is_deleted() && state.del.is_none() && state.incarnation == token.incarnation
    }))
}

/// What comes when an activity goes.
struct End {
    completion: Option<Ready>,
    /// Its input, if that lies in parts.
    litter: Option<Litter>,
}

fn litter_of(inner: &Inner, work: &Work) -> Option<Litter> {
    let Activity { instance_id, item, .. } = &work.activity.value;
    let parts = item.parts()?.clone();
    let blank = Litter::blank(instance_id, &nonce(), inner.clock.stamp());
    Some(Litter { parts: vec![parts], ..blank })
}

/// The activity is over. Its completion is known here whole; but when the answer
/// was lost it may have been found and consumed meanwhile, and is to be read.
async fn conclude(inner: &Inner, token: &Token, work: &Work, end: End, is_answered: bool) {
    inner.works.remove(&token.nonce);
    inner.hub.works.quietly(|hints| hints.forget(&token.instance, &token.id));
    if let Some(Ready { message, .. }) = end.completion {
        inner.hub.instances.tell(|hints| match is_answered {
            true => hints.bring(message),
            false => hints.hint(&message.instance_id, message.visible_at),
        });
    }
    sessions::touch(inner, work.activity.value.session_id.as_deref()).await;
    if let Some(litter) = end.litter {
        litter::run(inner, litter).await;
    }
}

/// The completion as a message, under an id that every attempt shares.
fn completion_of(inner: &Inner, token: &Token, work: &Work, item: &WorkItem) -> Result<Message, Failure> {
    if !matches!(item, WorkItem::ActivityCompleted { .. } | WorkItem::ActivityFailed { .. }) {
        return Err(Failure::Refused("an activity ends with ActivityCompleted or ActivityFailed".to_owned()));
    }
    if instance_of(item) != token.instance {
        return Err(Failure::Refused("the completion is for another instance than the activity".to_owned()));
    }
    let id = token.id.replacen("a:", "c:", 1);
    let mut message = message(item, id, inner.clock.stamp(), None)?;
    message.inc.clone_from(&work.activity.value.inc);
    message.by = Some(token.nonce.clone());
    Ok(message)
}

fn as_batch(token: &Token, end: &End, etag: &Etag) -> Result<Batch, Failure> {
    let mut batch = Batch::new(token.instance.as_str());
    batch.delete_if_match(&token.id, etag)?;
    if let Some(litter) = &end.litter {
        batch.create(litter)?;
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
pub(crate) async fn held(inner: &Inner, text: &str) -> Result<(Token, Arc<Mutex<Work>>), Failure> {
    let token = Token::read(text, Kind::Work).ok_or(Failure::LockLost)?;
    if let Some(work) = inner.works.get(&token.nonce) {
        return Ok((token, work));
    }
    let work = patiently(Instant::now() + PATIENCE, || find(inner, &token)).await?;
    let work = inner.works.insert(&token.nonce, work);
    Ok((token, work))
}

/// Takes up what the document says now, if the lock in it is still ours.
pub(crate) async fn refresh(inner: &Inner, token: &Token, work: &mut Work) -> Result<(), Failure> {
    match patiently(work.until, || find(inner, token)).await {
        Ok(found) => work.activity = found.activity,
        Err(failure) => {
            inner.works.remove(&token.nonce);
            inner.hub.works.quietly(|hints| hints.forget(&token.instance, &token.id));
            return Err(failure);
        }
    }
    Ok(())
}

async fn find(inner: &Inner, token: &Token) -> Result<Work, Failure> {
    let found: Option<Versioned<serde_json::Value>> = inner.store.find(&token.instance, &token.id).await?;
    let Versioned { value, etag } = found.ok_or(Failure::LockLost)?;
    if value["type"] != kind::ACTIVITY || value["lock"] != token.nonce.as_str() {
        return Err(Failure::LockLost);
    }
    let value: Activity = serde_json::from_value(value).map_err(|_| Failure::LockLost)?;
    let until = held::deadline(value.visible_at.ms(), inner.clock.now_ms());
    Ok(Work { activity: Versioned { value, etag }, until, worker: None })
}

/// A lock that ran out is no lock, even if nobody has taken it since.
pub(crate) fn check(work: &Work) -> Result<(), Failure> {
    if work.until <= Instant::now() { Err(Failure::LockLost) } else { Ok(()) }
}
