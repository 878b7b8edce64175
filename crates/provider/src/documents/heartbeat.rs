//! The heartbeat document of a process. It tells other processes which work the process
//! fetches.

use std::collections::BTreeSet;

use duroxide::providers::TagFilter;
use serde::{Deserialize, Serialize};

use super::DocumentType;

/// The partition key of all heartbeats. A session may have the same partition key, because
/// its key is a hash. That is harmless: the ids of heartbeats and sessions differ.
pub(crate) const HEARTBEATS_KEY: u64 = 2;

/// The work that a process fetches.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Roles {
    /// Whether the process fetches orchestration turns.
    #[serde(rename = "turns")]
    pub(crate) fetches_orchestrations: bool,
    /// The tags of the activities that the process fetches.
    #[serde(rename = "works", default)]
    pub(crate) activity_tags: Tags,
}

/// `n:{nonce}`: the heartbeat of a process. The process counts as alive while the
/// heartbeat is recent.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Heartbeat {
    pub(crate) id: String,
    pub(crate) instance_id: u64,
    #[serde(rename = "type")]
    pub(crate) document_type: DocumentType,
    #[serde(flatten)]
    pub(crate) roles: Roles,
    /// The newest layout version of a container that the process can read. Processes that do
    /// not write it read version 1.
    #[serde(rename = "reads", default = "version_first")]
    pub(crate) readable_version: u32,
    /// The time to live in seconds.
    pub(crate) ttl: u32,
    /// The time of the last write: seconds since 1970 by the service's clock.
    #[serde(rename = "_ts", default, skip_serializing)]
    pub(crate) written_at_s: u64,
}

fn version_first() -> u32 {
    1
}

/// A tag filter in a form that can be compared and merged.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Tags {
    /// Whether every activity matches.
    #[serde(rename = "any")]
    pub(crate) matches_any: bool,
    /// Whether activities without a tag match.
    #[serde(rename = "untagged")]
    pub(crate) matches_untagged: bool,
    /// Activities with one of these tags match.
    pub(crate) names: BTreeSet<String>,
}

impl Tags {
    pub(crate) fn matches(&self, tag: Option<&str>) -> bool {
        self.matches_any || tag.map_or(self.matches_untagged, |tag| self.names.contains(tag))
    }

    /// Adds the tags of another filter.
    pub(crate) fn extend(&mut self, other: &Tags) {
        self.matches_any |= other.matches_any;
        self.matches_untagged |= other.matches_untagged;
        self.names.extend(other.names.iter().cloned());
    }
}

impl From<&TagFilter> for Tags {
    fn from(filter: &TagFilter) -> Self {
        let (matches_untagged, names) = match filter {
            TagFilter::None => (false, None),
            TagFilter::Any => return Tags { matches_any: true, ..Tags::default() },
            TagFilter::DefaultOnly => (true, None),
            TagFilter::Tags(names) => (false, Some(names)),
            TagFilter::DefaultAnd(names) => (true, Some(names)),
        };
        let names = names.into_iter().flatten().cloned().collect();
        Tags { matches_any: false, matches_untagged, names }
    }
}
