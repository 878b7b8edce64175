//! Every document of the container, as serde types.
//!
//! The partition key is the instance id at `/instanceId`; no document id has
//! text of users in it, because ids are unique within a partition and users
//! write `/`, `#` and whole sentences. System documents (sessions, deletions)
//! live under numeric keys: instance ids are strings, so the two never meet.

use std::collections::BTreeMap;

use perihelion_client::Etag;
use serde::{Deserialize, Serialize};

use crate::clock::{SKEW_MAX, Stamp};
use crate::consumed::{Consumed, Once};
use crate::manifest::Manifest;
use crate::text::{Parts, Text, escaped};

/// The id of an instance's state document.
pub(crate) const STATE: &str = "i";

/// What `type` says.
pub(crate) mod kind {
    /// The state document and chunks of history: both have `eventData`.
    pub(crate) const HISTORY: &str = "history";
    /// The state document of a deleted instance.
    pub(crate) const DELETED: &str = "deleted";
    pub(crate) const EXECUTION: &str = "execution";
    pub(crate) const MESSAGE: &str = "orch_queue";
    pub(crate) const ACTIVITY: &str = "worker_queue";
    pub(crate) const CANCELLED: &str = "cancelled";
    pub(crate) const BUNDLE: &str = "bundle";
    pub(crate) const OUTBOX: &str = "outbox";
    /// A bundle or outbox before its commit.
    pub(crate) const STAGED: &str = "staged";
    /// A part of a text that is too large for where it belongs.
    pub(crate) const PART: &str = "part";
    pub(crate) const LITTER: &str = "litter";
    pub(crate) const SESSION: &str = "session";
    pub(crate) const DELETION: &str = "deletion";
    /// The heartbeat of a process.
    pub(crate) const NODE: &str = "node";
}

/// A document with its version.
#[derive(Debug, Clone)]
pub(crate) struct Versioned<T> {
    pub(crate) value: T,
    pub(crate) etag: Etag,
}

/// The state of an instance: what every commit replaces under its etag.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct State {
    pub(crate) id: String,
    pub(crate) instance_id: String,
    #[serde(rename = "type")]
    pub(crate) kind: String,
    /// Before every message in the one query that a fetch makes.
    pub(crate) enq: Stamp,
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
    pub(crate) seq: u64,
    /// Nonce of the last commit: finding mine here means it was applied.
    pub(crate) ack: String,
    /// Nonces of the last turns that were committed: an answer may be lost, and
    /// another process be there before it is asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) acks: Vec<String>,
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
    /// Some instance was started as its child.
    #[serde(skip_serializing_if = "is_false")]
    pub(crate) has_children: bool,
    /// Some activity of it has its input in parts, or had.
    #[serde(skip_serializing_if = "is_false")]
    pub(crate) is_spilt: bool,
    /// The deletion that this instance is part of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) del: Option<String>,
    /// Of a deleted instance: the messages and activities that are still to be
    /// removed, with everything else. `None` when that is done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) purge: Option<Vec<String>>,
    /// From when on the reconciler has something to do: a deleted instance is
    /// still to be purged, or one that has ended was kept long enough.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) made_at: Option<Stamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ttl: Option<u32>,
}

impl State {
    /// Of an instance that nobody has committed to.
    pub(crate) fn blank(instance: &str, incarnation: String) -> Self {
        State {
            id: STATE.to_owned(),
            instance_id: instance.to_owned(),
            kind: kind::HISTORY.to_owned(),
            incarnation,
            ..State::default()
        }
    }

    pub(crate) fn is_deleted(&self) -> bool {
        self.kind == kind::DELETED
    }

    /// What it refers to beside it.
    pub(crate) fn parts(&self) -> impl Iterator<Item = &Parts> {
        let values = self.kv.values().chain(self.kv_delta.values().flatten()).map(|value| &value.v);
        let texts = self.custom_status.iter().chain(&self.execution.output).chain(values);
        texts.filter_map(Text::parts)
    }
}

/// A parent, as it was when it started a child: one that was deleted and made
/// again is another, and what the child has to say is not for it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct StartedBy {
    pub(crate) instance: String,
    pub(crate) inc: String,
}

