//! What a container indexes.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// What a container indexes. The default indexes every path.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct IndexingPolicy {
    /// Whether anything is indexed.
    #[serde(default)]
    pub indexing_mode: IndexingMode,
    /// Whether documents are indexed without being asked to.
    #[serde(default = "yes")]
    pub automatic: bool,
    /// What is indexed: `/*` for everything, `/name/?` for one value.
    #[serde(default)]
    pub included_paths: Vec<IndexPath>,
    /// What is not, although a shorter included path covers it.
    #[serde(default)]
    pub excluded_paths: Vec<IndexPath>,
    /// Indexes over several paths, for ORDER BY over several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub composite_indexes: Vec<Vec<CompositePath>>,
    /// Everything else: spatial, vector and full-text indexes.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

fn yes() -> bool {
    true
}

/// Whether anything is indexed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum IndexingMode {
    /// With each write.
    #[default]
    Consistent,
    /// Some time later; no longer offered for new containers.
    Lazy,
    /// Not at all: documents are found by id and partition key only.
    None,
}

/// A path that is indexed, or is not.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct IndexPath {
    /// The path.
    pub path: String,
    /// Everything else.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// A path of a composite index.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CompositePath {
    /// The path, without `/?`.
    pub path: String,
    /// In which order.
    #[serde(default)]
    pub order: SortOrder,
}

/// Which way round.
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
    /// Nothing is indexed.
    pub fn none() -> Self {
        IndexingPolicy {
            indexing_mode: IndexingMode::None,
            automatic: false,
            included_paths: Vec::new(),
            ..IndexingPolicy::default()
        }
    }

    /// Nothing but these paths is indexed.
    pub fn only<'p>(paths: impl IntoIterator<Item = &'p str>) -> Self {
        IndexingPolicy {
            included_paths: paths.into_iter().map(IndexPath::from).collect(),
            excluded_paths: vec![IndexPath::from("/*")],
            ..IndexingPolicy::default()
        }
    }

    /// This path is indexed too.
    pub fn with_included(mut self, path: &str) -> Self {
        self.included_paths.push(path.into());
        self
    }

    /// This path is not indexed.
    pub fn with_excluded(mut self, path: &str) -> Self {
        self.excluded_paths.push(path.into());
        self
    }

    /// An index over several paths, for ORDER BY over several.
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
