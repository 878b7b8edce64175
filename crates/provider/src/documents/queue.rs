//! Documents of the two queues: messages and activities. Each is a document of its
//! own, or one of many in a bundle or an outbox.

use serde::{Deserialize, Serialize};

use super::{Charge, DocumentType, UnknownMembers, is_false, is_zero};
use crate::documents::dedup::DedupEntry;
use crate::documents::stamp::Stamp;
use crate::documents::text::{Text, json_bytes};
use crate::timing::SKEW_MAX;

/// The enqueue time of the message that starts the next execution: before every other
/// message of the instance, because the runtime needs the start first.
pub(crate) const ENQUEUED_FIRST: Stamp = Stamp(1);

/// A message to an instance. The id begins with `m:` if a process enqueued the message, with `x:`
/// if a commit of another instance sent it, with `n:` if a commit of the instance itself sent it,
/// and with `c:` if it is the completion of an activity.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Message {
    pub(crate) id: String,
    pub(crate) instance_id: String,
    #[serde(rename = "type")]
    pub(crate) document_type: DocumentType,
    /// The time from which the message can be fetched.
    pub(crate) visible_at: Stamp,
    /// The messages of an instance are delivered in the order of this stamp. A message with
    /// a delay, or of a timer, has its due time here.
    #[serde(rename = "enq")]
    pub(crate) enqueued_at: Stamp,
    /// The number of attempts up to the last abandoned attempt. Later attempts are counted in the
    /// lock.
    pub(crate) attempt_count: u32,
    /// The work item as JSON text, so that an item that cannot be read does not make
    /// other messages of the same query unreadable.
    pub(crate) item: Text,
    /// Whether the message must not be delivered twice. A duplicate is recognised by
    /// its id alone.
    #[serde(rename = "once", default, skip_serializing_if = "is_false")]
    pub(crate) needs_dedup: bool,
    /// With `needs_dedup`: the sender will not send lower numbers again. Zero if the sender
    /// is an instance.
    #[serde(rename = "low", default, skip_serializing_if = "is_zero")]
    pub(crate) low_water_mark: u64,
    /// The incarnation of the instance that the message is for. Another incarnation
    /// drops the message. `None` is for any incarnation.
    #[serde(rename = "inc", default, skip_serializing_if = "Option::is_none")]
    pub(crate) incarnation: Option<String>,
    /// The parent instance, if the message is the start of a child.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) start_parent: Option<String>,
    /// The incarnation of the parent, if the message is the start of a child.
    #[serde(rename = "parentInc", default, skip_serializing_if = "Option::is_none")]
    pub(crate) parent_incarnation: Option<String>,
    /// Whether the owner of the slice takes the message at once, because the process that created
    /// the message leaves the turn to the owner. That process takes no turns, or it only helps
    /// with the activities of the slice, or it has no hint because the message is a timer beyond
    /// `timing::TIMER_HORIZON`.
    #[serde(rename = "free", default, skip_serializing_if = "is_false")]
    pub(crate) is_left_to_owner: bool,
    /// The nonce of the activity's lock, if the message is a completion. If the answer to the
    /// write was lost, the nonce shows that the completion was written.
    #[serde(rename = "by", default, skip_serializing_if = "Option::is_none")]
    pub(crate) lock_nonce: Option<String>,
    /// What the process that ran the activity has spent on the instance, if another process
    /// takes the next turn. The commit that consumes the message adds it to the instance's cost.
    #[serde(default, skip_serializing_if = "Charge::is_zero")]
    pub(crate) cost: Charge,
    #[serde(flatten)]
    pub(crate) unknown: UnknownMembers,
}

impl Message {
    /// The earliest time at which a process can have seen the message.
    pub(crate) fn earliest_seen_at(&self) -> Stamp {
        // The enqueue time of the start of the next execution is not a real time. Its
        // `visible_at` was set `SKEW_MAX` before the time of the commit.
        if self.enqueued_at <= ENQUEUED_FIRST {
            self.visible_at.plus(SKEW_MAX)
        } else {
            self.enqueued_at.max(self.visible_at)
        }
    }

    /// The entry of the message in the dedup record; `None` if it may be delivered twice.
    pub(crate) fn dedup_entry(&self) -> Option<DedupEntry> {
        self.needs_dedup.then(|| DedupEntry { id: self.id.clone(), low_water_mark: self.low_water_mark })
    }

    /// The approximate size of the document in bytes.
    pub(crate) fn stored_bytes(&self) -> usize {
        let parent = self.start_parent.as_deref().map_or(0, json_bytes);
        MEMBERS_BYTES + self.item.stored_bytes() + json_bytes(&self.instance_id) + parent
    }
}

/// Bytes of the member names and small members of a message or an activity.
const MEMBERS_BYTES: usize = 360;

