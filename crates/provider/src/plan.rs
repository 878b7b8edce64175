//! Plans the commit of a turn: computes the next state and all other writes of one batch
//! from the current state and the runtime's ack. Planning is pure: no clock, no
//! randomness, no I/O.
//!
//! Invariants: a [`TurnPlan`] is committed whole or not at all, under the etag of the
//! state it was planned from, and fits a batch by operations and by bytes. Messages to
//! other instances go into outboxes. When there are many activities, messages to the
//! instance itself and cancellations, they are packed into bundles: documents that are
//! unpacked after the commit. Texts that are too large are split into parts. When the turn
//! is still too large, its chunks of history, parts, bundles and outboxes are staged: they
//! are written before the commit, under ids that only this plan has, and nothing uses them
//! until the commit.

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

use crate::documents::dedup::DedupEntry;
use crate::documents::stamp::Stamp;
use crate::documents::text::{PartsRef, Text};
use crate::documents::{
    Activity, Bundle, CancelledActivity, Charge, Chunk, ExecutionStatus, Garbage, Message, Outbox, Part,
    PastExecution, State, Versioned,
};
use crate::failure::Failure;
use crate::plan::retention::Retention;
use spill::Spill;

pub(crate) use history::past_execution_id;
#[cfg(test)]
pub(crate) use items::sender_hash;
pub(crate) use items::{
    activity_document, activity_id, message_document, session_document_key, target_instance,
};
pub(crate) use schedule::tombstone;
pub(crate) use size::COMMIT_BYTES_MAX;
pub(crate) use spill::part_documents;

/// A work item with more bytes of JSON text than this is split into parts. In a turn that does
/// not fit a batch, the limit is lower.
pub(crate) const ITEM_BYTES_MAX: usize = 256 * 1024;

/// The most messages that a commit deletes. A batch of 100 operations has other documents, too.
pub(crate) const CONSUMED_IN_COMMIT_MAX: usize = 64;

/// The prefix of the ids of completions.
pub(crate) const COMPLETION_PREFIX: &str = "c:";

/// How the documents of a turn are written. The first layout that fits a batch is used.
struct BatchLayout {
    /// Whether chunks, parts, bundles and outboxes are written before the commit.
    is_staged: bool,
    /// Work items with more bytes are split into parts.
    item_bytes_max: usize,
}

/// The layouts, in the order in which they are tried.
const LAYOUTS: [BatchLayout; 3] = [
    BatchLayout { is_staged: false, item_bytes_max: ITEM_BYTES_MAX },
    BatchLayout { is_staged: true, item_bytes_max: 16 * 1024 },
    BatchLayout { is_staged: true, item_bytes_max: 1024 },
];

/// The number of nonces of recent commits that a state keeps. A process that lost the answer
/// to its commit looks for its nonce in the state. If this many commits have followed by
/// then, the state no longer has the nonce, and the process treats its lock as lost although its
/// commit was applied.
const RECENT_NONCES_MAX: usize = 8;

/// What the runtime passes at the end of a turn, with the clock offset and the retention of
/// the provider.
pub(crate) struct TurnAck {
    /// The number of the execution that the turn belongs to.
    pub(crate) execution: u64,
    /// The new events of that execution.
    pub(crate) history_delta: Vec<Event>,
    /// Activities to schedule.
    pub(crate) worker_items: Vec<WorkItem>,
    /// Messages to this instance and to other instances.
    pub(crate) orchestrator_items: Vec<WorkItem>,
    pub(crate) metadata: ExecutionMetadata,
    /// Activities to cancel.
    pub(crate) cancelled: Vec<ScheduledActivityIdentifier>,
    /// How far the provider's clock is ahead of the runtime's, in milliseconds.
    /// Timers are set by the runtime's clock.
    pub(crate) clock_offset_ms: i64,
    pub(crate) retention: Retention,
}

/// The stored data that a turn is planned from, together with the ack.
pub(crate) struct Basis<'a> {
    pub(crate) state: &'a State,
    /// The document of the ack's execution, if that execution is not the current one and
    /// its document exists.
    pub(crate) past: Option<Versioned<PastExecution>>,
    /// The state's bundles that still exist.
    pub(crate) bundles: &'a [Versioned<Bundle>],
    /// Messages that were taken with the lock and must not be delivered twice.
    pub(crate) dedup_entries: &'a [DedupEntry],
    /// The time of the commit, and the first of [`TurnAck::stamps_max`] reserved stamps.
    pub(crate) now: Stamp,
    /// The nonce of the commit. An ack that plans its turn again keeps the nonce.
    pub(crate) nonce: &'a str,
    /// What the instance has cost since its last commit, as far as it is known.
    pub(crate) charge: Charge,
}

