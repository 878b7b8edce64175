//! Properties of databases and containers.
//!
//! Unknown members of a container, of its indexing policy and of an index path are kept.
//! So a caller who reads properties, changes one of them and writes the properties back
//! does not lose these members. Unknown members of other parts are lost.

mod indexing;
mod partition_key;
#[cfg(test)]
mod tests;
mod ttl;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub use indexing::{CompositePath, IndexPath, IndexingMode, IndexingPolicy, SortOrder};
pub use partition_key::PartitionKeyPaths;
pub use ttl::TimeToLive;

use crate::Etag;
use crate::response::Receipt;
use crate::throughput::Throughput;

/// The properties of a database.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[non_exhaustive]
pub struct DatabaseProperties {
    /// The name.
    pub id: String,
    /// The service's own id (`_rid`).
    #[serde(rename = "_rid")]
    pub resource_id: String,
    /// The version.
    #[serde(rename = "_etag", default, skip_serializing_if = "Option::is_none")]
    pub etag: Option<Etag>,
    /// The time of the last change, in seconds since 1970.
    #[serde(rename = "_ts", default)]
    pub timestamp: u64,
    #[serde(skip)]
    pub(crate) receipt: Option<Box<Receipt>>,
}

impl DatabaseProperties {
    /// Status, headers, charge and diagnostics of the response that these properties came
    /// with; `None` for properties from a list.
    pub fn receipt(&self) -> Option<&Receipt> {
        self.receipt.as_deref()
    }
}

/// The properties of a container. The caller sets them to create a container, and the
/// service returns them.
///
/// ```
/// # use perihelion_client::{ContainerProperties, IndexingPolicy, SortOrder, Throughput};
/// # use std::time::Duration;
/// let orders = ContainerProperties::new("orders", "/customer")
///     .with_ttl(Duration::from_secs(30 * 24 * 3600))
///     .with_unique_key(["/number"])
///     .with_indexing_policy(
///         IndexingPolicy::default()
///             .with_excluded("/lines/*")
///             .with_composite([("/customer", SortOrder::Ascending), ("/placed", SortOrder::Descending)]),
///     )
///     .with_throughput(Throughput::autoscale(4000));
/// let sessions = ContainerProperties::new("sessions", ["/tenant", "/user"]).with_ttl_per_item();
/// ```
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ContainerProperties {
    /// The name.
    pub id: String,
    /// The partition key. It cannot be changed later.
    pub partition_key: PartitionKeyPaths,
    /// The indexing policy. Without it the service indexes every path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub indexing_policy: Option<IndexingPolicy>,
    /// When documents expire; `None` for never.
    #[serde(rename = "defaultTtl", default, skip_serializing_if = "Option::is_none")]
    pub ttl: Option<TimeToLive>,
    /// The unique keys. They cannot be changed later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unique_key_policy: Option<UniqueKeyPolicy>,
    /// The service's own id (`_rid`); `None` before the container is created.
    #[serde(rename = "_rid", default, skip_serializing_if = "Option::is_none")]
    pub resource_id: Option<String>,
    /// The version; `None` before the container is created.
    #[serde(rename = "_etag", default, skip_serializing_if = "Option::is_none")]
    pub etag: Option<Etag>,
    /// The throughput to create the container with. Reading properties does not
    /// set it: see [`Container::throughput`](crate::Container::throughput).
    #[serde(skip)]
    pub throughput: Option<Throughput>,
    /// All other members: conflict resolution, vectors, change feed, `_ts`.
    #[serde(flatten)]
    pub other: Map<String, Value>,
    #[serde(skip)]
    pub(crate) receipt: Option<Box<Receipt>>,
}

/// The unique keys of a container.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct UniqueKeyPolicy {
    /// The constraints; a document must meet all of them.
    #[serde(default)]
    pub unique_keys: Vec<UniqueKey>,
}

/// A unique key: no two documents of a logical partition have the same values at
/// all of these paths.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct UniqueKey {
    /// The paths.
    pub paths: Vec<String>,
}

impl ContainerProperties {
    /// Status, headers, charge and diagnostics of the response that these properties came
    /// with; `None` for properties from a list, and for those that the program has made.
    pub fn receipt(&self) -> Option<&Receipt> {
        self.receipt.as_deref()
    }

    /// A container of this name. The partition key is a path such as `/customer`,
    /// or two or three paths for a hierarchical key, such as `["/tenant", "/user"]`.
    pub fn new(id: impl Into<String>, partition_key: impl Into<PartitionKeyPaths>) -> Self {
        ContainerProperties {
            id: id.into(),
            partition_key: partition_key.into(),
            indexing_policy: None,
            ttl: None,
            unique_key_policy: None,
            resource_id: None,
            etag: None,
            throughput: None,
            other: Map::new(),
            receipt: None,
        }
    }

    /// Makes documents expire this long after their last write. The time is rounded down
    /// to whole seconds, and is at least one second and at most 2,147,483,647 (68 years). A
    /// document's own member `ttl` (seconds, -1 for never) has precedence.
    pub fn with_ttl(mut self, ttl: std::time::Duration) -> Self {
        self.ttl = Some(TimeToLive::after(ttl));
        self
    }

    /// Makes only those documents expire that have a member `ttl`.
    pub fn with_ttl_per_item(mut self) -> Self {
        self.ttl = Some(TimeToLive::PerItem);
        self
    }

    /// Adds a unique key: no two documents of a logical partition may have the
    /// same values at all of these paths.
    pub fn with_unique_key<P: Into<String>>(mut self, paths: impl IntoIterator<Item = P>) -> Self {
        let key = UniqueKey { paths: paths.into_iter().map(Into::into).collect() };
        self.unique_key_policy.get_or_insert_default().unique_keys.push(key);
        self
    }

    /// Sets the indexing policy.
    pub fn with_indexing_policy(mut self, policy: IndexingPolicy) -> Self {
        self.indexing_policy = Some(policy);
        self
    }

    /// Sets the container's own throughput. Without it the container shares its
    /// database's throughput, or gets the service's minimum.
    pub fn with_throughput(mut self, throughput: Throughput) -> Self {
        self.throughput = Some(throughput);
        self
    }

    /// Sets any other member of the properties.
    pub fn with_other(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        self.other.insert(name.into(), value.into());
        self
    }
}