/// Who has an instance, until when.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Lock {
    pub(crate) n: String,
    /// Milliseconds since 1970.
    pub(crate) until: u64,
    /// The messages that came with it, and how often each was tried.
    pub(crate) att: BTreeMap<String, u32>,
    /// Parts of those messages that are large: they go with them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) parts: Vec<Parts>,
}

/// An execution: part of the state while it is current, then `e:{execution}`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Execution {
    pub(crate) execution: u64,
    pub(crate) status: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) output: Option<Text>,
    /// The version of duroxide it is pinned to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) pin: Option<String>,
    pub(crate) started_at: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) completed_at: Option<u64>,
    pub(crate) events: u64,
    pub(crate) event_bytes: u64,
    pub(crate) last_event: u64,
    /// Queue messages that its start carried over.
    pub(crate) carried: u64,
    /// Its chunks of history, in order.
    #[serde(skip_serializing_if = "Manifest::is_empty")]
    pub(crate) chunks: Manifest,
}

/// A value of the key-value store.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct KvValue {
    pub(crate) v: Text,
    /// When it was set, milliseconds since 1970.
    pub(crate) t: u64,
}

/// `e:{execution}`: an execution that is no longer current.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PastExecution {
    pub(crate) id: String,
    pub(crate) instance_id: String,
    #[serde(rename = "type")]
    pub(crate) kind: String,
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
    pub(crate) kind: String,
    /// The execution, by a name of its own: chunks are found by it.
    pub(crate) hx: u64,
    pub(crate) event_data: String,
    /// The staging it was part of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) mark: Option<String>,
}

/// Before every other message of an instance: the start of its next execution,
/// without which the runtime can do nothing with the others.
pub(crate) const FIRST: Stamp = Stamp(1);

/// A message to an instance.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Message {
    pub(crate) id: String,
    pub(crate) instance_id: String,
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) visible_at: Stamp,
    /// The order of an instance's messages.
    pub(crate) enq: Stamp,
    pub(crate) attempt_count: u32,
    /// The work item, as JSON in a string: what is unreadable in it harms no
    /// other message.
    pub(crate) item: Text,
    /// Must not be delivered twice, and nothing but its id can tell.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) once: bool,
    /// Of such a message: its sender repeats none below that number.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) low: u64,
    /// The incarnation it belongs to; another one drops it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) inc: Option<String>,
    /// Of a start: whose child it starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) start_parent: Option<String>,
    /// The incarnation of that parent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) parent_inc: Option<String>,
    /// The lock under which it was made, for a completion whose answer is lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) by: Option<String>,
}

impl Message {
    /// From when on it can have been seen, by whatever clock stamped it.
    pub(crate) fn seen_from(&self) -> Stamp {
        // The start of a next execution comes before all others, so its place
        // in the order tells nothing.
        if self.enq <= FIRST { self.visible_at.after(SKEW_MAX) } else { self.enq.max(self.visible_at) }
    }
}

fn is_false(value: &bool) -> bool {
    !*value
}

fn is_zero(value: &u64) -> bool {
    *value == 0
}

impl Message {
    /// Itself, if it must not be delivered twice.
    pub(crate) fn as_once(&self) -> Option<Once> {
        self.once.then(|| Once { id: self.id.clone(), low: self.low })
    }

    /// Bytes of its document, about.
    pub(crate) fn weight(&self) -> usize {
        let parent = self.start_parent.as_deref().map_or(0, escaped);
        MEMBERS_BYTES + self.item.weight() + escaped(&self.instance_id) + parent
    }
}

/// Names and small members of a message or an activity.
const MEMBERS_BYTES: usize = 360;

/// `a:{execution}:{event}`: an activity to run. It is locked while `lock` is
/// there and `visible_at` is to come.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Activity {
    pub(crate) id: String,
    pub(crate) instance_id: String,
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) visible_at: Stamp,
    pub(crate) enq: Stamp,
    pub(crate) attempt_count: u32,
    pub(crate) item: Text,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tag: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) session_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) lock: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) inc: Option<String>,
}

