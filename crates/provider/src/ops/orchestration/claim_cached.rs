//! Claims without a read (commit tier `Cached`): the hints have all messages, and the state
//! is in the cache or probably does not exist yet.
//!
//! Only turns whose messages are completions, timers and starts are claimed this way: the
//! order of these messages does not matter. The order of external events, queue messages and
//! cancellations matters, and only a read shows whether another process has sent an earlier
//! one. So turns with such messages read the partition.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use duroxide::providers::{DispatcherCapabilityFilter, KvEntry, WorkItem};
use duroxide::{Event, EventKind};

use crate::documents::text::Text;
use crate::documents::{KvValue, Message, State};
use crate::ops::core::Core;
use crate::ops::orchestration::claim::{identity, is_compatible};
use crate::ops::orchestration::lock_instance::{FetchedInstance, LockRequest};
use crate::process::hints::Candidate;
use crate::store::state_cache::Snapshot;
use crate::timing::CLAIM_WITHOUT_READ_FOR;

/// Claims an instance without a request. `None` if the instance must be read first.
pub(crate) fn claim(
    core: &Core,
    candidate: &Candidate,
    lock_timeout: Duration,
    filter: Option<&DispatcherCapabilityFilter>,
) -> Option<FetchedInstance> {
    let has_all_messages = !candidate.is_partial && !candidate.messages.is_empty();
    let was_attempted =
        candidate.had_uncommitted_turn || candidate.messages.iter().any(|message| message.attempt_count > 0);
    if !has_all_messages || was_attempted {
        return None;
    }
    if !core.membership.is_alone() && is_old(candidate, core.clock.now_ms()) {
        return None;
    }
    let messages: Vec<(Message, WorkItem)> =
        candidate.messages.iter().map(decode_inline).collect::<Option<_>>()?;
    let snapshot = core.store.state_cache.get(&candidate.instance);
    let is_suitable = match &snapshot {
        Some(snapshot) => can_continue(snapshot, &messages) && is_compatible(&snapshot.state.value, filter),
        None => is_single_start(&messages),
    };
    if !is_suitable {
        return None;
    }
    let (stored_state, history) = match &snapshot {
        Some(snapshot) => (Some(snapshot.state.clone()), Arc::clone(&snapshot.history)),
        None => (None, Arc::default()),
    };
    let identity = identity(stored_state.as_ref().map(|stored| &stored.value), &history, &messages)?;
    let kv_snapshot =
        stored_state.as_ref().map_or_else(|| Some(HashMap::new()), |stored| inline_kv(&stored.value))?;
    let request = LockRequest {
        instance: &candidate.instance,
        stored_state,
        identity,
        history: Ok(history),
        kv_snapshot,
        messages,
        message_etags: HashMap::new(),
        has_more_messages: false,
        attempts: &candidate.attempts,
    };
    Some(request.lock_in_memory(core, lock_timeout))
}

/// Whether a message is older than [`CLAIM_WITHOUT_READ_FOR`]. The owner of the slice may have
/// claimed such a message, or may soon claim it.
fn is_old(candidate: &Candidate, now_ms: u64) -> bool {
    let oldest = candidate.messages.iter().map(|message| message.earliest_seen_at().ms()).min();
    oldest.is_some_and(|seen_ms| now_ms.saturating_sub(seen_ms) > CLAIM_WITHOUT_READ_FOR.as_millis() as u64)
}

/// A message with its work item; `None` if its text is in parts or unreadable.
fn decode_inline(message: &Message) -> Option<(Message, WorkItem)> {
    let Text::Inline(text) = &message.item else { return None };
    Some((message.clone(), serde_json::from_str(text).ok()?))
}

/// The key-value pairs; `None` if a value is stored in parts, outside the state document.
fn inline_kv(state: &State) -> Option<HashMap<String, KvEntry>> {
    let entry = |(key, value): (&String, &KvValue)| match &value.value {
        Text::Inline(text) => {
            Some((key.clone(), KvEntry { value: text.clone(), last_updated_at_ms: value.set_at_ms }))
        }
        Text::InParts(_) => None,
    };
    state.kv.iter().map(entry).collect()
}

/// Whether the cached state is not locked and not being deleted, and each message is a
/// completion, a timer or the start of the next execution, for the same incarnation. After the
/// end of an execution only the start of the next one is expected. A completion may have been
/// consumed already: another turn can read and consume it before the ack of its activity gets its answer
/// and adds it to the hints. A commit that consumes it again would be refused. So false if the history
/// has one of the completions: then the instance is read.
fn can_continue(snapshot: &Snapshot, messages: &[(Message, WorkItem)]) -> bool {
    let state = &snapshot.state.value;
    let can_be_claimed =
        state.lock.is_none() && state.deletion.is_none() && !state.is_deleted() && state.is_created;
    let is_ended = state.execution.completed_at.is_some();
    let is_expected = |(message, item): &(Message, WorkItem)| {
        let is_for_this_incarnation =
            message.incarnation.as_ref().is_none_or(|incarnation| *incarnation == state.incarnation);
        let is_order_irrelevant = matches!(
            item,
            WorkItem::ActivityCompleted { .. }
                | WorkItem::ActivityFailed { .. }
                | WorkItem::TimerFired { .. }
                | WorkItem::SubOrchCompleted { .. }
                | WorkItem::SubOrchFailed { .. }
                | WorkItem::ContinueAsNew { .. }
        );
        let is_awaited = !is_ended || matches!(item, WorkItem::ContinueAsNew { .. });
        is_for_this_incarnation && is_order_irrelevant && is_awaited
    };
    can_be_claimed && messages.iter().all(is_expected) && !is_any_consumed(&snapshot.history, messages)
}

/// Whether one of these messages is the completion of an activity that has ended in this history.
fn is_any_consumed(history: &[Event], messages: &[(Message, WorkItem)]) -> bool {
    let completed = messages.iter().filter_map(|(_, item)| match item {
        WorkItem::ActivityCompleted { id, execution_id, .. }
        | WorkItem::ActivityFailed { id, execution_id, .. } => Some((*execution_id, *id)),
        _ => None,
    });
    let completed: HashSet<(u64, u64)> = completed.collect();
    let is_completion = |event: &Event| {
        matches!(event.kind, EventKind::ActivityCompleted { .. } | EventKind::ActivityFailed { .. })
            && event.source_event_id.is_some_and(|id| completed.contains(&(event.execution_id, id)))
    };
    !completed.is_empty() && history.iter().any(is_completion)
}

/// Whether there is one message, and it is a start. The cache has no state of the instance. If
/// the instance exists anyway, the commit fails, and the next claim reads the state.
fn is_single_start(messages: &[(Message, WorkItem)]) -> bool {
    matches!(messages, [(message, WorkItem::StartOrchestration { .. })] if message.incarnation.is_none())
}
