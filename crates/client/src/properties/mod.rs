//! Databases and containers as the service describes them.
//!
//! What this version does not know of a container is kept as it came, so that
//! reading properties, changing one and replacing them loses nothing.

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
use crate::throughput::Throughput;

/// A database.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[non_exhaustive]
pub struct DatabaseProperties {
    /// Its name.
    pub id: String,
    /// The service's own id for it.
    #[serde(rename = "_rid")]
    pub resource_id: String,
    /// Its version.
    #[serde(rename = "_etag", default, skip_serializing_if = "Option::is_none")]
    pub etag: Option<Etag>,
    /// When it was last changed, in seconds since 1970.
    #[serde(rename = "_ts", default)]
    pub timestamp: u64,
}

/// A container: what one is created with, and what is read of it.
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
    /// Its name.
    pub id: String,
    /// What it is partitioned by. Cannot be changed later.
    pub partition_key: PartitionKeyPaths,
    /// What is indexed; the service indexes everything unless told otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub indexing_policy: Option<IndexingPolicy>,
    /// When documents expire; never, when absent.
    #[serde(rename = "defaultTtl", default, skip_serializing_if = "Option::is_none")]
    pub ttl: Option<TimeToLive>,
    /// What must be unique within a partition. Cannot be changed later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unique_key_policy: Option<UniqueKeyPolicy>,
    /// The service's own id for it; absent before it is created.
    #[serde(rename = "_rid", default, skip_serializing_if = "Option::is_none")]
    pub resource_id: Option<String>,
    /// Its version; absent before it is created.
    #[serde(rename = "_etag", default, skip_serializing_if = "Option::is_none")]
    pub etag: Option<Etag>,
    /// Throughput of its own, set when it is created. Reading properties does
    /// not fill it in: see [`Container::throughput`](crate::Container::throughput).
    #[serde(skip)]
    pub throughput: Option<Throughput>,
    /// Everything else: conflict resolution, vectors, change feed, `_ts`.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// What must be unique within a partition.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct UniqueKeyPolicy {
    /// The constraints, each for itself.
    #[serde(default)]
    pub unique_keys: Vec<UniqueKey>,
}

/// One constraint: no two documents of a partition have the same values at all
/// of these paths.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct UniqueKey {
    /// The paths.
    pub paths: Vec<String>,
}

impl ContainerProperties {
    /// A container of that name, partitioned by a path such as `/customer`, or
    /// by up to three: `["/tenant", "/user"]`.
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
        }
    }

    /// Documents expire that long after their last write, unless their own
    /// member `ttl` (seconds, -1 for never) says otherwise. Counted in seconds.
    pub fn with_ttl(mut self, ttl: std::time::Duration) -> Self {
        self.ttl = Some(TimeToLive::after(ttl));
        self
    }

    /// Documents expire only when their own member `ttl` says so.
    pub fn with_ttl_per_item(mut self) -> Self {
        self.ttl = Some(TimeToLive::PerItem);
        self
    }

    /// No two documents of a partition may have the same values at all of these
    /// paths. May be called several times.
    pub fn with_unique_key<P: Into<String>>(mut self, paths: impl IntoIterator<Item = P>) -> Self {
        let key = UniqueKey { paths: paths.into_iter().map(Into::into).collect() };
        self.unique_key_policy.get_or_insert_default().unique_keys.push(key);
        self
    }

    /// What is indexed.
    pub fn with_indexing_policy(mut self, policy: IndexingPolicy) -> Self {
        self.indexing_policy = Some(policy);
        self
    }

    /// Throughput of its own. Without it, the container shares its database's,
    /// or has the least there is.
    pub fn with_throughput(mut self, throughput: Throughput) -> Self {
        self.throughput = Some(throughput);
        self
    }

    /// Any other member of the container's description.
    pub fn with_other(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        self.other.insert(name.into(), value.into());
        self
    }
}
