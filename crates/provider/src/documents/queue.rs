//! What waits: messages and activities, one by one or many in one document.

use serde::{Deserialize, Serialize};

use super::{DocumentType, is_false, is_zero};
use crate::documents::dedup::Once;
use crate::documents::stamp::{SKEW_MAX, Stamp};
use crate::documents::text::{Text, escaped};

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
    pub(crate) document_type: DocumentType,
    pub(crate) visible_at: Stamp,
    /// The order of an instance's messages.
    #[serde(rename = "enq")]
    pub(crate) enqueued_at: Stamp,
    pub(crate) attempt_count: u32,
    /// The work item, as JSON in a string: what is unreadable in it harms no
    /// other message.
    pub(crate) item: Text,
    /// Must not be delivered twice, and nothing but its id can tell.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) once: bool,
    /// Of such a message: its sender repeats none below that number.
    #[serde(rename = "low", default, skip_serializing_if = "is_zero")]
    pub(crate) sender_floor: u64,
    /// The incarnation it belongs to; another one drops it.
    #[serde(rename = "inc", default, skip_serializing_if = "Option::is_none")]
    pub(crate) incarnation: Option<String>,
    /// Of a start: whose child it starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) start_parent: Option<String>,
    /// The incarnation of that parent.
    #[serde(rename = "parentInc", default, skip_serializing_if = "Option::is_none")]
    pub(crate) parent_incarnation: Option<String>,
    /// The lock under which it was made, for a completion whose answer is lost.
    #[serde(rename = "by", default, skip_serializing_if = "Option::is_none")]
    pub(crate) lock_nonce: Option<String>,
}

impl Message {
    /// From when on it can have been seen, by whatever clock stamped it.
    pub(crate) fn seen_from(&self) -> Stamp {
        // The start of a next execution comes before all others, so its place
        // in the order tells nothing.
        if self.enqueued_at <= FIRST {
            self.visible_at.after(SKEW_MAX)
        } else {
            self.enqueued_at.max(self.visible_at)
        }
    }

    /// Itself, if it must not be delivered twice.
    pub(crate) fn as_once(&self) -> Option<Once> {
        self.once.then(|| Once { id: self.id.clone(), sender_floor: self.sender_floor })
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
    #[serde(rename = "lock", default, skip_serializing_if = "Option::is_none")]
    pub(crate) lock_nonce: Option<String>,
    #[serde(rename = "inc", default, skip_serializing_if = "Option::is_none")]
    pub(crate) incarnation: Option<String>,
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
    pub(crate) document_type: DocumentType,
    pub(crate) ttl: u32,
}

/// `w:{seq}:{n}`: many activities and messages of one turn, to be unpacked.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Bundle {
    pub(crate) id: String,
    pub(crate) instance_id: String,
    #[serde(rename = "type")]
    pub(crate) document_type: DocumentType,
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
    #[serde(rename = "mark", default, skip_serializing_if = "Option::is_none")]
    pub(crate) staging: Option<String>,
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
    pub(crate) document_type: DocumentType,
    pub(crate) made_at: Stamp,
    /// The same, where polls look.
    #[serde(default)]
    pub(crate) visible_at: Stamp,
    pub(crate) messages: Vec<Message>,
    /// The staging it was part of.
    #[serde(rename = "mark", default, skip_serializing_if = "Option::is_none")]
    pub(crate) staging: Option<String>,
}
