//! The heartbeat document of a process. It tells other processes which work the process
//! fetches, and for which parts of the container the process asks them for help. The roster is one
//! document with the heartbeats of all live processes: it is cheaper to read than many
//! heartbeats.

use std::collections::BTreeSet;

use duroxide::providers::TagFilter;
use serde::{Deserialize, Serialize};

use super::{DocumentType, is_false};

/// The partition key of all heartbeats. A session may have the same partition key, because
/// its key is a hash. That is harmless: the ids of heartbeats and sessions differ.
pub(crate) const HEARTBEATS_KEY: u64 = 2;

/// How the id of a heartbeat begins. The id of its process follows.
pub(crate) const HEARTBEAT_PREFIX: &str = "n:";

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

/// The load of a process, as it tells the others: whether it is busy, and where it asks them for help.
/// Slices are named by their first effective key.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Load {
    /// Whether the process has taken work recently. While any process is busy, each process polls
    /// its own slices. While no process is busy, each partition is polled whole by one process.
    #[serde(rename = "busy", default, skip_serializing_if = "is_false")]
    pub(crate) is_busy: bool,
    /// Slices with work that the process cannot run, or with more work than it can run. The other
    /// processes have to poll these slices too.
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

fn first_layout_version() -> u32 {
    1
}

/// The live processes, as the process that wrote the roster saw them. The roster is written again
/// when the processes, their roles or their loads change, and once a minute. A roster that is older than 90
/// seconds is not used.
///
/// Each process reads the roster, so its size decides what membership costs. Most processes differ
/// only in their ids, and such processes are stored as one group. Earlier builds, none of them
/// released, stored a list of processes without groups. This build reads that form too. An earlier
/// build cannot read groups, and reads the heartbeats instead.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Roster {
    pub(crate) id: String,
    pub(crate) instance_id: u64,
    #[serde(rename = "type")]
    pub(crate) document_type: DocumentType,
    #[serde(rename = "groups", alias = "members", with = "groups")]
    pub(crate) members: Vec<Member>,
}

/// The stored form of the members of a roster.
mod groups {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::Member;

    /// Processes that differ only in their ids.
    #[derive(Serialize, Deserialize)]
    struct Group {
        ids: Vec<String>,
        /// What these processes have in common: a member with an empty id.
        #[serde(rename = "each")]
        member: Member,
    }

    /// An entry of a roster: a group, or a single process in the form of earlier builds.
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Entry {
        Group(Group),
        Member(Member),
    }

    pub(super) fn serialize<S: Serializer>(members: &[Member], serializer: S) -> Result<S::Ok, S::Error> {
        let mut groups: Vec<Group> = Vec::new();
        for member in members {
            let member_without_id = Member { id: String::new(), ..member.clone() };
            match groups.iter_mut().find(|group| group.member == member_without_id) {
                Some(group) => group.ids.push(member.id.clone()),
                None => groups.push(Group { ids: vec![member.id.clone()], member: member_without_id }),
            }
        }
        groups.serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Member>, D::Error> {
        let mut members = Vec::new();
        for entry in Vec::<Entry>::deserialize(deserializer)? {
            match entry {
                Entry::Group(Group { ids, member }) => {
                    members.extend(ids.into_iter().map(|id| Member { id, ..member.clone() }));
                }
                Entry::Member(member) => members.push(member),
            }
        }
        members.sort_by(|one, other| one.id.cmp(&other.id));
        Ok(members)
    }
}

/// A live process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Member {
    /// The id of its heartbeat.
    pub(crate) id: String,
    #[serde(flatten)]
    pub(crate) roles: Roles,
    #[serde(flatten)]
    pub(crate) load: Load,
    /// The newest layout version of a container that the process can read. Processes that do
    /// not write it read version 1.
    #[serde(rename = "reads", default = "first_layout_version")]
    pub(crate) readable_version: u32,
    /// The layout version of the container, as the process knows it. A process that was silent for
    /// some time reads it from the others, and so notices that it has become too old for the
    /// container.
    #[serde(rename = "layout", default = "first_layout_version")]
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

#[cfg(test)]
mod tests {
    use super::*;

    fn member(number: usize, is_busy: bool) -> Member {
        Member {
            id: format!("n:{number:032}"),
            roles: Roles { fetches_orchestrations: true, activity_tags: Tags::from(&TagFilter::DefaultOnly) },
            load: Load { is_busy, ..Load::default() },
            readable_version: 3,
            container_version: 3,
        }
    }

    #[test]
    fn a_roster_of_a_thousand_processes_is_little_more_than_their_ids() {
        let roster = Roster {
            id: ROSTER_ID.to_owned(),
            instance_id: HEARTBEATS_KEY,
            document_type: DocumentType::Roster,
            members: (0..1_000).map(|number| member(number, number % 3 == 0)).collect(),
        };
        let text = serde_json::to_string(&roster).unwrap();
        assert!(text.len() < 40_000, "{} bytes", text.len());
        let read: Roster = serde_json::from_str(&text).unwrap();
        assert_eq!(read.members, roster.members);
    }

    #[test]
    fn a_roster_of_an_earlier_build_is_read() {
        let members = vec![member(1, false), member(2, true)];
        let text =
            serde_json::json!({"id": ROSTER_ID, "instanceId": 2, "type": "roster", "members": members});
        let read: Roster = serde_json::from_value(text).unwrap();
        assert_eq!(read.members, members);
    }
}
