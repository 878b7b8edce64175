//! What lies beside: parts of large texts, and records of what is to be removed.

use serde::{Deserialize, Serialize};

use super::{DocumentType, is_false};
use crate::documents::stamp::Stamp;
use crate::documents::text::Parts;

/// `b:...` and `k:...`: a part of a large text, of a message or activity, or of
/// a value in the state. Never changed.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Part {
    pub(crate) id: String,
    pub(crate) instance_id: String,
    #[serde(rename = "type")]
    pub(crate) document_type: DocumentType,
    pub(crate) data: String,
    /// The staging it was part of.
    #[serde(rename = "mark", default, skip_serializing_if = "Option::is_none")]
    pub(crate) staging: Option<String>,
    /// The activity whose input it is: cancelling knows nothing else.
    #[serde(rename = "of", default, skip_serializing_if = "Option::is_none")]
    pub(crate) activity: Option<String>,
}

/// `g:{mark}`: documents of an instance that nobody refers to. Made in the
/// commit that drops them, it is due at once. Made before documents are staged,
/// it is due when that commit can no longer come, and the commit removes it:
/// it is there exactly as long as what it names is of no use.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Garbage {
    pub(crate) id: String,
    pub(crate) instance_id: String,
    #[serde(rename = "type")]
    pub(crate) document_type: DocumentType,
    /// When it is due.
    #[serde(rename = "madeAt")]
    pub(crate) due_at: Stamp,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) parts: Vec<Parts>,
    /// Parts of the inputs of these activities.
    #[serde(rename = "of", default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) activities: Vec<String>,
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

impl Garbage {
    pub(crate) fn blank(instance: &str, mark: &str, due: Stamp) -> Self {
        Garbage {
            id: format!("g:{mark}"),
            instance_id: instance.to_owned(),
            document_type: DocumentType::Garbage,
            due_at: due,
            ..Garbage::default()
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.parts.is_empty()
            && self.activities.is_empty()
            && self.staging.is_none()
            && self.history.is_none()
    }
}
