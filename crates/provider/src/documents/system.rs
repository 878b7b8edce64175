//! System documents: sessions and deletions, under numeric partition keys.

use serde::{Deserialize, Serialize};

use super::{DocumentType, UnknownMembers};
use crate::documents::stamp::Stamp;

/// `s:{hash}`: the lease of an activity session. Its partition key is a hash of the session
/// id too. Times are milliseconds since 1970.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Session {
    pub(crate) id: String,
    /// The partition key: a number, because this is a system document.
    pub(crate) instance_id: u64,
    #[serde(rename = "type")]
    pub(crate) document_type: DocumentType,
    pub(crate) session: String,
    pub(crate) owner: String,
    pub(crate) locked_until: u64,
    /// When the session was last claimed, or an activity last used it.
    pub(crate) last_activity: u64,
    #[serde(flatten)]
    pub(crate) unknown: UnknownMembers,
}

/// `d:{stamp}:{nonce}`: the record of a deletion of several instances.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Deletion {
    pub(crate) id: String,
    pub(crate) instance_id: u64,
    #[serde(rename = "type")]
    pub(crate) document_type: DocumentType,
    /// The instances that are deleted together.
    pub(crate) instances: Vec<String>,
    /// Messages from one of these instances to another that may still be in delivery.
    #[serde(rename = "late", default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) in_delivery: Vec<MessageInDelivery>,
    pub(crate) stage: DeletionStage,
    /// When the deletion began, or last recorded that it makes progress.
    pub(crate) made_at: Stamp,
    #[serde(flatten)]
    pub(crate) unknown: UnknownMembers,
}

/// A message that may still be in delivery to an instance.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct MessageInDelivery {
    pub(crate) instance: String,
    pub(crate) id: String,
}

/// The stage of a deletion. The deletion takes effect when its stage becomes `Committed`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum DeletionStage {
    /// The instances are being marked, so that they cannot commit. The deletion can still be
    /// aborted.
    Prepared,
    /// The instances are being removed. Any process can finish that.
    Committed,
    /// The marks are being cleared.
    Aborted,
}
