//! The target of an item operation: the logical and physical partition that a
//! partition key leads to.

use std::sync::Arc;

use bytes::Bytes;
use perihelion_model::partition_key::{EffectiveKey, PartitionKey};

use crate::catalog::{Container, PartitionRange};
use crate::documents::stored::StoredDocument;
use crate::index::IndexGroup;
use crate::keys::LogicalKey;
use crate::refusal::Refusal;
use crate::replication::DocumentKey;

/// A logical partition, and the physical partition it lies in.
#[derive(Debug, Clone)]
pub struct Target {
    /// The container.
    pub container: Arc<Container>,
    pub(crate) partition: LogicalKey,
    pub(crate) effective: Bytes,
    /// The physical partition.
    pub range: PartitionRange,
    /// Empty for a change of another region, which brings its hashes along.
    pub(super) key: PartitionKey,
}

impl Target {
    /// Resolves a whole partition key; a prefix is refused.
    pub fn resolve(container: &Arc<Container>, key: PartitionKey) -> Result<Self, Refusal> {
        if key.values.len() != container.partition_key.paths.len() {
            return Err(Refusal::partition_key_missing());
        }
        let effective = container.partition_key.effective(&key);
        let range = container.range_of(&effective).clone();
        Ok(Target {
            container: Arc::clone(container),
            partition: LogicalKey::of(&key),
            effective: Bytes::from(effective.0),
            range,
            key,
        })
    }

    /// The target of a change that another region made.
    pub(crate) fn replicated(container: &Arc<Container>, partition: LogicalKey, effective: Bytes) -> Self {
        let range = container.range_of(&EffectiveKey(effective.to_vec())).clone();
        let key = PartitionKey { values: Vec::new() };
        Target { container: Arc::clone(container), partition, effective, range, key }
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
