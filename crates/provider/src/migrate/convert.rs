//! Converts an instance of the published crate to turns of this crate: one turn per
//! execution with its whole history. The last turn also schedules the queued activities.
//! `plan` converts these turns to documents, so nothing here depends on the layout of the
//! state and the history.
//!
//! The new id of a message derives from its old id. A message may be written twice, by two runs or
//! because the old container has it twice. Then the second write finds that the message exists, and
//! skips it.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use duroxide::providers::{ExecutionMetadata, WorkItem};
use duroxide::{Event, EventKind};
use semver::Version;

use super::MigrationReport;
use super::published::{InstanceDocument, KeyValue, OutboxIntent, Partition, QueuedItem};
use crate::documents::Message;
use crate::documents::stamp::Stamp;
use crate::failure::Failure;
use crate::plan::{TurnAck, message_document};

/// A converted instance.
pub(super) struct ConvertedInstance {
    pub(super) instance: String,
    /// Messages to the instance, and its messages to other instances.
    pub(super) messages: Vec<Message>,
    /// Activities that no turn schedules: activities from outbox intents, and all activities of
    /// an instance without a history.
    pub(super) activities_without_turn: Vec<WorkItem>,
    /// One turn for each execution, in order.
    pub(super) turns: Vec<ConvertedTurn>,
    pub(super) instance_document: Option<InstanceDocument>,
    /// Key-value pairs of earlier executions.
    pub(super) values: BTreeMap<String, KeyValue>,
}

/// A whole execution as one turn. Times are milliseconds since 1970.
pub(super) struct ConvertedTurn {
    pub(super) ack: TurnAck,
    pub(super) started_at: u64,
    pub(super) completed_at: Option<u64>,
}

impl ConvertedInstance {
    /// The counts for the report.
    pub(super) fn counts(&self) -> MigrationReport {
        let acks = || self.turns.iter().map(|turn| &turn.ack);
        MigrationReport {
            instances: 1,
            events: acks().map(|ack| ack.history_delta.len()).sum(),
            messages: self.messages.len(),
            activities: self.activities_without_turn.len()
                + acks().map(|ack| ack.worker_items.len()).sum::<usize>(),
            ..MigrationReport::default()
        }
    }
}

/// Converts the documents of one instance. `now_ms` tells which delays have passed.
pub(super) fn convert(partition: Partition, now_ms: u64) -> Result<ConvertedInstance, Failure> {
    let Partition { instance, instance_document, executions, messages, activities, outbox_intents, values } =
        partition;
    let last_execution = executions.keys().next_back().copied();
    let mut turns: Vec<ConvertedTurn> = executions
        .into_iter()
        .map(|(execution, events)| {
            let events: Vec<Event> = events.into_values().collect();
            let document = instance_document.as_ref().filter(|_| last_execution == Some(execution));
            convert_execution(execution, events, document)
        })
        .collect();
    let mut converted_messages: Vec<Message> =
        messages.iter().map(|queued| as_message(queued, now_ms)).collect::<Result<_, _>>()?;
    let (to_workers, to_instances): (Vec<OutboxIntent>, Vec<OutboxIntent>) =
        outbox_intents.into_iter().partition(|intent| intent.is_activity);
    for intent in &to_instances {
        converted_messages.push(as_message(&intent.queued, now_ms)?);
    }
    let mut activities_without_turn: Vec<WorkItem> =
        to_workers.into_iter().map(|intent| intent.queued.item).collect();
    let queued_activities = without_duplicates(activities);
    match turns.last_mut() {
        Some(turn) => turn.ack.worker_items = queued_activities,
        None => activities_without_turn.extend(queued_activities),
    }
    // When the published crate fetches messages of an instance that has not started, it
    // creates an instance document without a name. Such a document is not migrated.
    let instance_document =
        instance_document.filter(|document| !document.orchestration_name.is_empty() || !turns.is_empty());
    Ok(ConvertedInstance {
        instance,
        messages: converted_messages,
        activities_without_turn,
        turns,
        instance_document,
        values,
    })
}

/// Converts a whole execution to one turn. `instance_document` is given for the last execution
/// only. If the document has a name, version, parent or pinned version, that value replaces
/// the value from the history. If the history has no end and the document says that the
/// instance has completed or failed, the turn gets the document's status and output.
fn convert_execution(
    execution: u64,
    events: Vec<Event>,
    instance_document: Option<&InstanceDocument>,
) -> ConvertedTurn {
    let mut metadata = metadata_from(&events);
    if let Some(document) = instance_document {
        let non_empty = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        metadata.orchestration_name = non_empty(&document.orchestration_name).or(metadata.orchestration_name);
        metadata.orchestration_version =
            non_empty(&document.orchestration_version).or(metadata.orchestration_version);
        metadata.parent_instance_id = document.parent_instance_id.clone().or(metadata.parent_instance_id);
        metadata.pinned_duroxide_version =
            document.pinned_duroxide_version_packed.map(unpack_version).or(metadata.pinned_duroxide_version);
        // The instance document keeps "ContinuedAsNew" while the next execution runs.
        if metadata.status.is_none() && matches!(document.status.as_str(), "Completed" | "Failed") {
            metadata.status = Some(document.status.clone());
            metadata.output.clone_from(&document.output);
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
        // Only new timers need the offset, and a migrated turn sets no timers.
        clock_offset_ms: 0,
        // The programs that use the new container apply their own retention.
        retention: Default::default(),
    };
    ConvertedTurn { ack, started_at, completed_at }
}

/// The metadata of an execution, derived from its history in the way the runtime derives it.
fn metadata_from(events: &[Event]) -> ExecutionMetadata {
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

/// Unpacks a version that the published crate has packed into one number: major * 1,000,000 +
/// minor * 1,000 + patch.
fn unpack_version(packed: u64) -> Version {
    Version::new(packed / 1_000_000, packed % 1_000_000 / 1_000, packed % 1_000)
}

/// A queued message as a document of this crate.
fn as_message(queued: &QueuedItem, now_ms: u64) -> Result<Message, Failure> {
    let delay = match queued.item {
        // The due time of a timer is in its work item.
        WorkItem::TimerFired { .. } => None,
        // A delay that has passed is dropped: it would change the order of the messages.
        _ if queued.visible_at > now_ms => Some(queued.visible_at.saturating_sub(queued.enqueued_at)),
        _ => None,
    };
    let delay = delay.map(Duration::from_millis);
    let id = format!("m:{}:0", queued.id);
    let mut message = message_document(&queued.item, id, Stamp::at_ms(queued.enqueued_at), delay)?;
    message.attempt_count = queued.attempt_count;
    Ok(message)
}

/// The work items of the activities, without duplicates. In the old container the ids of
/// activity documents are random, so two documents may have the same activity.
fn without_duplicates(activities: Vec<QueuedItem>) -> Vec<WorkItem> {
    let mut seen = HashSet::new();
    let is_new = |item: &WorkItem| match item {
        WorkItem::ActivityExecute { execution_id, id, .. } => seen.insert((*execution_id, *id)),
        _ => true,
    };
    activities.into_iter().map(|queued| queued.item).filter(is_new).collect()
}
