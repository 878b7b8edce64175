//! `Lease`: the document that says which instance reads a part of a container, and how far
//! the part was processed.

use perihelion_model::partition_key::PartitionKey;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value};

use crate::{Etag, FeedRange};

/// A lease document.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Lease {
    pub(super) id: String,
    /// The name of the processor. It is also the partition key of the document if the container
    /// of leases is partitioned by `/partitionKey`.
    pub(super) partition_key: String,
    /// The part of the container, as the text of a [`FeedRange`].
    pub(super) range: String,
    /// The instance that reads the part; `None` when no instance does.
    #[serde(default)]
    pub(super) owner: Option<String>,
    /// The instance that asks the owner to hand the lease over.
    #[serde(default)]
    pub(super) wanted_by: Option<String>,
    /// The position after the last page that was processed: a change feed token.
    pub(super) token: String,
    /// A value that only the last write of the owner has stored. While it does not change, the
    /// owner has not renewed the lease.
    pub(super) nonce: String,
    #[serde(rename = "_etag", default, skip_serializing)]
    pub(super) etag: Option<Etag>,
    /// All other members, such as a `ttl`, and members that a later version has added. A write
    /// keeps them.
    #[serde(flatten, serialize_with = "without_system_members")]
    pub(super) others: Map<String, Value>,
}

/// The members that the service sets in every document, except the etag.
const SYSTEM_MEMBERS: [&str; 5] = ["_rid", "_self", "_ts", "_attachments", "_lsn"];

fn without_system_members<S: Serializer>(
    others: &Map<String, Value>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_map(others.iter().filter(|(name, _)| !SYSTEM_MEMBERS.contains(&name.as_str())))
}

/// How lease documents are named and partitioned.
#[derive(Debug, Clone)]
pub(super) struct LeaseNames {
    pub(super) processor: String,
    /// The beginning of the ids of all documents of the processor: its name and the `_rid` of the
    /// container whose changes are processed. A container that is created again gets new leases.
    pub(super) prefix: String,
    pub(super) key_kind: KeyKind,
}

/// The partition key of the container of leases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyKind {
    /// `/id`
    Id,
    /// `/partitionKey`
    Processor,
}

impl LeaseNames {
    pub(super) fn new(processor: &str, container_rid: &str, key_kind: KeyKind) -> Self {
        // A `_rid` is base64 and may contain a slash, which is not allowed in an id.
        let rid = container_rid.replace('/', "-");
        LeaseNames { processor: processor.to_owned(), prefix: format!("{processor}.{rid}."), key_kind }
    }

    pub(super) fn lease_id(&self, range: &FeedRange) -> String {
        format!("{}lease.{range}", self.prefix)
    }

    /// The beginning of the ids of all leases.
    pub(super) fn lease_prefix(&self) -> String {
        format!("{}lease.", self.prefix)
    }

    /// The id of the document that says that all leases were created.
    pub(super) fn marker_id(&self) -> String {
        format!("{}info", self.prefix)
    }

    /// The id of the document that says where the processing begins.
    pub(super) fn start_id(&self) -> String {
        format!("{}start", self.prefix)
    }

    /// The partition key of a document of this processor.
    pub(super) fn key_of(&self, id: &str) -> PartitionKey {
        match self.key_kind {
            KeyKind::Id => id.into(),
            KeyKind::Processor => self.processor.as_str().into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_lease_keeps_the_members_that_it_does_not_know() {
        let document = json!({
            "id": "a", "partitionKey": "p", "range": "-FF", "owner": null, "wantedBy": null, "token": "t",
            "nonce": "n", "ttl": 60, "later": {"x": [1]},
        });
        let mut stored = document.clone();
        for (name, value) in [("_rid", json!("r")), ("_ts", json!(5)), ("_etag", json!("\"1\""))] {
            stored[name] = value;
        }
        let lease: Lease = serde_json::from_value(stored).unwrap();
        assert_eq!(lease.etag.as_ref().map(Etag::as_str), Some("\"1\""));
        assert_eq!(serde_json::to_value(&lease).unwrap(), document);
    }
}
