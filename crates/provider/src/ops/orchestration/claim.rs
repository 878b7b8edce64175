//! Claims an instance: reads its state and visible messages with one query, then
//! locks it with one conditional write of the state document. The commit tier (see
//! [`CommitTier`]) may allow a claim from a cached state, which needs no query, and a claim
//! for a first attempt, which does not write the lock.
//!
//! Invariants:
//!
//! - No lock is written before the capability check and the read of the history. So a
//!   dispatcher that cannot run an instance does not lock it.
//! - A claim does not count attempts in the message documents; the lock counts them. Only an
//!   abandoned turn writes its count into the message documents.
//!
//! A claim that reads the instance also cleans up: it continues a purge or a deletion, sets
//! broken messages aside, and deletes messages that no turn may consume. A message that only a
//! later version of this provider can read stays. The messages behind it stay too.

mod completions;
mod messages;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use duroxide::providers::{DispatcherCapabilityFilter, KvEntry, WorkItem};
use duroxide::{Event, EventKind};
use perihelion_client::Etag;

use crate::documents::stamp::Stamp;
use crate::documents::{Message, State, Versioned};
use crate::failure::Failure;
use crate::ops::admin::delete;
use crate::ops::core::Core;
use crate::ops::orchestration::claim_cached;
use crate::ops::orchestration::leftovers;
use crate::ops::orchestration::lock_instance::{FetchedInstance, Identity, LockRequest};
use crate::ops::payload;
use crate::ops::read;
use crate::ops::repair::purge::PurgeEnd;
use crate::ops::set_aside::write_later_version_notice;
use crate::options::config::CommitTier;
use crate::process::hints::{Candidate, SeenMessages};
use crate::process::membership::Membership;

use messages::{InstanceRead, MESSAGES_MAX, drop_stale, find_start, read_instance};

/// The version of an instance that was started without a version, before its first turn. In the first
/// turn, a worker that knows the orchestration chooses the version.
pub(crate) const UNKNOWN_VERSION: &str = "unknown";

/// The outcome of a claim.
pub(crate) enum ClaimOutcome {
    /// The instance is locked.
    Taken(Box<FetchedInstance>),
    /// No message is visible.
    Idle,
    /// Another dispatcher has the lock. The value is the end of the lock, in milliseconds since
    /// 1970.
    Locked(u64),
    /// The state that was read is out of date: another process has changed the state, or this
    /// claim has finished the purge of a deleted instance. The next claim reads the state again.
    Stale,
    /// The execution is pinned to a duroxide version that this dispatcher does not run.
    Incompatible,
    /// The instance has not started, and none of its messages starts it. The value tells which
    /// messages these are: a message that is not among them may be the start.
    Unstarted(SeenMessages),
    /// The instance has not started, and the message that starts it is not visible before this
    /// time.
    StartDelayed(Stamp),
    /// The next message of the instance can only be read by a later version of this provider.
    LaterVersion,
    /// The instance is being deleted.
    Deleting,
    /// The documents of the instance are unreadable.
    Unreadable,
}

/// The options of the dispatcher that claims.
#[derive(Clone, Copy)]
pub(crate) struct ClaimOptions<'a> {
    pub(crate) lock_timeout: Duration,
    /// The duroxide versions that the dispatcher runs; `None` for all versions.
    pub(crate) filter: Option<&'a DispatcherCapabilityFilter>,
    pub(crate) commit_tier: CommitTier,
}

/// Claims an instance without a request, if the commit tier and what this process knows allow
/// that. `candidate` is what the hints know about the instance.
pub(crate) fn claim_without_read(
    core: &Core,
    candidate: &Candidate,
    options: ClaimOptions<'_>,
) -> Option<ClaimOutcome> {
    if options.commit_tier != CommitTier::Cached {
        return None;
    }
    let locked = claim_cached::claim(core, candidate, options.lock_timeout, options.filter)?;
    Some(ClaimOutcome::Taken(Box::new(locked)))
}

