//! An instance: its state, which every commit replaces, and its history beside it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{DocumentType, ExecutionStatus, STATE, is_false};
use crate::documents::dedup::Consumed;
use crate::documents::manifest::Manifest;
use crate::documents::stamp::Stamp;
use crate::documents::text::{Parts, Text};

/// The state of an instance: what every commit replaces under its etag.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct State {
    pub(crate) id: String,
    pub(crate) instance_id: String,
    #[serde(rename = "type")]
    pub(crate) document_type: DocumentType,
    /// Before every message in the one query that a fetch makes.
    #[serde(rename = "enq")]
    pub(crate) enqueued_at: Stamp,
    /// Whether the instance exists, to whoever manages instances. A turn
    /// without a name leaves it so.
    pub(crate) created: bool,
    pub(crate) incarnation: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) parent_instance_id: Option<String>,
    /// Who started it as a child.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) started_by: Option<StartedBy>,
    pub(crate) created_at: u64,
    pub(crate) updated_at: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) custom_status: Option<Text>,
    pub(crate) custom_status_version: u64,
    /// Counts commits; part of every id that a commit makes.
    #[serde(rename = "seq")]
    pub(crate) commit_number: u64,
    /// Nonce of the last commit: finding mine here means it was applied.
    #[serde(rename = "ack")]
    pub(crate) commit_nonce: String,
    /// Nonces of the last turns that were committed: an answer may be lost, and
    /// another process be there before it is asked for.
    #[serde(rename = "acks", skip_serializing_if = "Vec::is_empty")]
    pub(crate) recent_nonces: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) lock: Option<Lock>,
    /// The current execution; its number is 0 before the first commit.
    #[serde(flatten)]
    pub(crate) execution: Execution,
    /// Events of the current execution that are in no chunk, a line each.
    pub(crate) event_data: String,
    /// Values of earlier executions.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) kv: BTreeMap<String, KvValue>,
    /// What the current execution changed; `None` is a removal.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) kv_delta: BTreeMap<String, Option<KvValue>>,
    /// Messages that must not be delivered again.
    #[serde(skip_serializing_if = "Consumed::is_empty")]
    pub(crate) consumed: Consumed,
    /// Bundles that may not be unpacked yet.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) bundles: Vec<String>,
    /// The start of its next execution waits: it has not ended, whatever the
    /// status of the current one is.
    #[serde(skip_serializing_if = "is_false")]
    pub(crate) is_continued: bool,
    /// Some instance was started as its child.
    #[serde(skip_serializing_if = "is_false")]
    pub(crate) has_children: bool,
    /// Some activity of it has its input in parts, or had.
    #[serde(skip_serializing_if = "is_false")]
    pub(crate) is_spilt: bool,
    /// The deletion that this instance is part of.
    #[serde(rename = "del", skip_serializing_if = "Option::is_none")]
    pub(crate) deletion: Option<String>,
    /// Of a deleted instance: the messages and activities that are still to be
    /// removed, with everything else. `None` when that is done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) purge: Option<Vec<String>>,
    /// From when on the reconciler has something to do: a deleted instance is
    /// still to be purged, or one that has ended was kept long enough.
    #[serde(rename = "madeAt", skip_serializing_if = "Option::is_none")]
    pub(crate) repair_at: Option<Stamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ttl: Option<u32>,
}

impl State {
    /// Of an instance that nobody has committed to.
    pub(crate) fn blank(instance: &str, incarnation: String) -> Self {
        State {
            id: STATE.to_owned(),
            instance_id: instance.to_owned(),
            document_type: DocumentType::History,
            incarnation,
            ..State::default()
        }
    }

    pub(crate) fn is_deleted(&self) -> bool {
        self.document_type == DocumentType::Deleted
    }

    /// What it refers to beside it.
    pub(crate) fn parts(&self) -> impl Iterator<Item = &Parts> {
        let values = self.kv.values().chain(self.kv_delta.values().flatten()).map(|value| &value.value);
        let texts = self.custom_status.iter().chain(&self.execution.output).chain(values);
        texts.filter_map(Text::parts)
    }
}

/// A parent, as it was when it started a child: one that was deleted and made
/// again is another, and what the child has to say is not for it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct StartedBy {
    pub(crate) instance: String,
    #[serde(rename = "inc")]
    pub(crate) incarnation: String,
}

/// Who has an instance, until when.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Lock {
    #[serde(rename = "n")]
    pub(crate) nonce: String,
    /// Milliseconds since 1970.
    pub(crate) until: u64,
    /// The messages that came with it, and how often each was tried.
    #[serde(rename = "att")]
    pub(crate) attempts: BTreeMap<String, u32>,
    /// Parts of those messages that are large: they go with them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) parts: Vec<Parts>,
}

/// An execution: part of the state while it is current, then `e:{execution}`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Execution {
    #[serde(rename = "execution")]
    pub(crate) number: u64,
    pub(crate) status: ExecutionStatus,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) output: Option<Text>,
    /// The version of duroxide it is pinned to.
    #[serde(rename = "pin", skip_serializing_if = "Option::is_none")]
    pub(crate) pinned_version: Option<String>,
    pub(crate) started_at: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) completed_at: Option<u64>,
    pub(crate) events: u64,
    pub(crate) event_bytes: u64,
    pub(crate) last_event: u64,
    /// Queue messages that its start carried over.
    #[serde(rename = "carried")]
    pub(crate) carried_messages: u64,
    /// Its chunks of history, in order.
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
}

/// `h:{execution}:{n}`: a part of a history. Never changed.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Chunk {
    pub(crate) id: String,
    pub(crate) instance_id: String,
    #[serde(rename = "type")]
    pub(crate) document_type: DocumentType,
    /// The execution, by a name of its own: chunks are found by it.
    #[serde(rename = "hx")]
    pub(crate) execution: u64,
    pub(crate) event_data: String,
    /// The staging it was part of.
    #[serde(rename = "mark", default, skip_serializing_if = "Option::is_none")]
    pub(crate) staging: Option<String>,
}
