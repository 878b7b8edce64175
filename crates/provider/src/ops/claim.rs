//! Taking an instance: one query for its state and visible messages, then the
//! lock, one conditional write of the state document.
//!
//! What always holds: nothing is written before the capability check and before
//! the history is read, so that whoever cannot take an instance leaves no trace;
//! messages are never written. How often each was tried is in the lock.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use duroxide::providers::{DispatcherCapabilityFilter, KvEntry, OrchestrationItem, WorkItem};
use duroxide::{Event, EventKind};
use perihelion_client::{Batch, Patch, Query};
use serde_json::Value;

use crate::clock::{Stamp, ends_ms};
use crate::documents::{Lock, Message, STATE, State, Versioned};
use crate::failure::Failure;
use crate::held::{self, Turn};
use crate::inner::Inner;
use crate::ops::{purge, read};
use crate::store::versioned;
use crate::token::{Kind, Token, nonce};

/// Messages of one turn. Their deletions must fit the commit's batch beside
/// everything else.
pub(crate) const MESSAGES_MAX: usize = 64;

/// The state document, then messages in their order.
const WAITING: &str = "SELECT TOP 65 * FROM c WHERE c.enq >= 0 AND (c.id = 'i' OR \
    (c.type = 'orch_queue' AND c.visibleAt <= @now)) ORDER BY c.enq";

/// How an attempt to take an instance ended.
pub(crate) enum Claim {
    Taken(Box<(OrchestrationItem, String, u32)>),
    /// There is no message to see.
    Idle,
    /// Another has it until then, in milliseconds since 1970.
    Locked(u64),
    /// Someone else was faster.
    Lost,
    /// Its execution is pinned to a version that this dispatcher does not run.
    Incompatible,
    /// Messages, but no start: not an instance yet.
    Unstarted,
    /// It is being deleted.
    Leaving,
}

/// What a partition has for a turn.
struct Waiting {
    state: Option<Versioned<State>>,
    messages: Vec<(Message, WorkItem)>,
    is_more: bool,
}

pub(crate) async fn claim(
    inner: &Inner,
    instance: &str,
    lock_timeout: Duration,
    filter: Option<&DispatcherCapabilityFilter>,
) -> Result<Claim, Failure> {
    let now = inner.clock.stamp();
    let Waiting { state, messages, is_more } = waiting(inner, instance, now).await?;
    if let Some(state) = &state {
        if state.value.is_deleted() && state.value.purge.is_some() {
            purge::finish(inner, state).await?;
            return Ok(Claim::Lost);
        }
        if state.value.del.is_some() {
            return Ok(Claim::Leaving);
        }
        if let Some(lock) = state.value.lock.as_ref().filter(|lock| lock.until > now.ms()) {
            return Ok(Claim::Locked(lock.until));
        }
        if !is_compatible(&state.value, filter) {
            return Ok(Claim::Incompatible);
        }
    }
    let before = state.as_ref().map(|state| &state.value).filter(|state| !state.is_deleted());
    let messages = drop_stale(inner, instance, before, &state, messages).await;
    if messages.is_empty() {
        return Ok(Claim::Idle);
    }
    let history = match before {
        Some(state) => read::current(inner, state).await?,
        None => Ok(Vec::new()),
    };
    let Some(identity) = identity(before, history.as_deref().unwrap_or_default(), &messages) else {
        return unstarted(inner, instance, &messages).await;
    };
    // The lease begins now, not when the fetch did.
    let (next, attempts) =
        next_state(instance, &state, &messages, ends_ms(inner.clock.now_ms(), lock_timeout));
    let nonce = next.lock.as_ref().map(|lock| lock.n.clone()).unwrap_or_default();
    let etag = state.as_ref().map(|state| &state.etag);
    match inner.store.put_state(&next, etag, "/lock/n", nonce.into()).await {
        Ok(etag) => {
            let expired = before.and_then(|state| state.lock.as_ref());
            if expired.is_some_and(|lock| inner.turns.get(&lock.n).is_none()) {
                inner.meter.stole();
            }
            let state = Versioned { value: next, etag };
            Ok(Claim::Taken(Box::new(taken(inner, state, identity, history, messages, is_more, attempts))))
        }
        Err(Failure::Storage(error)) if error.is_conflict() || error.is_precondition_failed() => {
            Ok(Claim::Lost)
        }
        Err(Failure::Storage(error)) if error.is_not_found() => Ok(Claim::Lost),
        Err(failure) => Err(failure),
    }
}

