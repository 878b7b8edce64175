//! The target of an item operation: the logical and the physical partition of a partition key.

use std::sync::Arc;

use bytes::Bytes;
use perihelion_model::partition_key::{EffectiveKey, PartitionKey};

use crate::catalog::{Container, PartitionRange};
use crate::documents::stored::StoredDocument;
use crate::index::IndexGroup;
use crate::keys::LogicalPartition;
use crate::refusal::Refusal;
use crate::replication::DocumentKey;

/// A logical partition of a container, and the physical partition that holds it.
#[derive(Debug, Clone)]
pub struct Target {
    /// The container.
    pub container: Arc<Container>,
    /// The name of the logical partition, by which documents are found.
    pub(crate) partition: LogicalPartition,
    /// The effective partition key, by which the physical partition is chosen.
    pub(crate) effective_key: Bytes,
    /// The physical partition.
    pub range: PartitionRange,
    /// The partition key. Empty for a change of another region, which has only the name of
    /// the logical partition.
    pub(super) key: PartitionKey,
}

impl Target {
    /// Resolves a whole partition key. A key with another number of levels is refused.
    pub fn resolve(container: &Arc<Container>, key: PartitionKey) -> Result<Self, Refusal> {
        if key.values.len() != container.partition_key.paths.len() {
            return Err(Refusal::partition_key_of_other_levels(&key));
        }
        let effective = container.partition_key.effective(&key);
        let range = container.range_of(&effective).clone();
        Ok(Target {
            container: Arc::clone(container),
            partition: LogicalPartition::of(&key),
            effective_key: Bytes::from(effective.0),
            range,
            key,
        })
    }

    /// The target of a change that another region made.
    pub(crate) fn replicated(
        container: &Arc<Container>,
        partition: LogicalPartition,
        effective_key: Bytes,
    ) -> Self {
        let range = container.range_of(&EffectiveKey(effective_key.to_vec())).clone();
        let key = PartitionKey { values: Vec::new() };
        Target { container: Arc::clone(container), partition, effective_key, range, key }
    }

    /// Whether a document has this partition key.
    pub(crate) fn has_key_of(&self, document: &StoredDocument) -> bool {
        self.container.has_key(&document.value(), &self.key)
    }

    pub(super) fn has_expired(&self, document: &StoredDocument, now: u64) -> bool {
        document.is_expired(self.container.default_ttl, now)
    }

    pub(super) fn index_group(&self) -> IndexGroup<'_> {
        IndexGroup { partition: &self.partition, segment: self.range.segment }
    }

    pub(crate) fn document_key<'a>(&'a self, id: &'a str) -> DocumentKey<'a> {
        DocumentKey { container: self.container.number(), partition: &self.partition, id }
    }
}
