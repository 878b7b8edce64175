//! A container: its definition, its physical partitions and its indexes.
//!
//! A [`Container`] is an immutable value inside the catalog. A change makes a
//! new one, which is published whole after its record is durable.

use std::sync::Arc;

use perihelion_model::json::{Object, Value, object};
use perihelion_model::partition_key::{
    EffectiveKey, EffectiveRange, KeyPath, PartitionKey, PartitionKeyDefinition,
};
use perihelion_model::resource_id::{ContainerRid, DatabaseRid};
use perihelion_query::{ComputedProperties, VectorEmbedding};

use super::record::{text_member, u32_member, u64_member};
use super::{IndexedPaths, ParsedDefinition, new_definition, search_policies};
use crate::index::{IndexDefinition, IndexShape};
use crate::keys::{ContainerNumber, RangeId, SegmentId};

/// One container of the catalog.
#[derive(Debug, Clone)]
pub struct Container {
    /// The `_rid`.
    pub rid: ContainerRid,
    /// The `_rid` as text. Nearly every answer about the container or its documents
    /// contains it.
    pub rid_text: String,
    /// The `_self`.
    pub self_link: String,
    /// The `id`.
    pub name: String,
    /// The members of the body that the user may set, normalised: `id`,
    /// `indexingPolicy`, ...
    pub definition: Object,
    /// The paths and the hash version of the partition key.
    pub partition_key: PartitionKeyDefinition,
    /// The paths of each unique key.
    pub unique_keys: Vec<Vec<KeyPath>>,
    /// The default TTL in seconds; -1 if a document expires only by its own TTL; `None` if
    /// no document expires.
    pub default_ttl: Option<i64>,
    /// The properties that queries compute.
    pub computed: Arc<ComputedProperties>,
    /// The paths that the indexing policy indexes, for charges.
    pub(crate) indexed_paths: IndexedPaths,
    /// The `_etag`.
    pub etag: String,
    /// The `_ts`.
    pub timestamp: u64,
    /// The physical partitions, in the order of their keys, without gaps.
    pub ranges: Vec<PartitionRange>,
    /// The id of the next physical partition.
    pub range_next: RangeId,
    pub(crate) indexes: Vec<IndexDefinition>,
    /// The numbers of removed indexes whose entries are still to be removed.
    pub(crate) index_purges: Vec<u16>,
    /// The number of the next index.
    pub(crate) index_next: u16,
    /// The LSN of a range of the container before its first write.
    pub lsn_first: u64,
    /// Whether every version is logged for the full-fidelity change feed.
    pub logs_versions: bool,
}

/// One physical partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionRange {
    /// The number of the range within the container.
    pub id: RangeId,
    /// Where the documents of the range are stored. The children of a split share their
    /// parent's segment.
    pub segment: SegmentId,
    /// The effective partition keys of the range.
    pub keys: EffectiveRange,
    /// The ranges that this range was split from, oldest first. The last one is its parent.
    pub parents: Vec<RangeId>,
}

impl PartitionRange {
    /// Whether this range has this id or was split from the range with this id.
    pub(crate) fn descends_from(&self, id: RangeId) -> bool {
        self.id == id || self.parents.contains(&id)
    }
}

impl Container {
    /// The container's number, unique in the account.
    pub fn number(&self) -> ContainerNumber {
        self.rid.number
    }

    /// The physical partition of a key.
    pub fn range_of(&self, key: &EffectiveKey) -> &PartitionRange {
        let after = self.ranges.partition_point(|range| range.keys.min <= *key);
        &self.ranges[after.saturating_sub(1)]
    }

    /// The physical partition with this id.
    pub fn range(&self, id: RangeId) -> Option<&PartitionRange> {
        self.ranges.iter().find(|range| range.id == id)
    }

    /// Whether GeoJSON in the container has coordinates of a plane.
    pub fn has_planar_geometry(&self) -> bool {
        new_definition::has_planar_geometry(&self.definition)
    }

    /// The distance functions of the container's vectors.
    pub fn vector_embeddings(&self) -> Vec<VectorEmbedding> {
        search_policies::embeddings(&self.definition)
    }

