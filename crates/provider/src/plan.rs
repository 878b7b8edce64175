//! What a turn's ack becomes, decided without clock, chance or I/O: the next
//! state and the writes beside it, all of one batch.
//!
//! What always holds: a [`TurnPlan`] is committed whole or not at all, under the
//! etag of the state it was made from, and fits a batch by operations and by
//! bytes. What is too many (activities, timers, cancellations) goes into a
//! bundle, one document, to be unpacked after the commit. What is too large goes
//! into parts; and when all of it is too large still, everything but the state
//! and a few small documents is staged: written before the commit, under ids
//! that only this plan has, and of no use to anyone until the commit names it.

mod bundles;
mod history;
mod items;
mod key_values;
pub(crate) mod retention;
mod schedule;
mod size;
mod spill;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use duroxide::Event;
use duroxide::EventKind;
use duroxide::providers::{ExecutionMetadata, ScheduledActivityIdentifier, WorkItem};

use perihelion_client::Etag;

use crate::documents::dedup::Once;
use crate::documents::stamp::Stamp;
use crate::documents::text::{Parts, Text};
use crate::documents::{
    Activity, Bundle, Cancelled, Chunk, ExecutionStatus, Garbage, Message, Outbox, Part, PastExecution,
    State, Versioned,
};
use crate::failure::Failure;
use crate::plan::retention::Retention;
use spill::Spill;

pub(crate) use history::past_id;
pub(crate) use items::{activity, activity_id, instance_of, message, session_of};
pub(crate) use schedule::tombstone;
pub(crate) use size::BYTES_MAX;
pub(crate) use spill::apart;

/// An item that stays in its document when the turn is not too large.
pub(crate) const ITEM_BYTES_MAX: usize = 256 * 1024;

/// How a turn is laid out. The first that fits a batch is taken.
struct Layout {
    is_staged: bool,
    /// Items above it go into parts.
    item_bytes_max: usize,
}

const LAYOUTS: [Layout; 3] = [
    Layout { is_staged: false, item_bytes_max: ITEM_BYTES_MAX },
    Layout { is_staged: true, item_bytes_max: 16 * 1024 },
    Layout { is_staged: true, item_bytes_max: 1024 },
];

/// Turns whose commit can be recognised. Who asks after a lost answer does so at
/// once; should more turns have been committed by others until then, it hears
/// that its lock is lost, and the runtime's next word on that turn is refused.
const ACKS_MAX: usize = 8;

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
    pub(crate) past: Option<Versioned<PastExecution>>,
    /// Those of the state's bundles that are still there.
    pub(crate) bundles: &'a [Versioned<Bundle>],
    /// Messages that came with the lock and must not be delivered twice.
    pub(crate) once: &'a [Once],
    /// The first of enough stamps: see [`TurnAck::stamps`].
    pub(crate) now: Stamp,
    pub(crate) nonce: &'a str,
}

/// A commit, whole but for its etag.
#[derive(Debug, Default)]
pub(crate) struct TurnPlan {
    pub(crate) state: State,
    pub(crate) past: Option<PastWrite>,
    pub(crate) chunks: Vec<Chunk>,
    /// Parts of what is too large for where it belongs.
    pub(crate) parts: Vec<Part>,
    pub(crate) consumed: Vec<String>,
    pub(crate) activities: Vec<Activity>,
    pub(crate) messages: Vec<Message>,
    pub(crate) cancelled: Vec<Cancelled>,
    pub(crate) bundles: Vec<Bundle>,
    /// Open bundles that have more to skip.
    pub(crate) edited_bundles: Vec<Versioned<Bundle>>,
    pub(crate) outboxes: Vec<Outbox>,
    /// What nobody refers to after the commit.
    pub(crate) garbage: Option<Garbage>,
    /// Chunks, parts, bundles and outboxes are to be written before the commit,
    /// under this mark.
    pub(crate) staging: Option<String>,
}

/// An execution that is not the current one: as it will be, and its version if
/// it is there.
#[derive(Debug)]
pub(crate) struct PastWrite {
    pub(crate) document: PastExecution,
    pub(crate) etag: Option<Etag>,
}

impl Basis<'_> {
    /// What ids of this plan carry and no other plan's do: a turn that is
    /// planned again has another stamp.
    fn mark(&self) -> String {
        format!("{}.{:x}", self.nonce, self.now.0)
    }
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
    fitting(|layout| attempt(basis, ack, layout))
}