/// All writes of a commit. The commit is conditional on the etag of the state that it was
/// planned from.
#[derive(Debug, Default)]
pub(crate) struct TurnPlan {
    pub(crate) state: State,
    pub(crate) past: Option<PastWrite>,
    /// New chunks of history.
    pub(crate) chunks: Vec<Chunk>,
    /// Parts of texts that are too large for their documents.
    pub(crate) parts: Vec<Part>,
    /// Ids of the messages that the turn consumed and the commit deletes.
    pub(crate) consumed: Vec<String>,
    /// Ids of further completions that the turn consumed. They are deleted after the commit, and
    /// the new state lists them until then.
    pub(crate) undeleted: Vec<String>,
    /// New activities that are not in a bundle.
    pub(crate) activities: Vec<Activity>,
    /// New messages to the instance itself that are not in a bundle.
    pub(crate) messages: Vec<Message>,
    /// Tombstones of cancelled activities that are not in a bundle.
    pub(crate) cancelled: Vec<CancelledActivity>,
    pub(crate) bundles: Vec<Bundle>,
    /// Earlier bundles with activities that are now cancelled. The commit writes their
    /// `skip`.
    pub(crate) edited_bundles: Vec<Versioned<Bundle>>,
    /// New messages to other instances.
    pub(crate) outboxes: Vec<Outbox>,
    /// The record of the documents that nothing refers to after the commit.
    pub(crate) garbage: Option<Garbage>,
    /// If this is set, chunks, parts, bundles and outboxes are written before the commit,
    /// under this staging id.
    pub(crate) staging_id: Option<String>,
}

/// A write of an execution that is not the current one.
#[derive(Debug)]
pub(crate) struct PastWrite {
    pub(crate) document: PastExecution,
    /// The etag that the document must have; `None` if the document must not exist.
    pub(crate) etag: Option<Etag>,
}

impl Basis<'_> {
    /// A unique id of this plan, which is part of the ids of its parts and staged documents.
    /// A turn that is planned again has another stamp.
    fn plan_id(&self) -> String {
        format!("{}.{:x}", self.nonce, self.now.0)
    }
}