/// `a:{execution}:{event}`: an activity to run. It is locked while it has a
/// `lock_nonce` and its `visible_at` is in the future. An activity that a caller enqueues
/// under an id that exists gets the suffix `:{nonce}`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Activity {
    pub(crate) id: String,
    pub(crate) instance_id: String,
    #[serde(rename = "type")]
    pub(crate) document_type: DocumentType,
    pub(crate) visible_at: Stamp,
    #[serde(rename = "enq")]
    pub(crate) enqueued_at: Stamp,
    pub(crate) attempt_count: u32,
    pub(crate) item: Text,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tag: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) session_id: Option<String>,
    /// The nonce of the lock. It stays when the lock expires; an abandoned activity has none.
    #[serde(rename = "lock", default, skip_serializing_if = "Option::is_none")]
    pub(crate) lock_nonce: Option<String>,
    /// The incarnation of the instance; `None` if no turn scheduled the activity.
    #[serde(rename = "inc", default, skip_serializing_if = "Option::is_none")]
    pub(crate) incarnation: Option<String>,
    #[serde(flatten)]
    pub(crate) unknown: UnknownMembers,
}

impl Activity {
    /// The approximate size of the document in bytes.
    pub(crate) fn stored_bytes(&self) -> usize {
        let names = [&self.tag, &self.session_id].map(|name| name.as_deref().map_or(0, json_bytes));
        MEMBERS_BYTES + self.item.stored_bytes() + json_bytes(&self.instance_id) + names[0] + names[1]
    }

    /// Whether a process has given the activity back with a delay, perhaps with its session. An activity
    /// that is visible at once has an earlier `visible_at`, and an activity whose lock has expired has a
    /// nonce.
    pub(crate) fn was_given_back_with_delay(&self) -> bool {
        self.lock_nonce.is_none() && self.visible_at > self.enqueued_at
    }

    /// The activity as it was before its lock, in its old place of the queue. The attempt is not
    /// counted.
    pub(crate) fn without_lock(self) -> Activity {
        Activity {
            lock_nonce: None,
            visible_at: self.enqueued_at.visible_at_once(),
            attempt_count: self.attempt_count.saturating_sub(1),
            ..self
        }
    }
}

/// The tombstone of a cancelled activity. It replaces the document of the activity, so
/// the activity's lock is lost. It expires by its time to live.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CancelledActivity {
    pub(crate) id: String,
    pub(crate) instance_id: String,
    #[serde(rename = "type")]
    pub(crate) document_type: DocumentType,
    /// The time to live in seconds.
    pub(crate) ttl: u32,
}

/// `w:{commit}:{n}`, or `w:{commit}:{n}:{staging id}` if it was staged: activities, messages
/// and cancellations of one turn, to be unpacked after the commit.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Bundle {
    pub(crate) id: String,
    pub(crate) instance_id: String,
    #[serde(rename = "type")]
    pub(crate) document_type: DocumentType,
    /// The time of the commit. The reconciler unpacks old bundles.
    pub(crate) made_at: Stamp,
    /// The value of `made_at`, stored a second time because polls filter by `visibleAt`.
    #[serde(default)]
    pub(crate) visible_at: Stamp,
    pub(crate) activities: Vec<Activity>,
    pub(crate) messages: Vec<Message>,
    /// Ids of activities of earlier turns that are to be cancelled.
    #[serde(default)]
    pub(crate) cancelled: Vec<String>,
    /// Ids of activities of this bundle that were cancelled before it was unpacked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) skip: Vec<String>,
    /// The id of the staging under which it was written.
    #[serde(rename = "mark", default, skip_serializing_if = "Option::is_none")]
    pub(crate) staging_id: Option<String>,
    #[serde(flatten)]
    pub(crate) unknown: UnknownMembers,
}

impl Bundle {
    pub(crate) fn is_empty(&self) -> bool {
        self.activities.is_empty() && self.messages.is_empty() && self.cancelled.is_empty()
    }
}

/// `o:{commit}:{n}`, or `o:{commit}:{n}:{staging id}` if it was staged: messages of one turn
/// to other instances.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Outbox {
    pub(crate) id: String,
    pub(crate) instance_id: String,
    #[serde(rename = "type")]
    pub(crate) document_type: DocumentType,
    /// The time of the commit. The reconciler delivers old outboxes.
    pub(crate) made_at: Stamp,
    /// The value of `made_at`, stored a second time because polls filter by `visibleAt`.
    #[serde(default)]
    pub(crate) visible_at: Stamp,
    pub(crate) messages: Vec<Message>,
    /// The id of the staging under which it was written.
    #[serde(rename = "mark", default, skip_serializing_if = "Option::is_none")]
    pub(crate) staging_id: Option<String>,
}
