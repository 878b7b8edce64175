//! Parts of large texts, and garbage records: lists of documents to remove.

use serde::{Deserialize, Serialize};

use super::{DocumentType, UnknownMembers, is_false};
use crate::documents::stamp::Stamp;
use crate::documents::text::PartsRef;
use crate::timing::STAGING_GUARD_TTL;

/// A part of a large text. It never changes. The id begins with `b:` for a work item of a
/// turn, with `p:` for a work item that is written outside a turn, and with `k:` for a value
/// in the state.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Part {
    pub(crate) id: String,
    pub(crate) instance_id: String,
    #[serde(rename = "type")]
    pub(crate) document_type: DocumentType,
    pub(crate) data: String,
    /// The id of the staging under which it was written.
    #[serde(rename = "mark", default, skip_serializing_if = "Option::is_none")]
    pub(crate) staging_id: Option<String>,
    /// The id of the activity whose input it belongs to. A cancellation knows only this
    /// id, and finds the parts by it.
    #[serde(rename = "of", default, skip_serializing_if = "Option::is_none")]
    pub(crate) activity: Option<String>,
}

/// `g:...`: a garbage record. It lists documents of an instance that no other document
/// refers to.
///
/// There are two kinds. A commit that drops documents creates a record of them, which is due
/// at once. A record of staged documents is created before the documents and is due when
/// their commit can no longer arrive; the commit deletes this record. So a record lists no
/// documents that are in use, with one exception: a late attempt may create the record of a staging
/// again after the commit. `ops::repair::garbage` checks for that.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Garbage {
    pub(crate) id: String,
    pub(crate) instance_id: String,
    #[serde(rename = "type")]
    pub(crate) document_type: DocumentType,
    /// The time from which the listed documents may be removed.
    #[serde(rename = "madeAt")]
    pub(crate) due_at: Stamp,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) parts: Vec<PartsRef>,
    /// Ids of activities. The parts of their inputs are listed.
    #[serde(rename = "of", default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) activities: Vec<String>,
    /// The id of a staging. All documents written under it are listed.
    #[serde(rename = "staging", default, skip_serializing_if = "Option::is_none")]
    pub(crate) staging_id: Option<String>,
    /// The number of an execution. The chunks of its history are listed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) history: Option<u64>,
    /// Set before staged documents are removed, which gives the record a new etag. Their
    /// commit would delete the record under the old etag, so the commit can no longer succeed.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) is_closed: bool,
    /// Whether the record was created together with a [`StagingGuard`], so that it cannot be created
    /// again after its commit. Only records of staged documents have a guard. Such records of older
    /// versions, and in containers without a time to live, have none.
    #[serde(rename = "isFenced", default, skip_serializing_if = "is_false")]
    pub(crate) has_guard: bool,
    #[serde(flatten)]
    pub(crate) unknown: UnknownMembers,
}

/// `f:...`: the guard document of a staging. One batch creates it and the garbage record of the
/// staging. The commit deletes the record. The guard stays as long as a late attempt of that batch can
/// arrive. Such an attempt is refused because the guard exists. Otherwise it would create the record
/// again, and the record would list documents that are in use.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct StagingGuard {
    id: String,
    instance_id: String,
    #[serde(rename = "type")]
    document_type: DocumentType,
    /// The id of the staging. If the staging is given up, the guard is deleted with its documents.
    #[serde(rename = "mark")]
    staging_id: String,
    ttl: u32,
}

impl StagingGuard {
    pub(crate) fn new(instance: &str, staging_id: &str) -> Self {
        StagingGuard {
            id: format!("f:{staging_id}"),
            instance_id: instance.to_owned(),
            document_type: DocumentType::StagingGuard,
            staging_id: staging_id.to_owned(),
            ttl: STAGING_GUARD_TTL.as_secs() as u32,
        }
    }
}

impl Garbage {
    /// A record that lists nothing yet, with the id `g:{id_suffix}`.
    pub(crate) fn blank(instance: &str, id_suffix: &str, due: Stamp) -> Self {
        Garbage {
            id: format!("g:{id_suffix}"),
            instance_id: instance.to_owned(),
            document_type: DocumentType::Garbage,
            due_at: due,
            ..Garbage::default()
        }
    }

    /// Whether the record lists no document.
    pub(crate) fn is_empty(&self) -> bool {
        self.parts.is_empty()
            && self.activities.is_empty()
            && self.staging_id.is_none()
            && self.history.is_none()
    }
}
