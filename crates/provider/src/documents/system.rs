//! What belongs to no instance: sessions and deletions, under numeric keys.

use serde::{Deserialize, Serialize};

use super::DocumentType;
use crate::documents::stamp::Stamp;

/// `s:{hash}`: who has a session. Global, in a partition of its own.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Session {
    pub(crate) id: String,
    /// A number: see above.
    pub(crate) instance_id: u64,
    #[serde(rename = "type")]
    pub(crate) document_type: DocumentType,
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
    pub(crate) document_type: DocumentType,
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