async fn waiting(inner: &Inner, instance: &str, now: Stamp) -> Result<Waiting, Failure> {
    let query = Query::new(WAITING).with_parameter("@now", now.0).in_partition(instance);
    let rows: Vec<Value> = inner.store.rows(query).await?;
    let is_more = rows.len() > MESSAGES_MAX;
    let (mut state, mut messages) = (None, Vec::new());
    for row in rows {
        if row["id"] == STATE {
            state = Some(versioned::<State>(row)?);
            continue;
        }
        let id = row["id"].as_str().unwrap_or_default().to_owned();
        let message = serde_json::from_value::<Message>(row).ok();
        let item = message.as_ref().and_then(|message| serde_json::from_str(&message.item).ok());
        match (message, item) {
            (Some(message), Some(item)) => messages.push((message, item)),
            _ => set_aside(inner, instance, &id).await,
        }
    }
    messages.truncate(MESSAGES_MAX);
    Ok(Waiting { state, messages, is_more })
}

/// A document of a queue that cannot be read must not stop the others: it stays, under
/// another type, for a person to look at.
pub(crate) async fn set_aside(inner: &Inner, instance: &str, id: &str) {
    tracing::error!(
        instance,
        id,
        "a document of a queue is unreadable and is set aside as type 'unreadable'"
    );
    let Ok(patch) = Patch::new().set("/type", "unreadable") else { return };
    if let Err(error) = inner.store.container.patch(instance, id, &patch).await {
        tracing::warn!(instance, id, %error, "it could not be set aside");
    }
}

/// Only the first range counts, and an execution that is not pinned suits all.
fn is_compatible(state: &State, filter: Option<&DispatcherCapabilityFilter>) -> bool {
    let Some(filter) = filter else { return true };
    let pin = state.execution.pin.as_deref().and_then(|pin| semver::Version::parse(pin).ok());
    match (pin, filter.supported_duroxide_versions.first()) {
        (None, _) => true,
        (Some(pin), Some(range)) => range.contains(&pin),
        (Some(_), None) => false,
    }
}

/// Leaves out messages that were consumed before, or are meant for an earlier
/// incarnation, and removes them.
async fn drop_stale(
    inner: &Inner,
    instance: &str,
    live: Option<&State>,
    state: &Option<Versioned<State>>,
    messages: Vec<(Message, WorkItem)>,
) -> Vec<(Message, WorkItem)> {
    let consumed = state.as_ref().map_or(&[][..], |state| &state.value.consumed);
    let is_stale = |message: &Message| {
        let is_foreign =
            message.inc.as_ref().is_some_and(|inc| live.is_none_or(|state| state.incarnation != *inc));
        is_foreign || (message.once && consumed.contains(&message.id))
    };
    let (stale, fresh): (Vec<_>, Vec<_>) = messages.into_iter().partition(|(message, _)| is_stale(message));
    for (message, _) in stale {
        tracing::debug!(instance, id = message.id, "a message was consumed before");
        if let Err(error) = inner.store.container.delete(instance, &message.id).await
            && !error.is_not_found()
        {
            tracing::warn!(instance, id = message.id, %error, "a stale message could not be removed");
        }
    }
    fresh
}

/// Name, version and execution, from wherever they are known.
struct Identity {
    name: String,
    version: String,
    execution: u64,
}

fn identity(state: Option<&State>, history: &[Event], messages: &[(Message, WorkItem)]) -> Option<Identity> {
    let execution = state.map_or(0, |state| state.execution.execution).max(1);
    if let Some(State { created: true, name: Some(name), version: Some(version), .. }) = state {
        return Some(Identity { name: name.clone(), version: version.clone(), execution });
    }
    let begun = history.iter().find_map(|event| match &event.kind {
        EventKind::OrchestrationStarted { name, version, .. } => Some((name.clone(), version.clone())),
        _ => None,
    });
    let started = || {
        messages.iter().find_map(|(_, item)| match item {
            WorkItem::StartOrchestration { orchestration, version, .. }
            | WorkItem::ContinueAsNew { orchestration, version, .. } => {
                let version = version.clone().unwrap_or_else(|| "unknown".to_owned());
                Some((orchestration.clone(), version))
            }
            _ => None,
        })
    };
    let (name, version) = begun.or_else(started)?;
    Some(Identity { name, version, execution })
}