/// Reads an instance and claims it. `candidate` is what the hints know about the instance.
pub(crate) async fn claim(
    core: &Core,
    candidate: &Candidate,
    options: ClaimOptions<'_>,
) -> Result<ClaimOutcome, Failure> {
    let instance = candidate.instance.as_str();
    let now = core.clock.now();
    let read = match read_turn(core, instance, now, options.filter).await? {
        Ok(read) => read,
        Err(refused) => return Ok(refused),
    };
    let InstanceRead { state, messages, mut etags, has_more_messages, later_version_message } = read;
    // The state, unless it is a tombstone.
    let live = state.as_ref().map(|state| &state.value).filter(|state| !state.is_deleted());
    let mut messages = drop_stale(&core.store, instance, live, &state, messages, &etags).await;
    if let Some(id) = &later_version_message {
        write_later_version_notice(&core.later_version_notice, instance, id);
    }
    if messages.is_empty() {
        let is_later = later_version_message.is_some();
        return Ok(if is_later { ClaimOutcome::LaterVersion } else { ClaimOutcome::Idle });
    }
    let history = match &state {
        Some(state) if !state.value.is_deleted() => read::current_history(&core.store, state).await?,
        _ => Ok(Arc::default()),
    };
    let events = history.as_ref().map_or(&[][..], |history| history.as_slice());
    if identity(live, events, &messages).is_none() {
        let start = Box::pin(find_start(&core.store, instance, &mut etags)).await?;
        let start = drop_stale(&core.store, instance, live, &state, start, &etags).await;
        if let Some((delayed, _)) = start.first().filter(|(message, _)| message.visible_at > now) {
            return Ok(ClaimOutcome::StartDelayed(delayed.visible_at));
        }
        messages.truncate(MESSAGES_MAX - start.len());
        messages.splice(0..0, start);
    }
    let Some(identity) = identity(live, events, &messages) else {
        // The message of a later version may be the start.
        if later_version_message.is_some() {
            return Ok(ClaimOutcome::LaterVersion);
        }
        // If there are more messages than were read, `find_start` has looked for a start among the
        // others. So all messages that were enqueued up to now count as seen.
        let all_until = if has_more_messages { now } else { Stamp::default() };
        let seen = SeenMessages::new(etags.keys().map(String::as_str), all_until);
        let unstarted = handle_unstarted(core, instance, state.as_ref(), &messages, &etags, seen);
        return Box::pin(unstarted).await;
    };
    let is_optimistic = options.commit_tier >= CommitTier::Optimistic
        && is_first_attempt(&core.membership, candidate, live, &messages);
    let (history, kv_snapshot) = match read_values(core, live).await? {
        Ok(kv_snapshot) => (history, kv_snapshot),
        Err(error) => (Err(error), HashMap::new()),
    };
    let attempts = &candidate.attempts;
    let request = LockRequest {
        instance,
        stored_state: state,
        identity,
        history,
        kv_snapshot,
        messages,
        message_etags: etags,
        has_more_messages,
        attempts,
    };
    if is_optimistic {
        return Ok(ClaimOutcome::Taken(Box::new(request.lock_in_memory(core, options.lock_timeout))));
    }
    let locked = Box::pin(request.lock_durably(core, options.lock_timeout)).await?;
    Ok(locked.map_or(ClaimOutcome::Stale, |locked| ClaimOutcome::Taken(Box::new(locked))))
}

/// Reads the key-value pairs of an instance. The inner error says that another commit replaced a
/// value during the read. That commit also replaced the state, so no commit from this claim can
/// succeed. The error is passed on as the error of an unreadable history. Then duroxide abandons the
/// turn.
async fn read_values(
    core: &Core,
    live: Option<&State>,
) -> Result<Result<HashMap<String, KvEntry>, String>, Failure> {
    let Some(state) = live else { return Ok(Ok(HashMap::new())) };
    match read::kv_snapshot(&core.store, state).await {
        Ok(kv_snapshot) => Ok(Ok(kv_snapshot)),
        Err(Failure::Contended(error)) => Ok(Err(error)),
        Err(failure) => Err(failure),
    }
}

/// Reads the state and the messages of the next turn. The inner error is the outcome of a claim
/// that the state refuses.
async fn read_turn(
    core: &Core,
    instance: &str,
    now: Stamp,
    filter: Option<&DispatcherCapabilityFilter>,
) -> Result<Result<InstanceRead, ClaimOutcome>, Failure> {
    let mut read = read_instance(&core.store, instance, now).await?;
    // The process may have been suspended since its fetch began. What was read before the check has a form
    // of the version that is known now, and the etag shows later changes.
    core.store.check_may_take_work().await?;
    if let Some(state) = &read.state
        && let Some(refused) = check_state(core, state, now, filter).await?
    {
        return Ok(Err(refused));
    }
    let consumed = match &mut read.state {
        Some(state) if !state.value.undeleted.is_empty() && completions::knows_undeleted(&core.store) => {
            Box::pin(leftovers::remove(&core.store, state)).await?
        }
        _ => HashSet::new(),
    };
    if !consumed.is_empty() {
        // Some of the messages that were read may have been consumed before. These are deleted by now,
        // so the messages are read again.
        let second_read = read_instance(&core.store, instance, now).await?;
        let etag_of = |state: &Option<Versioned<State>>| state.as_ref().map(|state| state.etag.clone());
        if etag_of(&second_read.state) != etag_of(&read.state) {
            return Ok(Err(ClaimOutcome::Stale));
        }
        read = InstanceRead { state: read.state, ..second_read };
        read.messages.retain(|(message, _)| !consumed.contains(&message.id));
    }
    completions::add_further(core, instance, now, &mut read).await?;
    Ok(Ok(read))
}

