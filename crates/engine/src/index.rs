//! Index definitions: which indexes a container has, and the key of each entry.
//!
//! The service by default indexes every path of every document. This engine builds
//! fewer indexes: the composite indexes that the indexing policy declares, and any
//! other shape once a query had to read many documents for few results. Such a shape has the
//! paths of the query's equalities, then the query's ORDER BY keys. Without ORDER BY, it has the
//! paths of one IN list and of one range instead of these keys. So a write pays only for the
//! shapes that are declared or queried. Index entries are in the same store as the documents and
//! change in the same commit, so a snapshot is always consistent.
//!
//! A key holds only the beginning of a long string (`encoding`). So documents with different strings
//! can have equal keys. A query evaluates its conditions on each document that an index selects, and
//! sorts documents with equal keys by the whole strings.
//!
//! A query uses only an index that is ready. While an index is not ready, writes maintain
//! it, and maintenance adds the entries of older documents. Both may write the same entry.
//!
//! A container has a bounded number of indexes that queries asked for. When a query needs one more
//! index, the least recently used index may be *retired*. Its entries are removed later, when no
//! query can use it any more (`admin::indexes`).

mod encoding;

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use perihelion_model::json::{Value, object};

pub(crate) use self::encoding::{STRING_BYTES_MAX, cut_order, encode, encode_cut, encode_whole, type_byte};
use crate::keys::{self, ContainerNumber, LogicalPartition, SegmentId};

/// One index of a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct IndexDefinition {
    /// The number of the index within the container.
    pub id: u16,
    /// The scope and columns of the index.
    pub shape: IndexShape,
    /// Whether the index has an entry for every document.
    pub is_ready: bool,
    /// Whether queries no longer use the index, so that it can be removed. Writes still maintain
    /// it, for running queries that chose it before.
    pub is_retired: bool,
    /// When a query last used the index, or when it was retired.
    pub last_use: LastUse,
}

/// When a query last used an index, in seconds since 1970; 0 if none did since the store was
/// opened. All versions of a definition share one `LastUse`. It does not count in the comparison of
/// two definitions, so all values compare as equal.
#[derive(Debug, Clone, Default)]
pub(crate) struct LastUse(Arc<AtomicU64>);

impl LastUse {
    pub(crate) fn seconds(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Notes a use. Most uses are in the same second as the use before them, and cost one load. The
    /// clock may have been set back, so an earlier time replaces a later one.
    pub(crate) fn note(&self, now: u64) {
        if self.seconds() != now {
            self.0.store(now, Ordering::Relaxed);
        }
    }
}

impl PartialEq for LastUse {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for LastUse {}

/// The scope and columns of an index that exists, is declared, or is missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexShape {
    /// How the entries are grouped. In the key of an entry, its group comes before the columns.
    pub scope: IndexScope,
    /// The paths, in order.
    pub columns: Vec<Column>,
}

/// How the entries of an index are grouped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IndexScope {
    /// By logical partition.
    Partition,
    /// By segment: a physical partition, or all ranges into which it was split.
    Segment,
}

/// One column of an index.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Column {
    /// The names of the members on the path to the value.
    pub path: Vec<String>,
    /// Whether the largest value comes first.
    pub is_descending: bool,
}

impl IndexDefinition {
    pub(crate) fn new(id: u16, shape: IndexShape, is_ready: bool) -> Self {
        IndexDefinition { id, shape, is_ready, is_retired: false, last_use: LastUse::default() }
    }

    /// The prefix of all entries of a group.
    pub(crate) fn group_prefix(&self, container: ContainerNumber, group: IndexGroup<'_>) -> Vec<u8> {
        let mut key = keys::index_prefix(container, self.id);
        match (self.shape.scope, group) {
            (IndexScope::Partition, IndexGroup { partition, .. }) => key.extend_from_slice(&partition.0),
            (IndexScope::Segment, IndexGroup { segment, .. }) => {
                key.extend_from_slice(&segment.to_be_bytes());
            }
        }
        key
    }