impl Activity {
    /// Bytes of its document, about.
    pub(crate) fn weight(&self) -> usize {
        let names = [&self.tag, &self.session_id].map(|name| name.as_deref().map_or(0, escaped));
        MEMBERS_BYTES + self.item.weight() + escaped(&self.instance_id) + names[0] + names[1]
    }
}

/// What is left of a cancelled activity: it takes the worker's lock away, and
/// goes by itself.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Cancelled {
    pub(crate) id: String,
    pub(crate) instance_id: String,
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) ttl: u32,
}

/// `w:{seq}:{n}`: many activities and messages of one turn, to be unpacked.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Bundle {
    pub(crate) id: String,
    pub(crate) instance_id: String,
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) made_at: Stamp,
    /// The same, where polls look.
    #[serde(default)]
    pub(crate) visible_at: Stamp,
    pub(crate) activities: Vec<Activity>,
    pub(crate) messages: Vec<Message>,
    /// Activities of earlier turns to cancel.
    #[serde(default)]
    pub(crate) cancelled: Vec<String>,
    /// Activities of this bundle that were cancelled before it is unpacked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) skip: Vec<String>,
    /// The staging it was part of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) mark: Option<String>,
}

impl Bundle {
    pub(crate) fn is_empty(&self) -> bool {
        self.activities.is_empty() && self.messages.is_empty() && self.cancelled.is_empty()
    }
}

/// `o:{seq}:{n}`: messages of one turn to other instances.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Outbox {
    pub(crate) id: String,
    pub(crate) instance_id: String,
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) made_at: Stamp,
    /// The same, where polls look.
    #[serde(default)]
    pub(crate) visible_at: Stamp,
    pub(crate) messages: Vec<Message>,
    /// The staging it was part of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) mark: Option<String>,
}

/// `b:...` and `k:...`: a part of a large text, of a message or activity, or of
/// a value in the state. Never changed.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Part {
    pub(crate) id: String,
    pub(crate) instance_id: String,
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) data: String,
    /// The staging it was part of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) mark: Option<String>,
    /// The activity whose input it is: cancelling knows nothing else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) of: Option<String>,
}

/// `g:{mark}`: documents of an instance that nobody refers to. Made in the
/// commit that drops them, it is due at once. Made before documents are staged,
/// it is due when that commit can no longer come, and the commit removes it:
/// it is there exactly as long as what it names is of no use.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Litter {
    pub(crate) id: String,
    pub(crate) instance_id: String,
    #[serde(rename = "type")]
    pub(crate) kind: String,
    /// When it is due.
    pub(crate) made_at: Stamp,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) parts: Vec<Parts>,
    /// Parts of the inputs of these activities.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) of: Vec<String>,
    /// Everything of that staging.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) staging: Option<String>,
    /// The history of that execution.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) history: Option<u64>,
    /// It is being collected: the commit it waited for can no longer come.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) is_closed: bool,
}

impl Litter {
    pub(crate) fn blank(instance: &str, mark: &str, due: Stamp) -> Self {
        Litter {
            id: format!("g:{mark}"),
            instance_id: instance.to_owned(),
            kind: kind::LITTER.to_owned(),
            made_at: due,
            ..Litter::default()
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.parts.is_empty() && self.of.is_empty() && self.staging.is_none() && self.history.is_none()
    }
}

/// `s:{hash}`: who has a session. Global, in a partition of its own.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Session {
    pub(crate) id: String,
    /// A number: see above.
    pub(crate) instance_id: u64,
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) session: String,
    pub(crate) owner: String,
    pub(crate) locked_until: u64,
    pub(crate) last_activity: u64,
}

/// `d:{operation}`: instances that are deleted together.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Deletion {
    pub(crate) id: String,
    pub(crate) instance_id: u64,
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) instances: Vec<String>,
    /// Starts of children that may still be on their way.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) late: Vec<Late>,
    pub(crate) stage: DeletionStage,
    pub(crate) made_at: Stamp,
}

/// A message that may still be on its way to an instance.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Late {
    pub(crate) instance: String,
    pub(crate) id: String,
}

/// How far a deletion is. It happens when it becomes `Committed`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum DeletionStage {
    Prepared,
    Committed,
    Aborted,
}
