//! Partition key definitions.

use serde::{Deserialize, Serialize};

/// The partition key of a container: one path, or up to three for a hierarchical
/// key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PartitionKeyPaths {
    /// The paths, outermost first.
    pub paths: Vec<String>,
    /// `Hash`, or `MultiHash` for a hierarchical key.
    #[serde(default = "default_kind")]
    pub kind: String,
    /// The version of the hash: 2 for new containers. Old containers have 1, or
    /// `None`, which means 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u32>,
}

fn default_kind() -> String {
    "Hash".to_owned()
}

impl PartitionKeyPaths {
    fn new(paths: Vec<String>) -> Self {
        let kind = if paths.len() > 1 { "MultiHash".to_owned() } else { default_kind() };
        PartitionKeyPaths { paths, kind, version: Some(2) }
    }
}

impl From<&str> for PartitionKeyPaths {
    fn from(path: &str) -> Self {
        PartitionKeyPaths::new(vec![path.to_owned()])
    }
}

impl From<String> for PartitionKeyPaths {
    fn from(path: String) -> Self {
        PartitionKeyPaths::new(vec![path])
    }
}

impl From<[&str; 2]> for PartitionKeyPaths {
    fn from(paths: [&str; 2]) -> Self {
        PartitionKeyPaths::new(paths.map(str::to_owned).to_vec())
    }
}

impl From<[&str; 3]> for PartitionKeyPaths {
    fn from(paths: [&str; 3]) -> Self {
        PartitionKeyPaths::new(paths.map(str::to_owned).to_vec())
    }
}
