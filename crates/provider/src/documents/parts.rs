//! Parts of large texts, and garbage records: lists of documents to remove.

use serde::{Deserialize, Serialize};

use super::{DocumentType, is_false};
use crate::documents::stamp::Stamp;
use crate::documents::text::PartsRef;

/// `b:...` and `k:...`: a part of a large text of a message, an activity or a value
/// in the state. It never changes.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Part {
    pub(crate) id: String,
    pub(crate) instance_id: String,
    #[serde(rename = "type")]
    pub(crate) document_type: DocumentType,
    pub(crate) data: String,
    /// The staging under which it was written.
    #[serde(rename = "mark", default, skip_serializing_if = "Option::is_none")]
    pub(crate) staging_id: Option<String>,
    /// The activity whose input it is: a cancellation knows only the activity's id.
    #[serde(rename = "of", default, skip_serializing_if = "Option::is_none")]
    pub(crate) activity: Option<String>,
}

/// `g:{staging}`: documents of an instance that no other document refers to.
///
/// A commit that drops documents creates a record that is due at once. A record for
/// staged documents is created before them, is due when their commit can no longer
/// arrive, and is removed by that commit. So a record exists exactly as long as its
/// documents are unused.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Garbage {
    pub(crate) id: String,
    pub(crate) instance_id: String,
    #[serde(rename = "type")]
    pub(crate) document_type: DocumentType,
    /// When its documents are removed.
    #[serde(rename = "madeAt")]
    pub(crate) due_at: Stamp,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) parts: Vec<PartsRef>,
    /// The activities whose input parts it covers.
    #[serde(rename = "of", default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) activities: Vec<String>,
    /// The staging whose documents it covers.
    #[serde(rename = "staging", default, skip_serializing_if = "Option::is_none")]
    pub(crate) staging_id: Option<String>,
    /// The execution whose history it covers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) history: Option<u64>,
    /// The staged documents are being removed: their commit can no longer arrive.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) is_closed: bool,
}

impl Garbage {
    pub(crate) fn blank(instance: &str, id_suffix: &str, due: Stamp) -> Self {
        Garbage {
            id: format!("g:{id_suffix}"),
            instance_id: instance.to_owned(),
            document_type: DocumentType::Garbage,
            due_at: due,
            ..Garbage::default()
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.parts.is_empty()
            && self.activities.is_empty()
            && self.staging_id.is_none()
            && self.history.is_none()
    }
}
