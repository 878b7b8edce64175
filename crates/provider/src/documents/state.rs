//! Documents of an instance: its state, its past executions and the chunks of its
//! history.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{
    DocumentType, ExecutionStatus, InstanceCost, STATE_ID, TurnCharge, UnknownMembers, is_false, stored_turns,
};
use crate::documents::dedup::DedupRecord;
use crate::documents::manifest::Manifest;
use crate::documents::stamp::Stamp;
use crate::documents::text::{PartsRef, Text};

/// `i`: the state of an instance. Every commit replaces it under its etag, or creates it if
/// it does not exist. Times are milliseconds since 1970 unless they are stamps.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct State {
    pub(crate) id: String,
    pub(crate) instance_id: String,
    #[serde(rename = "type")]
    pub(crate) document_type: DocumentType,
    /// Zero, so that a fetch's query returns the state before the messages.
    #[serde(rename = "enq")]
    pub(crate) enqueued_at: Stamp,
    /// Whether management operations see the instance. The first turn that reports the
    /// orchestration's name and version sets this.
    #[serde(rename = "created")]
    pub(crate) is_created: bool,
    pub(crate) incarnation: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) parent_instance_id: Option<String>,
    /// The parent that started the instance as a child.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) started_by: Option<StartedBy>,
    pub(crate) created_at: u64,
    pub(crate) updated_at: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) custom_status: Option<Text>,
    pub(crate) custom_status_version: u64,
    /// The number of commits. It is part of the ids of messages, bundles and outboxes that
    /// a commit creates. The tombstone of a deleted instance keeps it, so that an instance
    /// that is created again does not reuse these ids.
    #[serde(rename = "seq")]
    pub(crate) commit_number: u64,
    /// The nonce of the last commit, or of another write that replaced the state, such as a
    /// deletion. A process that lost the answer finds its own nonce here when its write was
    /// applied.
    #[serde(rename = "ack")]
    pub(crate) commit_nonce: String,
    /// Nonces of the last few commits. Other processes may have committed further turns
    /// before a process that lost an answer reads the state.
    #[serde(rename = "acks", skip_serializing_if = "Vec::is_empty")]
    pub(crate) recent_nonces: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) lock: Option<Lock>,
    /// The current execution. Its number is 0 before the first commit.
    #[serde(flatten)]
    pub(crate) execution: Execution,
    /// The events of the current execution that are not in a chunk, one per line.
    pub(crate) event_data: String,
    /// Key-value pairs as the ended executions left them.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) kv: BTreeMap<String, KvValue>,
    /// Key-value pairs that the current execution changed; `None` is a removal.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) kv_delta: BTreeMap<String, Option<KvValue>>,
    /// Consumed messages that must not be delivered again.
    #[serde(rename = "consumed", skip_serializing_if = "DedupRecord::is_empty")]
    pub(crate) dedup_record: DedupRecord,
    /// Ids of bundles that are perhaps not unpacked yet.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) bundles: Vec<String>,
    /// Ids of completions that were consumed and are perhaps not deleted yet. They must not be
    /// delivered again. See `ops::orchestration::leftovers`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) undeleted: Vec<String>,
    /// The start of the next execution is queued. So the instance has not ended, whatever
    /// the status of the current execution is.
    #[serde(skip_serializing_if = "is_false")]
    pub(crate) is_continued: bool,
    /// What the instance has cost.
    #[serde(skip_serializing_if = "InstanceCost::is_empty")]
    pub(crate) cost: InstanceCost,
    /// The instance has started at least one child.
    #[serde(skip_serializing_if = "is_false")]
    pub(crate) has_children: bool,
    /// At least one activity has, or had, its input in parts.
    #[serde(rename = "isSpilt", skip_serializing_if = "is_false")]
    pub(crate) has_spilled_activities: bool,
    /// The id of the deletion that this instance is part of. No turn can commit while it is
    /// set.
    #[serde(rename = "del", skip_serializing_if = "Option::is_none")]
    pub(crate) deletion: Option<String>,
    /// If the instance is deleted: ids of messages and activities that the purge removes, in
    /// addition to the instance's other documents. `None` when the purge is done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) purge: Option<Vec<String>>,
    /// The time from which the reconciler handles the instance: a deleted instance is
    /// purged, an ended instance is removed after its retention.
    #[serde(rename = "madeAt", skip_serializing_if = "Option::is_none")]
    pub(crate) repair_at: Option<Stamp>,
    /// The time to live in seconds; `None` if the state does not expire.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ttl: Option<u32>,
    #[serde(flatten)]
    pub(crate) unknown: UnknownMembers,
}

