//! The heartbeat document of a process, and the roles in it.

use std::collections::BTreeSet;

use duroxide::providers::TagFilter;
use serde::{Deserialize, Serialize};

use super::DocumentType;
/// The partition of all heartbeats, numeric like those of all system documents.
/// Sessions are under hashes; one that is this number shares a partition with
/// the heartbeats, and nothing else: ids differ.
pub(crate) const NODES_KEY: u64 = 2;

/// What a process serves.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Roles {
    /// Whether it fetches instances.
    pub(crate) turns: bool,
    /// The activities it fetches.
    #[serde(default)]
    pub(crate) works: Tags,
}

/// `n:{nonce}`: a process that is alive, as long as it is young.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NodeDocument {
    pub(crate) id: String,
    pub(crate) instance_id: u64,
    #[serde(rename = "type")]
    pub(crate) document_type: DocumentType,
    #[serde(flatten)]
    pub(crate) roles: Roles,
    pub(crate) ttl: u32,
    /// Seconds since 1970 by the service's clock, which all of them share.
    #[serde(rename = "_ts", default, skip_serializing)]
    pub(crate) written: u64,
}

/// A filter of tags, in a form that is equal when it means the same.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Tags {
    pub(crate) any: bool,
    pub(crate) untagged: bool,
    pub(crate) names: BTreeSet<String>,
}

impl Tags {
    pub(crate) fn matches(&self, tag: Option<&str>) -> bool {
        self.any || tag.map_or(self.untagged, |tag| self.names.contains(tag))
    }

    /// Adds what another filter lets through.
    pub(crate) fn extend(&mut self, other: &Tags) {
        self.any |= other.any;
        self.untagged |= other.untagged;
        self.names.extend(other.names.iter().cloned());
    }
}

impl From<&TagFilter> for Tags {
    fn from(filter: &TagFilter) -> Self {
        let (untagged, names) = match filter {
            TagFilter::None => (false, None),
            TagFilter::Any => return Tags { any: true, ..Tags::default() },
            TagFilter::DefaultOnly => (true, None),
            TagFilter::Tags(names) => (false, Some(names)),
            TagFilter::DefaultAnd(names) => (true, Some(names)),
        };
        Tags { any: false, untagged, names: names.into_iter().flatten().cloned().collect() }
    }
}
