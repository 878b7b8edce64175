//! Indexing policies.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The indexing policy of a container. The default indexes every path.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct IndexingPolicy {
    /// When documents are indexed.
    #[serde(default)]
    pub indexing_mode: IndexingMode,
    /// Whether documents are indexed by default.
    #[serde(default = "default_automatic")]
    pub automatic: bool,
    /// Paths that are indexed: `/*` for all, `/name/?` for one value.
    #[serde(default)]
    pub included_paths: Vec<IndexPath>,
    /// Paths that are not indexed. Where an included path covers the same value, the
    /// longer of the two paths decides.
    #[serde(default)]
    pub excluded_paths: Vec<IndexPath>,
    /// Composite indexes, for ORDER BY over several paths.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub composite_indexes: Vec<Vec<CompositePath>>,
    /// All other members: spatial, vector and full-text indexes.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

fn default_automatic() -> bool {
    true
}

/// When documents are indexed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum IndexingMode {
    /// As part of each write.
    #[default]
    Consistent,
    /// Some time after the write. The service no longer offers it for new
    /// containers.
    Lazy,
    /// Never: documents are found by id and partition key only.
    None,
}

/// An included or excluded path.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct IndexPath {
    /// The path.
    pub path: String,
    /// All other members.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// A path of a composite index.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CompositePath {
    /// The path, without `/?`.
    pub path: String,
    /// The sort order.
    #[serde(default)]
    pub order: SortOrder,
}

/// The order of a path in a composite index.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SortOrder {
    /// From small to large.
    #[default]
    Ascending,
    /// From large to small.
    Descending,
}

impl Default for IndexingPolicy {
    fn default() -> Self {
        IndexingPolicy {
            indexing_mode: IndexingMode::Consistent,
            automatic: true,
            included_paths: vec![IndexPath::from("/*")],
            excluded_paths: Vec::new(),
            composite_indexes: Vec::new(),
            other: Map::new(),
        }
    }
}

impl IndexingPolicy {
    /// A policy that indexes nothing.
    pub fn none() -> Self {
        IndexingPolicy {
            indexing_mode: IndexingMode::None,
            automatic: false,
            included_paths: Vec::new(),
            ..IndexingPolicy::default()
        }
    }

    /// A policy that indexes only these paths.
    pub fn only<'p>(paths: impl IntoIterator<Item = &'p str>) -> Self {
        IndexingPolicy {
            included_paths: paths.into_iter().map(IndexPath::from).collect(),
            excluded_paths: vec![IndexPath::from("/*")],
            ..IndexingPolicy::default()
        }
    }

    /// Adds an included path.
    pub fn with_included(mut self, path: &str) -> Self {
        self.included_paths.push(path.into());
        self
    }

    /// Adds an excluded path.
    pub fn with_excluded(mut self, path: &str) -> Self {
        self.excluded_paths.push(path.into());
        self
    }

    /// Adds a composite index, for ORDER BY over several paths.
    pub fn with_composite<'p>(mut self, paths: impl IntoIterator<Item = (&'p str, SortOrder)>) -> Self {
        let paths = paths.into_iter().map(|(path, order)| CompositePath { path: path.to_owned(), order });
        self.composite_indexes.push(paths.collect());
        self
    }
}

impl From<&str> for IndexPath {
    fn from(path: &str) -> Self {
        IndexPath { path: path.to_owned(), other: Map::new() }
    }
}