impl TurnAck {
    /// The most stamps that a plan needs: one for each work item, and one for the commit.
    pub(crate) fn stamps_max(&self) -> usize {
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
    with_first_fitting_layout(|layout| turn_in_layout(basis, ack, layout))
}

/// Plans a commit that appends the events of an ack to the history. A lock on the instance
/// stays, and no messages are consumed.
pub(crate) fn append(basis: &Basis<'_>, ack: &TurnAck) -> Result<TurnPlan, Failure> {
    with_first_fitting_layout(|layout| {
        let mut plan = begin_plan(basis, layout);
        history::append_events(&mut plan, basis, ack)?;
        Ok(plan)
    })
}

/// Plans with one layout after the other until a plan fits a batch. Fails if no plan fits.
fn with_first_fitting_layout(
    plan: impl Fn(&BatchLayout) -> Result<TurnPlan, Failure>,
) -> Result<TurnPlan, Failure> {
    for layout in &LAYOUTS {
        let plan = plan(layout)?;
        if plan.fits_batch() {
            return Ok(plan);
        }
    }
    Err(Failure::Refused(
        "the turn does not fit one commit: too many key-value pairs, or tens of thousands of \
         activities or messages at once. Spread them over several turns"
            .to_owned(),
    ))
}

/// A plan that writes the state with the number, nonce and time of the commit.
fn begin_plan(basis: &Basis<'_>, layout: &BatchLayout) -> TurnPlan {
    let mut plan = TurnPlan { state: basis.state.clone(), ..TurnPlan::default() };
    plan.staging_id = layout.is_staged.then(|| basis.plan_id());
    // The charge belongs to the turn before: to its commit and to all requests after that commit.
    plan.state.cost.add(basis.state.commit_number, basis.state.updated_at, basis.charge);
    plan.state.commit_number += 1;
    plan.state.commit_nonce = basis.nonce.to_owned();
    plan.state.recent_nonces.push(basis.nonce.to_owned());
    let surplus = plan.state.recent_nonces.len().saturating_sub(RECENT_NONCES_MAX);
    plan.state.recent_nonces.drain(..surplus);
    plan.state.updated_at = basis.now.ms();
    plan
}

fn turn_in_layout(basis: &Basis<'_>, ack: &TurnAck, layout: &BatchLayout) -> Result<TurnPlan, Failure> {
    let mut plan = begin_plan(basis, layout);
    set_identity(&mut plan.state, &ack.metadata, basis.now.ms());
    history::append_events(&mut plan, basis, ack)?;
    update_custom_status(&mut plan.state, &ack.history_delta);
    key_values::apply(&mut plan.state, &ack.history_delta);
    let status = ack.metadata.status.as_deref().map(ExecutionStatus::from);
    if status.as_ref().is_some_and(ExecutionStatus::is_terminal) {
        key_values::merge(&mut plan.state);
    }
    // The garbage record of the staging has the plan id. This record needs another id.
    let garbage_suffix = format!("{}-", basis.plan_id());
    let mut garbage = Garbage::blank(&plan.state.instance_id, &garbage_suffix, basis.now);
    release_lock(&mut plan, basis, &mut garbage);
    let mut spill = Spill::new(&plan.state.instance_id, &basis.plan_id(), layout.is_staged);
    spill.split_state_values(&mut plan.state);
    if let Some(past) = &mut plan.past {
        spill.split_output(&mut past.document.execution);
    }
    schedule::apply(&mut plan, basis, ack, layout, &mut spill, &mut garbage)?;
    plan.state.has_children |= ack.starts_child_of(&plan.state.instance_id);
    ack.retention.schedule_removal(&mut plan.state, basis.now.ms());
    plan.parts = spill.into_parts();
    garbage.parts.extend(unreferenced_parts(basis, &plan));
    plan.garbage = Some(garbage).filter(|garbage| !garbage.is_empty());
    Ok(plan)
}

/// The parts that nothing refers to after the commit: the current state or past execution refers to
/// them, and the planned documents do not.
fn unreferenced_parts(basis: &Basis<'_>, plan: &TurnPlan) -> Vec<PartsRef> {
    let past = basis.past.iter().filter_map(|past| past.value.execution.output.as_ref());
    let mut before: BTreeSet<&PartsRef> = basis.state.parts().chain(past.filter_map(Text::parts)).collect();
    let past = plan.past.iter().filter_map(|past| past.document.execution.output.as_ref());
    for kept in plan.state.parts().chain(past.filter_map(Text::parts)) {
        before.remove(kept);
    }
    before.into_iter().cloned().collect()
}

/// Sets the orchestration's name and version, if the turn reports both. The first commit that
/// sets them makes the instance visible to management operations, and sets its parent.
fn set_identity(state: &mut State, metadata: &ExecutionMetadata, now_ms: u64) {
    let (Some(name), Some(version)) = (&metadata.orchestration_name, &metadata.orchestration_version) else {
        return;
    };
    if !state.is_created {
        state.is_created = true;
        state.created_at = now_ms;
        state.parent_instance_id = metadata.parent_instance_id.clone();
    }
    state.name = Some(name.clone());
    state.version = Some(version.clone());
}

/// If the turn changed the custom status: applies the last change, which may remove the
/// status, and increments the version.
fn update_custom_status(state: &mut State, delta: &[Event]) {
    let last = delta.iter().rev().find_map(|event| match &event.kind {
        EventKind::CustomStatusUpdated { status } => Some(status.clone()),
        _ => None,
    });
    if let Some(status) = last {
        state.custom_status = status.map(Text::Inline);
        state.custom_status_version += 1;
    }
}

/// Removes the lock, and consumes the messages that were taken with it. Adds to the dedup record
/// those messages that must not be delivered twice. The parts of the messages become garbage. If
/// there are more messages than the commit can delete, the last completions are deleted later.
fn release_lock(plan: &mut TurnPlan, basis: &Basis<'_>, garbage: &mut Garbage) {
    if let Some(lock) = plan.state.lock.take() {
        let (completions, others): (Vec<String>, Vec<String>) =
            lock.attempts.into_keys().partition(|id| id.starts_with(COMPLETION_PREFIX));
        plan.consumed = others;
        plan.consumed.extend(completions);
        if plan.consumed.len() > CONSUMED_IN_COMMIT_MAX {
            plan.undeleted = plan.consumed.split_off(CONSUMED_IN_COMMIT_MAX);
            plan.state.undeleted.extend(plan.undeleted.iter().cloned());
        }
        garbage.parts = lock.parts;
    }
    plan.state.dedup_record.extend(basis.dedup_entries, basis.now.ms());
}