impl State {
    /// The state of an instance before its first commit.
    pub(crate) fn blank(instance: &str, incarnation: String) -> Self {
        State {
            id: STATE_ID.to_owned(),
            instance_id: instance.to_owned(),
            document_type: DocumentType::History,
            incarnation,
            ..State::default()
        }
    }

    pub(crate) fn is_deleted(&self) -> bool {
        self.document_type == DocumentType::Deleted
    }

    /// References to the large values of the state that are stored in parts.
    pub(crate) fn parts(&self) -> impl Iterator<Item = &PartsRef> {
        let values = self.kv.values().chain(self.kv_delta.values().flatten()).map(|value| &value.value);
        let texts = self.custom_status.iter().chain(&self.execution.output).chain(values);
        texts.filter_map(Text::parts)
    }
}

/// The parent of a child, and the parent's incarnation that started the child. A parent that
/// was deleted and created again is another incarnation and does not get the child's result.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct StartedBy {
    pub(crate) instance: String,
    #[serde(rename = "inc")]
    pub(crate) incarnation: String,
}

/// The lock on an instance: one process runs a turn with the messages in `attempts`. In the
/// commit tiers `Optimistic` and `Cached` many locks are in memory only.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Lock {
    #[serde(rename = "n")]
    pub(crate) nonce: String,
    /// Milliseconds since 1970.
    pub(crate) until: u64,
    /// The number of attempts of each message that was taken with the lock, by message id.
    #[serde(rename = "att")]
    pub(crate) attempts: BTreeMap<String, u32>,
    /// The parts of these messages, which are removed together with the messages.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) parts: Vec<PartsRef>,
}

/// An execution: in the state while it is current, then a document of its own,
/// `e:{execution}`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Execution {
    #[serde(rename = "execution")]
    pub(crate) number: u64,
    pub(crate) status: ExecutionStatus,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) output: Option<Text>,
    /// The duroxide version that the execution is pinned to.
    #[serde(rename = "pin", skip_serializing_if = "Option::is_none")]
    pub(crate) pinned_version: Option<String>,
    pub(crate) started_at: u64,
    /// When the execution ended, also by continuing as new; `None` while it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) completed_at: Option<u64>,
    #[serde(rename = "events")]
    pub(crate) event_count: u64,
    /// Bytes of all events as JSON.
    pub(crate) event_bytes: u64,
    #[serde(rename = "lastEvent")]
    pub(crate) last_event_id: u64,
    /// The number of queue messages that the previous execution did not consume. The start of
    /// this execution carried them over.
    #[serde(rename = "carried")]
    pub(crate) carried_messages: u64,
    /// The chunks of its history, in order.
    #[serde(skip_serializing_if = "Manifest::is_empty")]
    pub(crate) chunks: Manifest,
}

/// A value of the key-value store.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct KvValue {
    #[serde(rename = "v")]
    pub(crate) value: Text,
    /// When it was set, milliseconds since 1970.
    #[serde(rename = "t")]
    pub(crate) set_at_ms: u64,
}

/// `e:{execution}`: an execution that is no longer current.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PastExecution {
    pub(crate) id: String,
    pub(crate) instance_id: String,
    #[serde(rename = "type")]
    pub(crate) document_type: DocumentType,
    #[serde(flatten)]
    pub(crate) execution: Execution,
    #[serde(flatten)]
    pub(crate) unknown: UnknownMembers,
}

/// `h:{execution}:{n}`, or `h:{execution}:{n}:{staging id}` if it was staged: a chunk of a
/// history. It never changes.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Chunk {
    pub(crate) id: String,
    pub(crate) instance_id: String,
    #[serde(rename = "type")]
    pub(crate) document_type: DocumentType,
    /// The number of the execution. Only chunks have a member with this stored name, so
    /// queries find chunks by it.
    #[serde(rename = "hx")]
    pub(crate) execution: u64,
    /// A piece of the history, which has one event per line. A piece may end within an event.
    pub(crate) event_data: String,
    /// The charges of the turns whose events moved from the state document to this chunk and the
    /// chunks after it.
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "stored_turns")]
    pub(crate) turns: Vec<TurnCharge>,
    /// The id of the staging under which it was written.
    #[serde(rename = "mark", default, skip_serializing_if = "Option::is_none")]
    pub(crate) staging_id: Option<String>,
}
