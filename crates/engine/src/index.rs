//! Indexes: which exist, and how values become keys that sort as the service
//! sorts values.
//!
//! The service indexes every path of every document. We index what is asked
//! for: the composite indexes of the indexing policy from the start, and any
//! other shape (equalities, then an order or a range) once a query had to
//! look at many documents for few results. An index is kept in the same
//! keyspace as the documents and changes in the same commit, so a snapshot is
//! always consistent, and a write pays only for the shapes that are queried.
//! An index is used once it is `ready`: until then writes keep it up and the
//! backfill adds what was there before; both are idempotent.

mod encoding;

use perihelion_model::json::{Value, object};

pub(crate) use self::encoding::{encode, type_byte};
use crate::keys::{self, ContainerNumber, LogicalKey, SegmentId};

/// One index of a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexDefinition {
    pub id: u16,
    pub shape: IndexShape,
    /// Whether every document is in it.
    pub is_ready: bool,
}

/// The scope and columns of an index that exists, is declared, or is missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexShape {
    /// What the entries are grouped by.
    pub scope: IndexScope,
    /// The paths, in order.
    pub columns: Vec<Column>,
}

/// What the entries are grouped by before the columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IndexScope {
    /// One logical partition.
    Partition,
    /// One physical partition.
    Range,
}

/// A path of member names, and its direction.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Column {
    pub path: Vec<String>,
    pub is_descending: bool,
}

impl IndexDefinition {
    /// Where the entries of a group begin.
    pub fn group_prefix(&self, container: ContainerNumber, group: IndexGroup<'_>) -> Vec<u8> {
        let mut key = keys::index(container, self.id);
        match (self.shape.scope, group) {
            (IndexScope::Partition, IndexGroup { partition, .. }) => key.extend_from_slice(&partition.0),
            (IndexScope::Range, IndexGroup { segment, .. }) => key.extend_from_slice(&segment.to_be_bytes()),
        }
        key
    }

    /// The entry of one document.
    pub fn document_key(
        &self,
        container: ContainerNumber,
        group: IndexGroup<'_>,
        document: &Value,
        rid: u64,
    ) -> Vec<u8> {
        let mut key = self.group_prefix(container, group);
        for column in &self.shape.columns {
            encode(&mut key, find(document, &column.path), column.is_descending);
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
                    IndexScope::Range
                },
                columns: columns.collect::<Option<_>>()?,
            },
            is_ready: record.get("ready")?.as_bool()?,
        })
    }
}

/// The logical partition of a document and the segment it lies in.
#[derive(Debug, Clone, Copy)]
pub struct IndexGroup<'a> {
    pub partition: &'a LogicalKey,
    pub segment: SegmentId,
}

/// The value at a path of member names.
pub(crate) fn find<'v>(document: &'v Value, path: &[String]) -> Option<&'v Value> {
    path.iter().try_fold(document, |value, step| value.get(step))
}

/// The composite indexes that an indexing policy declares, for both scopes.
pub(crate) fn declared(policy: &Value) -> Vec<IndexShape> {
    let composites = policy.get("compositeIndexes").and_then(Value::as_array).unwrap_or_default();
    let columns = composites.iter().filter_map(|composite| {
        composite.as_array()?.iter().map(declared_column).collect::<Option<Vec<Column>>>()
    });
    columns
        .filter(|columns| columns.len() > 1)
        .flat_map(|columns| {
            [IndexScope::Partition, IndexScope::Range]
                .map(|scope| IndexShape { scope, columns: columns.clone() })
        })
        .collect()
}

fn declared_column(column: &Value) -> Option<Column> {
    let path = perihelion_model::partition_key::KeyPath::parse(column.get("path")?.as_str()?)?;
    let is_descending = column.get("order").and_then(Value::as_str) == Some("descending");
    Some(Column { path: path.steps, is_descending })
}