    /// The key of one document's entry.
    pub(crate) fn entry_key(
        &self,
        container: ContainerNumber,
        group: IndexGroup<'_>,
        document: &Value,
        rid: u64,
    ) -> Vec<u8> {
        self.entry_key_by(container, group, |path| find(document, path).map(Cow::Borrowed), rid)
    }

    /// The key of one document's entry. `find_value` returns the document's value at a path.
    pub(crate) fn entry_key_by<'v>(
        &self,
        container: ContainerNumber,
        group: IndexGroup<'_>,
        find_value: impl Fn(&[String]) -> Option<Cow<'v, Value>>,
        rid: u64,
    ) -> Vec<u8> {
        let mut key = self.group_prefix(container, group);
        for column in &self.shape.columns {
            encode_cut(&mut key, find_value(&column.path).as_deref(), column.is_descending);
        }
        key.extend_from_slice(&rid.to_be_bytes());
        key
    }

    pub(crate) fn to_record(&self) -> Value {
        let columns = self.shape.columns.iter().map(|column| {
            object([
                ("path", Value::Array(column.path.iter().map(|step| step.as_str().into()).collect())),
                ("descending", column.is_descending.into()),
            ])
        });
        object([
            ("id", u64::from(self.id).into()),
            ("partition", (self.shape.scope == IndexScope::Partition).into()),
            ("columns", Value::Array(columns.collect())),
            ("ready", self.is_ready.into()),
            ("retired", self.is_retired.into()),
        ])
    }

    pub(crate) fn from_record(record: &Value) -> Option<Self> {
        let columns = record.get("columns")?.as_array()?.iter().map(|column| {
            let path = column.get("path")?.as_array()?.iter();
            Some(Column {
                path: path.map(|step| step.as_str().map(str::to_owned)).collect::<Option<_>>()?,
                is_descending: column.get("descending")?.as_bool()?,
            })
        });
        Some(IndexDefinition {
            id: record.get("id")?.as_i64().and_then(|id| u16::try_from(id).ok())?,
            shape: IndexShape {
                scope: if record.get("partition")?.as_bool()? {
                    IndexScope::Partition
                } else {
                    IndexScope::Segment
                },
                columns: columns.collect::<Option<_>>()?,
            },
            is_ready: record.get("ready")?.as_bool()?,
            // Earlier versions retired no index.
            is_retired: record.get("retired").and_then(Value::as_bool).unwrap_or(false),
            last_use: LastUse::default(),
        })
    }
}

/// The logical partition and the segment of a document. The [`IndexScope`] decides which of
/// the two is the group of an index entry.
#[derive(Debug, Clone, Copy)]
pub(crate) struct IndexGroup<'a> {
    pub partition: &'a LogicalPartition,
    pub segment: SegmentId,
}

/// The value at a path of member names.
pub(crate) fn find<'v>(document: &'v Value, path: &[String]) -> Option<&'v Value> {
    path.iter().try_fold(document, |value, step| value.get(step))
}

/// The composite indexes that an indexing policy declares, each for both scopes. An
/// index with fewer than two columns, or with an invalid path, is left out.
pub(crate) fn declared(policy: &Value) -> Vec<IndexShape> {
    let composites = policy.get("compositeIndexes").and_then(Value::as_array).unwrap_or_default();
    let columns = composites.iter().filter_map(|composite| {
        composite.as_array()?.iter().map(declared_column).collect::<Option<Vec<Column>>>()
    });
    columns
        .filter(|columns| columns.len() > 1)
        .flat_map(|columns| {
            [IndexScope::Partition, IndexScope::Segment]
                .map(|scope| IndexShape { scope, columns: columns.clone() })
        })
        .collect()
}

/// A column of a declared index; `None` if its path is not valid.
fn declared_column(column: &Value) -> Option<Column> {
    let path = perihelion_model::partition_key::KeyPath::parse(column.get("path")?.as_str()?)?;
    let is_descending = column.get("order").and_then(Value::as_str) == Some("descending");
    Some(Column { path: path.steps, is_descending })
}