/// The outcome of a claim that the state refuses; `None` if the instance can be claimed.
/// Continues a purge or a deletion of the instance.
async fn check_state(
    core: &Core,
    state: &Versioned<State>,
    now: Stamp,
    filter: Option<&DispatcherCapabilityFilter>,
) -> Result<Option<ClaimOutcome>, Failure> {
    let State { purge, deletion, lock, instance_id, .. } = &state.value;
    if state.value.is_deleted() && purge.is_some() {
        return Ok(Some(match Box::pin(delete::purge_found(core, state)).await? {
            PurgeEnd::Done => ClaimOutcome::Stale,
            // Another process purges the instance. This process looks again after a pause.
            PurgeEnd::TakenOver => ClaimOutcome::Deleting,
        }));
    }
    if let Some(deletion_id) = deletion {
        Box::pin(delete::resolve_mark(core, instance_id, deletion_id)).await?;
        return Ok(Some(ClaimOutcome::Deleting));
    }
    if let Some(lock) = lock.as_ref().filter(|lock| lock.until > now.ms()) {
        return Ok(Some(ClaimOutcome::Locked(lock.until)));
    }
    Ok((!is_compatible(&state.value, filter)).then_some(ClaimOutcome::Incompatible))
}

/// Whether it is certain that no process has attempted the turn before. If so, there is no count
/// of attempts to keep, and the lock need not be written. It is certain for messages that this
/// process wrote itself, and for messages that arrived while this process owned the slice of
/// the instance. Another process may have attempted an older message, and crashed.
fn is_first_attempt(
    membership: &Membership,
    candidate: &Candidate,
    state: Option<&State>,
    messages: &[(Message, WorkItem)],
) -> bool {
    let has_no_earlier_turn =
        !candidate.had_uncommitted_turn && state.is_none_or(|state| state.lock.is_none());
    let owned_since = membership.owned_since(&candidate.instance);
    let is_new = |message: &Message| {
        let is_written_here = candidate.messages.iter().any(|known| known.id == message.id);
        let arrived_while_owned = || owned_since.is_some_and(|since| message.earliest_seen_at() > since);
        message.attempt_count == 0 && (is_written_here || arrived_while_owned())
    };
    has_no_earlier_turn && messages.iter().all(|(message, _)| is_new(message))
}

/// Whether the dispatcher runs the version that the execution is pinned to. One version
/// range of the filter has to match. An execution without a pin is always compatible.
pub(crate) fn is_compatible(state: &State, filter: Option<&DispatcherCapabilityFilter>) -> bool {
    let Some(filter) = filter else { return true };
    let pin = state.execution.pinned_version.as_deref().and_then(|pin| semver::Version::parse(pin).ok());
    pin.is_none_or(|pin| filter.is_compatible(&pin))
}

/// The name, version and execution of an instance: from its state, its history, or the
/// message that starts it. `None` if it has not started and no message starts it.
pub(crate) fn identity(
    state: Option<&State>,
    history: &[Event],
    messages: &[(Message, WorkItem)],
) -> Option<Identity> {
    let execution = state.map_or(0, |state| state.execution.number).max(1);
    if let Some(State { is_created: true, name: Some(name), version: Some(version), .. }) = state {
        return Some(Identity { name: name.clone(), version: version.clone(), execution });
    }
    let from_history = history.iter().find_map(|event| match &event.kind {
        EventKind::OrchestrationStarted { name, version, .. } => Some((name.clone(), version.clone())),
        _ => None,
    });
    let from_messages = || {
        messages.iter().find_map(|(_, item)| match item {
            WorkItem::StartOrchestration { orchestration, version, .. }
            | WorkItem::ContinueAsNew { orchestration, version, .. } => {
                let version = version.clone().unwrap_or_else(|| UNKNOWN_VERSION.to_owned());
                Some((orchestration.clone(), version))
            }
            _ => None,
        })
    };
    let (name, version) = from_history.or_else(from_messages)?;
    Some(Identity { name, version, execution })
}

/// Handles messages to an instance that has not started. If each of them is a queue message or
/// older than the retention, they are dropped: duroxide's contract says that queue messages to
/// an unknown instance are dropped. Otherwise all of them wait for the start.
///
/// A message is dropped only if nothing has changed since the read: the state and the message
/// still have the etags that were read. Otherwise the next claim decides.
async fn handle_unstarted(
    core: &Core,
    instance: &str,
    state: Option<&Versioned<State>>,
    messages: &[(Message, WorkItem)],
    etags: &HashMap<String, Etag>,
    seen: SeenMessages,
) -> Result<ClaimOutcome, Failure> {
    let (retention, now) = (core.retention(), core.clock.stamp());
    let is_dropped = |message: &Message, item: &WorkItem| {
        matches!(item, WorkItem::QueueMessage { .. })
            || retention.is_message_expired(message.enqueued_at, now)
    };
    if !messages.iter().all(|(message, item)| is_dropped(message, item)) {
        return Ok(ClaimOutcome::Unstarted(seen));
    }
    let dropped: Vec<(&Message, &Etag)> =
        messages.iter().filter_map(|(message, _)| Some((message, etags.get(&message.id)?))).collect();
    if !payload::remove_messages_if_unchanged(&core.store, instance, state, &dropped).await? {
        return Ok(ClaimOutcome::Stale);
    }
    tracing::warn!(instance, count = messages.len(), "messages to an unknown instance were dropped");
    Ok(ClaimOutcome::Idle)
}

#[cfg(test)]
mod tests;
