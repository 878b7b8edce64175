//! What a turn's ack becomes, decided without clock, chance or I/O: the next
//! state and the writes beside it, all of one batch.
//!
//! What always holds: a [`TurnPlan`] is committed whole or not at all, under the
//! etag of the state it was made from, and fits a batch by its count of
//! operations. What is too many (activities, timers, cancellations) goes into a
//! bundle, one document, to be unpacked after the commit.

mod bundles;
mod history;
mod items;
mod key_values;
#[cfg(test)]
mod tests;

use std::collections::HashSet;

use duroxide::Event;
use duroxide::EventKind;
use duroxide::providers::{ExecutionMetadata, ScheduledActivityIdentifier, WorkItem};

use crate::clock::Stamp;
use crate::documents::{
    Activity, Bundle, Cancelled, Chunk, Execution, FIRST, Message, Outbox, PastExecution, State, Versioned,
    kind,
};
use crate::failure::Failure;
use crate::retention::Retention;

pub(crate) use history::past_id;
pub(crate) use items::{activity, activity_id, instance_of, message, session_of};

/// More activities, messages and cancellations than this go into a bundle: a
/// batch must keep room for 64 consumed messages and the state.
const LOOSE_MAX: usize = 30;

/// Ids of consumed messages that are remembered. A duplicate comes within the
/// retries of one enqueue; so many messages of an instance are not consumed in
/// that time.
const CONSUMED_MAX: usize = 128;

/// How long what is left of a cancelled activity stays: longer than any worker
/// goes on without renewing its lock.
const CANCELLED_TTL_SECONDS: u32 = 3600;

/// What the runtime hands over at the end of a turn.
pub(crate) struct TurnAck {
    pub(crate) execution: u64,
    pub(crate) history_delta: Vec<Event>,
    pub(crate) worker_items: Vec<WorkItem>,
    pub(crate) orchestrator_items: Vec<WorkItem>,
    pub(crate) metadata: ExecutionMetadata,
    pub(crate) cancelled: Vec<ScheduledActivityIdentifier>,
    /// How far our clock is ahead of the runtime's, in milliseconds: timers are
    /// set by the runtime's.
    pub(crate) clock_offset_ms: i64,
    pub(crate) retention: Retention,
}

/// What a turn is planned from, beside the ack.
pub(crate) struct Basis<'a> {
    pub(crate) state: &'a State,
    /// Of the ack's execution, when it is not the current one and was before.
    pub(crate) past: Option<Execution>,
    /// Those of the state's bundles that are still there.
    pub(crate) bundles: &'a [Versioned<Bundle>],
    /// Messages that came with the lock and must not be delivered twice.
    pub(crate) once: &'a [String],
    /// The first of enough stamps: see [`TurnAck::stamps`].
    pub(crate) now: Stamp,
    pub(crate) nonce: &'a str,
}

/// A commit, whole but for its etag.
#[derive(Debug, Default)]
pub(crate) struct TurnPlan {
    pub(crate) state: State,
    pub(crate) past: Option<PastExecution>,
    pub(crate) chunks: Vec<Chunk>,
    pub(crate) consumed: Vec<String>,
    pub(crate) activities: Vec<Activity>,
    pub(crate) messages: Vec<Message>,
    pub(crate) cancelled: Vec<Cancelled>,
    pub(crate) bundles: Vec<Bundle>,
    pub(crate) edited_bundles: Vec<Versioned<Bundle>>,
    pub(crate) outboxes: Vec<Outbox>,
    /// Chunks, bundles and outboxes are written already, and the commit makes
    /// them count.
    pub(crate) is_staged: bool,
}

impl TurnAck {
    /// How many stamps a plan takes at most.
    pub(crate) fn stamps(&self) -> usize {
        self.worker_items.len() + self.orchestrator_items.len() + 1
    }

    fn starts_child_of(&self, instance: &str) -> bool {
        self.orchestrator_items.iter().any(|item| {
            matches!(item, WorkItem::StartOrchestration { parent_instance: Some(parent), .. } if parent == instance)
        })
    }
}

/// Plans a turn.
pub(crate) fn turn(basis: &Basis<'_>, ack: &TurnAck) -> Result<TurnPlan, Failure> {
    let mut plan = TurnPlan { state: basis.state.clone(), ..TurnPlan::default() };
    let now_ms = basis.now.ms();
    plan.state.seq += 1;
    plan.state.ack = basis.nonce.to_owned();
    plan.state.updated_at = now_ms;
    identify(&mut plan.state, &ack.metadata, now_ms);
    history::advance(&mut plan, basis, ack)?;
    custom_status(&mut plan.state, &ack.history_delta);
    key_values::apply(&mut plan.state, &ack.history_delta);
    if ack.metadata.status.as_deref().is_some_and(is_terminal) {
        key_values::merge(&mut plan.state);
    }
    release(&mut plan, basis);
    schedule(&mut plan, basis, ack)?;
    plan.state.has_children |= ack.starts_child_of(&plan.state.instance_id);
    ack.retention.mark(&mut plan.state, now_ms);
    Ok(plan)
}

