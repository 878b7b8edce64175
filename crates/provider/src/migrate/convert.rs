//! Converts an instance of the published crate to turns of this crate: one turn per
//! execution with its whole history; the last turn also has the queued activities. The
//! planner does the rest, so nothing here depends on the layout of our documents.
//!
//! The ids of messages derive from the old ids. So a message that is written again, by a
//! second run or because the old container has it twice, exists already and is skipped.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use duroxide::providers::{ExecutionMetadata, WorkItem};
use duroxide::{Event, EventKind};
use semver::Version;

use super::MigrationReport;
use super::published::{Head, Intent, KeyValue, Partition, Queued};
use crate::documents::Message;
use crate::documents::stamp::Stamp;
use crate::failure::Failure;
use crate::plan::{TurnAck, message_document};

/// A converted instance.
pub(super) struct Moved {
    pub(super) instance: String,
    /// Messages to the instance, and its messages to other instances.
    pub(super) messages: Vec<Message>,
    /// Activities of an instance without a history: there is no turn to schedule them.
    pub(super) loose: Vec<WorkItem>,
    /// In order of their executions.
    pub(super) turns: Vec<MovedTurn>,
    /// Values that only the instance document has.
    pub(super) head: Option<Head>,
    pub(super) values: BTreeMap<String, KeyValue>,
}

/// An execution as one turn.
pub(super) struct MovedTurn {
    pub(super) ack: TurnAck,
    pub(super) started_at: u64,
    pub(super) completed_at: Option<u64>,
}

impl Moved {
    /// The counts for the report.
    pub(super) fn counts(&self) -> MigrationReport {
        let acks = || self.turns.iter().map(|turn| &turn.ack);
        MigrationReport {
            instances: 1,
            events: acks().map(|ack| ack.history_delta.len()).sum(),
            messages: self.messages.len(),
            activities: self.loose.len() + acks().map(|ack| ack.worker_items.len()).sum::<usize>(),
            ..MigrationReport::default()
        }
    }
}

pub(super) fn convert(partition: Partition, now_ms: u64) -> Result<Moved, Failure> {
    let Partition { instance, head, executions, messages, activities, intents, values } = partition;
    let last = executions.keys().next_back().copied();
    let mut turns: Vec<MovedTurn> = executions
        .into_iter()
        .map(|(execution, events)| {
            let events: Vec<Event> = events.into_values().collect();
            turn(execution, events, head.as_ref().filter(|_| last == Some(execution)))
        })
        .collect();
    let mut moved: Vec<Message> =
        messages.iter().map(|queued| as_message(queued, now_ms)).collect::<Result<_, _>>()?;
    let (to_workers, to_instances): (Vec<Intent>, Vec<Intent>) =
        intents.into_iter().partition(|intent| intent.is_activity);
    for intent in &to_instances {
        moved.push(as_message(&intent.queued, now_ms)?);
    }
    let mut loose: Vec<WorkItem> = to_workers.into_iter().map(|intent| intent.queued.item).collect();
    let waiting = distinct(activities);
    match turns.last_mut() {
        Some(turn) => turn.ack.worker_items = waiting,
        None => loose.extend(waiting),
    }
    // The published crate also creates an instance document, without a name, when it
    // fetches messages of an instance that has not started. It is not migrated.
    let head = head.filter(|head| !head.orchestration_name.is_empty() || !turns.is_empty());
    Ok(Moved { instance, messages: moved, loose, turns, head, values })
}

/// The turn of a whole execution. Values of the instance document are used where the
/// history has none.
fn turn(execution: u64, events: Vec<Event>, head: Option<&Head>) -> MovedTurn {
    let mut metadata = told_by(&events);
    if let Some(head) = head {
        let named = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        metadata.orchestration_name = named(&head.orchestration_name).or(metadata.orchestration_name);
        metadata.orchestration_version =
            named(&head.orchestration_version).or(metadata.orchestration_version);
        metadata.parent_instance_id = head.parent_instance_id.clone().or(metadata.parent_instance_id);
        metadata.pinned_duroxide_version =
            head.pinned_duroxide_version_packed.map(unpacked).or(metadata.pinned_duroxide_version);
        // The instance document keeps "ContinuedAsNew" while the next execution runs.
        if metadata.status.is_none() && matches!(head.status.as_str(), "Completed" | "Failed") {
            metadata.status = Some(head.status.clone());
            metadata.output.clone_from(&head.output);
        }
    }
    let started_at = events.first().map_or(0, |event| event.timestamp_ms);
    let ended_at = events.last().map(|event| event.timestamp_ms);
    let completed_at = ended_at.filter(|_| metadata.status.is_some());
    let ack = TurnAck {
        execution,
        history_delta: events,
        worker_items: Vec::new(),
        orchestrator_items: Vec::new(),
        metadata,
        cancelled: Vec::new(),
        // Only new timers need the offset, and a migrated turn has none.
        clock_offset_ms: 0,
        // The programs that use the new container apply their own retention.
        retention: Default::default(),
    };
    MovedTurn { ack, started_at, completed_at }
}

/// The metadata of an execution, derived from its history as the runtime does.
fn told_by(events: &[Event]) -> ExecutionMetadata {
    let mut metadata = ExecutionMetadata::default();
    for event in events {
        match &event.kind {
            EventKind::OrchestrationStarted { name, version, parent_instance, .. } => {
                metadata.orchestration_name = Some(name.clone());
                metadata.orchestration_version = Some(version.clone());
                metadata.parent_instance_id.clone_from(parent_instance);
                metadata.pinned_duroxide_version = Version::parse(&event.duroxide_version).ok();
            }
            EventKind::OrchestrationCompleted { output } => {
                metadata.status = Some("Completed".to_owned());
                metadata.output = Some(output.clone());
            }
            EventKind::OrchestrationFailed { details } => {
                metadata.status = Some("Failed".to_owned());
                metadata.output = Some(details.display_message());
            }
            EventKind::OrchestrationContinuedAsNew { input } => {
                metadata.status = Some("ContinuedAsNew".to_owned());
                metadata.output = Some(input.clone());
            }
            _ => {}
        }
    }
    metadata
}

fn unpacked(packed: u64) -> Version {
    Version::new(packed / 1_000_000, packed % 1_000_000 / 1_000, packed % 1_000)
}

fn as_message(queued: &Queued, now_ms: u64) -> Result<Message, Failure> {
    let delay = match queued.item {
        // The due time of a timer is in its work item.
        WorkItem::TimerFired { .. } => None,
        // Only a delay that is not over is kept: another would change the order.
        _ if queued.visible_at > now_ms => Some(queued.visible_at.saturating_sub(queued.enqueued_at)),
        _ => None,
    };
    let delay = delay.map(Duration::from_millis);
    let id = format!("m:{}:0", queued.id);
    let mut message = message_document(&queued.item, id, Stamp::at_ms(queued.enqueued_at), delay)?;
    message.attempt_count = queued.attempt_count;
    Ok(message)
}

/// The activities without duplicates: in the old container ids are random, so an activity
/// may occur twice.
fn distinct(activities: Vec<Queued>) -> Vec<WorkItem> {
    let mut seen = HashSet::new();
    let is_new = |item: &WorkItem| match item {
        WorkItem::ActivityExecute { execution_id, id, .. } => seen.insert((*execution_id, *id)),
        _ => true,
    };
    activities.into_iter().map(|queued| queued.item).filter(is_new).collect()
}
