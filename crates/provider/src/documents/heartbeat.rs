//! The heartbeat document of a process. It tells other processes which work the process
//! fetches, and for which parts of the container it asks their help. The roster is one
//! document with the heartbeats of all live processes: it is cheaper to read than many
//! heartbeats.

use std::collections::BTreeSet;

use duroxide::providers::TagFilter;
use serde::{Deserialize, Serialize};

use super::{DocumentType, is_false};

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

/// The id of the roster.
pub(crate) const ROSTER_ID: &str = "roster";

/// What a process asks of the others. Slices are named by their first effective key.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Requests {
    /// Whether the process has taken work in the last time: each process is to poll its own
    /// slices. While no process is busy, one process polls the whole partition.
    #[serde(rename = "busy", default, skip_serializing_if = "is_false")]
    pub(crate) is_busy: bool,
    /// Slices with work that the process cannot run, or more work than it can run: the other
    /// processes are to poll them too.
    #[serde(rename = "shared", default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) shared_slices: Vec<String>,
}

/// `n:{nonce}`: the heartbeat of a process. The process counts as alive while the
/// heartbeat is recent.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Heartbeat {
    #[serde(flatten)]
    pub(crate) process: Member,
    pub(crate) instance_id: u64,
    #[serde(rename = "type")]
    pub(crate) document_type: DocumentType,
    /// The time to live in seconds.
    pub(crate) ttl: u32,
    /// The time of the last write: seconds since 1970 by the service's clock.
    #[serde(rename = "_ts", default, skip_serializing)]
    pub(crate) written_at_s: u64,
}

fn version_first() -> u32 {
    1
}

/// The live processes, as the process that wrote the roster saw them. It is written again when
/// they or their requests change, and once a minute. A roster that is older is not used.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Roster {
    pub(crate) id: String,
    pub(crate) instance_id: u64,
    #[serde(rename = "type")]
    pub(crate) document_type: DocumentType,
    pub(crate) members: Vec<Member>,
}

/// A live process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Member {
    /// The id of its heartbeat.
    pub(crate) id: String,
    #[serde(flatten)]
    pub(crate) roles: Roles,
    #[serde(flatten)]
    pub(crate) requests: Requests,
    /// The newest layout version of a container that the process can read. Processes that do
    /// not write it read version 1.
    #[serde(rename = "reads", default = "version_first")]
    pub(crate) readable_version: u32,
    /// The layout version of the container, as the process knows it. So a process that was
    /// silent for some time notices that it has become too old for the container.
    #[serde(rename = "layout", default = "version_first")]
    pub(crate) container_version: u32,
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