pub(crate) fn is_terminal(status: &str) -> bool {
    matches!(status, "Completed" | "Failed" | "ContinuedAsNew")
}

/// An instance exists from the commit on that brings its name and version.
fn identify(state: &mut State, metadata: &ExecutionMetadata, now_ms: u64) {
    let (Some(name), Some(version)) = (&metadata.orchestration_name, &metadata.orchestration_version) else {
        return;
    };
    if !state.created {
        state.created = true;
        state.created_at = now_ms;
        state.parent_instance_id = metadata.parent_instance_id.clone();
    }
    state.name = Some(name.clone());
    state.version = Some(version.clone());
}

/// The last update of the turn counts, and counts once.
fn custom_status(state: &mut State, delta: &[Event]) {
    let last = delta.iter().rev().find_map(|event| match &event.kind {
        EventKind::CustomStatusUpdated { status } => Some(status.clone()),
        _ => None,
    });
    if let Some(status) = last {
        state.custom_status = status;
        state.custom_status_version += 1;
    }
}

/// The lock ends, and the messages that came with it are gone.
fn release(plan: &mut TurnPlan, basis: &Basis<'_>) {
    if let Some(lock) = plan.state.lock.take() {
        plan.consumed = lock.att.into_keys().collect();
    }
    plan.state.consumed.extend(basis.once.iter().cloned());
    let surplus = plan.state.consumed.len().saturating_sub(CONSUMED_MAX);
    plan.state.consumed.drain(..surplus);
}

/// Activities, messages to the instance itself, messages to others,
/// cancellations.
fn schedule(plan: &mut TurnPlan, basis: &Basis<'_>, ack: &TurnAck) -> Result<(), Failure> {
    let mut stamp = basis.now;
    let mut next = || {
        stamp.0 += 1;
        stamp
    };
    let mut cancelled: HashSet<String> =
        ack.cancelled.iter().map(|target| activity_id(target.execution_id, target.activity_id)).collect();
    let (seq, instance) = (plan.state.seq, plan.state.instance_id.clone());
    let inc = Some(plan.state.incarnation.clone());
    let (mut activities, mut messages, mut outgoing) = (Vec::new(), Vec::new(), Vec::new());
    for item in &ack.worker_items {
        let mut activity = activity(item, next())?;
        // Scheduled and cancelled in one turn: as if neither.
        if !cancelled.remove(&activity.id) {
            activity.inc = inc.clone();
            activities.push(activity);
        }
    }
    for (position, item) in ack.orchestrator_items.iter().enumerate() {
        let target = instance_of(item);
        if target == instance {
            let mut message = message(item, format!("m:{seq:x}:{position:05}"), next(), None)?;
            items::set_by_our_clock(&mut message, item, ack.clock_offset_ms, basis.now);
            message.inc = inc.clone();
            messages.push(message);
        } else {
            let source = items::source(&instance, &plan.state.incarnation);
            outgoing.push(message(item, format!("x:{source}:{seq:x}:{position:05}"), next(), None)?);
        }
    }
    plan.edited_bundles = edit_bundles(basis.bundles, &mut cancelled);
    plan.state.bundles = basis.bundles.iter().map(|bundle| bundle.value.id.clone()).collect();
    plan.outboxes = bundles::outboxes(&instance, seq, basis.now, outgoing);
    let mut cancelled: Vec<String> = cancelled.into_iter().collect();
    cancelled.sort();
    let bytes = bundles::bytes(&activities, &messages);
    if activities.len() + messages.len() + cancelled.len() <= LOOSE_MAX && bytes <= bundles::BYTES_MAX {
        plan.cancelled = cancelled.into_iter().map(|id| tombstone(&instance, id)).collect();
        (plan.activities, plan.messages) = (activities, messages);
        return Ok(());
    }
    // The start of the next execution must be there with this commit.
    let (now, later) = messages.into_iter().partition(|message| message.enq <= FIRST);
    plan.messages = now;
    plan.bundles = bundles::bundles(&instance, seq, basis.now, activities, later, cancelled);
    plan.state.bundles.extend(plan.bundles.iter().map(|bundle| bundle.id.clone()));
    Ok(())
}

/// Takes cancelled activities out of bundles that are not unpacked yet; what
/// was found there needs no tombstone.
fn edit_bundles(bundles: &[Versioned<Bundle>], cancelled: &mut HashSet<String>) -> Vec<Versioned<Bundle>> {
    let mut edited = Vec::new();
    for bundle in bundles {
        let mut copy = bundle.clone();
        copy.value.activities.retain(|activity| !cancelled.contains(&activity.id));
        if copy.value.activities.len() < bundle.value.activities.len() {
            for activity in &bundle.value.activities {
                cancelled.remove(&activity.id);
            }
            edited.push(copy);
        }
    }
    edited
}

pub(crate) fn tombstone(instance: &str, id: String) -> Cancelled {
    Cancelled {
        id,
        instance_id: instance.to_owned(),
        kind: kind::CANCELLED.to_owned(),
        ttl: CANCELLED_TTL_SECONDS,
    }
}