    /// Whether the indexing policy indexes the value at this path. `id` and `_ts` are indexed
    /// unless the policy indexes nothing.
    pub fn indexes_path(&self, path: &[String]) -> bool {
        self.indexed_paths.covers(&path.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// Whether some keys in the store depend on the contents of a document: the keys of indexes and
    /// of unique keys.
    pub(crate) fn needs_contents(&self) -> bool {
        !self.unique_keys.is_empty() || !self.indexes.is_empty()
    }

    /// The index with this shape, ready or not.
    pub(crate) fn index(&self, shape: &IndexShape) -> Option<&IndexDefinition> {
        self.indexes.iter().find(|index| index.shape == *shape)
    }

    /// The range with this id, or the ranges it was split into.
    pub(crate) fn ranges_of(&self, id: RangeId) -> impl Iterator<Item = RangeId> {
        self.ranges.iter().filter(move |range| range.descends_from(id)).map(|range| range.id)
    }

    /// Whether a range with this id existed and was split.
    pub fn was_split(&self, id: RangeId) -> bool {
        self.ranges.iter().any(|range| range.parents.contains(&id))
    }

    /// Whether a document has this partition key, or a partition key that begins with these levels.
    /// Keys are compared as they are: different keys may have the same hash.
    pub(crate) fn has_key(&self, document: &Value, key: &PartitionKey) -> bool {
        let Value::Object(members) = document else { return false };
        self.partition_key.extract(members).values.starts_with(&key.values)
    }

    /// The counter inside the `_rid` of one of this container's documents.
    pub fn parse_document_rid(&self, text: &str) -> Option<u64> {
        self.rid.parse_document(text)
    }

    /// The body as the service returns it.
    pub fn body(&self) -> Value {
        let mut body = self.definition.clone();
        body.set("_rid", self.rid_text.as_str().into());
        body.set("_ts", self.timestamp.into());
        body.set("_self", self.self_link.as_str().into());
        body.set("_etag", self.etag.as_str().into());
        for (name, link) in [
            ("_docs", "docs/"),
            ("_sprocs", "sprocs/"),
            ("_triggers", "triggers/"),
            ("_udfs", "udfs/"),
            ("_conflicts", "conflicts/"),
        ] {
            body.set(name, link.into());
        }
        Value::Object(body)
    }

    /// The record in the store.
    pub(crate) fn to_record(&self) -> Value {
        let ranges = self.ranges.iter().map(|range| {
            object([
                ("id", u64::from(range.id).into()),
                ("segment", u64::from(range.segment).into()),
                ("min", range.keys.min.to_hex().into()),
                ("max", range.keys.max.to_hex().into()),
                ("parents", Value::Array(range.parents.iter().map(|id| u64::from(*id).into()).collect())),
            ])
        });
        object([
            ("database", u64::from(self.rid.database.0).into()),
            ("number", u64::from(self.rid.number).into()),
            ("definition", Value::Object(self.definition.clone())),
            ("etag", self.etag.as_str().into()),
            ("timestamp", self.timestamp.into()),
            ("ranges", Value::Array(ranges.collect())),
            ("rangeNext", u64::from(self.range_next).into()),
            ("indexes", Value::Array(self.indexes.iter().map(IndexDefinition::to_record).collect())),
            ("indexPurges", Value::Array(self.index_purges.iter().map(|id| u64::from(*id).into()).collect())),
            ("indexNext", u64::from(self.index_next).into()),
            ("logsVersions", self.logs_versions.into()),
            ("lsnFirst", self.lsn_first.into()),
        ])
    }

    /// The container of a record; `None` if the record is damaged.
    pub(crate) fn from_record(record: &Value) -> Option<Self> {
        let definition = record.get("definition")?.as_object()?.clone();
        let parsed = ParsedDefinition::from_record(definition).ok()?;
        let ranges = record.get("ranges")?.as_array()?.iter().map(|range| {
            let key = |name: &str| EffectiveKey::from_hex(range.get(name)?.as_str()?);
            let parents = range.get("parents")?.as_array()?.iter();
            Some(PartitionRange {
                id: u32_member(range, "id")?,
                segment: u32_member(range, "segment")?,
                keys: EffectiveRange { min: key("min")?, max: key("max")? },
                parents: parents
                    .map(|id| id.as_i64().and_then(|id| u32::try_from(id).ok()))
                    .collect::<Option<_>>()?,
            })
        });
        let database = DatabaseRid(u32_member(record, "database")?);
        let rid = ContainerRid { database, number: u32_member(record, "number")? };
        Some(Container {
            rid,
            rid_text: rid.to_text(),
            self_link: self_link(rid),
            name: parsed.name,
            indexed_paths: IndexedPaths::new(parsed.definition.get("indexingPolicy")),
            definition: parsed.definition,
            partition_key: parsed.partition_key,
            unique_keys: parsed.unique_keys,
            default_ttl: parsed.default_ttl,
            computed: parsed.computed,
            etag: text_member(record, "etag")?,
            timestamp: u64_member(record, "timestamp")?,
            ranges: ranges.collect::<Option<_>>()?,
            range_next: u32_member(record, "rangeNext")?,
            indexes: record
                .get("indexes")?
                .as_array()?
                .iter()
                .map(IndexDefinition::from_record)
                .collect::<Option<_>>()?,
            // Earlier versions removed no index.
            index_purges: record.get("indexPurges").map_or(Some(Vec::new()), index_ids)?,
            index_next: u32_member(record, "indexNext")? as u16,
            logs_versions: record.get("logsVersions")?.as_bool()?,
            // Containers of earlier versions began with 1.
            lsn_first: u64_member(record, "lsnFirst").unwrap_or(1),
        })
    }
}

fn index_ids(list: &Value) -> Option<Vec<u16>> {
    list.as_array()?.iter().map(|id| id.as_i64().and_then(|id| u16::try_from(id).ok())).collect()
}

/// The `_self` of a container.
pub(crate) fn self_link(rid: ContainerRid) -> String {
    format!("dbs/{}/colls/{}/", rid.database.to_text(), rid.to_text())
}