/// Plans events to be put into a history, and nothing else.
pub(crate) fn append(basis: &Basis<'_>, ack: &TurnAck) -> Result<TurnPlan, Failure> {
    fitting(|layout| {
        let mut plan = begin(basis, layout);
        history::advance(&mut plan, basis, ack)?;
        Ok(plan)
    })
}

/// The first layout that fits a batch.
fn fitting(plan: impl Fn(&Layout) -> Result<TurnPlan, Failure>) -> Result<TurnPlan, Failure> {
    for layout in &LAYOUTS {
        let plan = plan(layout)?;
        if plan.is_fitting() {
            return Ok(plan);
        }
    }
    Err(Failure::Refused(
        "the turn does not fit one commit: too many key-value pairs, or tens of thousands of things \
         scheduled at once. Spread them over several turns"
            .to_owned(),
    ))
}

fn begin(basis: &Basis<'_>, layout: &Layout) -> TurnPlan {
    let mut plan = TurnPlan { state: basis.state.clone(), ..TurnPlan::default() };
    plan.staging = layout.is_staged.then(|| basis.mark());
    plan.state.commit_number += 1;
    plan.state.commit_nonce = basis.nonce.to_owned();
    plan.state.recent_nonces.push(basis.nonce.to_owned());
    let surplus = plan.state.recent_nonces.len().saturating_sub(ACKS_MAX);
    plan.state.recent_nonces.drain(..surplus);
    plan.state.updated_at = basis.now.ms();
    plan
}

fn attempt(basis: &Basis<'_>, ack: &TurnAck, layout: &Layout) -> Result<TurnPlan, Failure> {
    let mut plan = begin(basis, layout);
    identify(&mut plan.state, &ack.metadata, basis.now.ms());
    history::advance(&mut plan, basis, ack)?;
    custom_status(&mut plan.state, &ack.history_delta);
    key_values::apply(&mut plan.state, &ack.history_delta);
    let status = ack.metadata.status.as_deref().map(ExecutionStatus::from);
    if status.is_some_and(|status| status.is_terminal()) {
        key_values::merge(&mut plan.state);
    }
    // Another record than that of the staging, if there is one.
    let mark = format!("{}-", basis.mark());
    let mut garbage = Garbage::blank(&plan.state.instance_id, &mark, basis.now);
    release(&mut plan, basis, &mut garbage);
    let mut spill = Spill::new(&plan.state.instance_id, &basis.mark(), layout.is_staged);
    spill.state(&mut plan.state);
    if let Some(past) = &mut plan.past {
        spill.execution(&mut past.document.execution);
    }
    schedule::apply(&mut plan, basis, ack, layout, &mut spill, &mut garbage)?;
    plan.state.has_children |= ack.starts_child_of(&plan.state.instance_id);
    ack.retention.mark(&mut plan.state, basis.now.ms());
    plan.parts = spill.into_parts();
    garbage.parts.extend(dropped(basis, &plan));
    plan.garbage = Some(garbage).filter(|garbage| !garbage.is_empty());
    Ok(plan)
}

/// Parts that were referred to before and are not any more.
fn dropped(basis: &Basis<'_>, plan: &TurnPlan) -> Vec<Parts> {
    let past = basis.past.iter().filter_map(|past| past.value.execution.output.as_ref());
    let mut before: BTreeSet<&Parts> = basis.state.parts().chain(past.filter_map(Text::parts)).collect();
    let past = plan.past.iter().filter_map(|past| past.document.execution.output.as_ref());
    for kept in plan.state.parts().chain(past.filter_map(Text::parts)) {
        before.remove(kept);
    }
    before.into_iter().cloned().collect()
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
        state.custom_status = status.map(Text::Here);
        state.custom_status_version += 1;
    }
}

/// The lock ends, and the messages that came with it are gone.
fn release(plan: &mut TurnPlan, basis: &Basis<'_>, garbage: &mut Garbage) {
    if let Some(lock) = plan.state.lock.take() {
        plan.consumed = lock.attempts.into_keys().collect();
        garbage.parts = lock.parts;
    }
    plan.state.consumed.extend(basis.once, basis.now.ms());
}