/// Messages before any start. Queue messages to nobody are dropped, as the
/// contract says; others wait for the start.
async fn unstarted(
    inner: &Inner,
    instance: &str,
    messages: &[(Message, WorkItem)],
) -> Result<Claim, Failure> {
    if !messages.iter().all(|(_, item)| matches!(item, WorkItem::QueueMessage { .. })) {
        return Ok(Claim::Unstarted);
    }
    tracing::warn!(instance, count = messages.len(), "queue messages to an unknown instance are dropped");
    let mut batch = Batch::new(instance);
    for (message, _) in messages {
        batch.delete(&message.id)?;
    }
    match inner.store.container.batch(batch).await {
        Ok(_) => Ok(Claim::Idle),
        Err(error) if error.is_not_found() => Ok(Claim::Lost),
        Err(error) => Err(error.into()),
    }
}

/// The state with the lock in it, and the largest count of attempts. Counts go
/// on from the message, or from a lock that ran out.
fn next_state(
    instance: &str,
    before: &Option<Versioned<State>>,
    messages: &[(Message, WorkItem)],
    until: u64,
) -> (State, u32) {
    let mut state = match before {
        Some(before) if !before.value.is_deleted() => before.value.clone(),
        Some(before) => State { consumed: before.value.consumed.clone(), ..State::blank(instance, nonce()) },
        None => State::blank(instance, nonce()),
    };
    let expired = state.lock.take().map(|lock| lock.att).unwrap_or_default();
    let attempts = |message: &Message| {
        let so_far = expired.get(&message.id).copied().unwrap_or(0).max(message.attempt_count);
        (message.id.clone(), so_far.saturating_add(1))
    };
    let att: BTreeMap<String, u32> = messages.iter().map(|(message, _)| attempts(message)).collect();
    let most = att.values().copied().max().unwrap_or(1);
    state.lock = Some(Lock { n: nonce(), until, att });
    (state, most)
}

fn taken(
    inner: &Inner,
    state: Versioned<State>,
    identity: Identity,
    history: Result<Vec<Event>, String>,
    messages: Vec<(Message, WorkItem)>,
    is_more: bool,
    attempts: u32,
) -> (OrchestrationItem, String, u32) {
    let value = &state.value;
    let Lock { n, until, .. } = value.lock.clone().unwrap_or_default();
    let token = Token {
        kind: Kind::Orchestration,
        instance: value.instance_id.clone(),
        incarnation: value.incarnation.clone(),
        execution: identity.execution,
        nonce: n.clone(),
        id: STATE.to_owned(),
    };
    let entry =
        |value: &crate::documents::KvValue| KvEntry { value: value.v.clone(), last_updated_at_ms: value.t };
    let kv_snapshot: HashMap<String, KvEntry> =
        value.kv.iter().map(|(key, value)| (key.clone(), entry(value))).collect();
    let once = messages.iter().filter(|(message, _)| message.once).map(|(message, _)| message.id.clone());
    let turn = Turn {
        once: once.collect(),
        until: held::deadline(until, inner.clock.now_ms()),
        is_more,
        state: state.clone(),
    };
    inner.turns.insert(&n, turn);
    inner.hub.instances.tell(|hints| {
        hints.locked(&token.instance, Stamp::at_ms(until));
    });
    let (history, history_error) = match history {
        Ok(history) => (history, None),
        Err(error) => (Vec::new(), Some(error)),
    };
    let item = OrchestrationItem {
        instance: token.instance.clone(),
        orchestration_name: identity.name,
        execution_id: identity.execution,
        version: identity.version,
        history,
        messages: messages.into_iter().map(|(_, item)| item).collect(),
        history_error,
        kv_snapshot,
    };
    (item, token.write(), attempts)
}
