//! `KeySpace`: how a container's partition keys are spread over its physical partitions, at
//! one time. Readers that share a container divide its ranges further, and find out which
//! range a partition key belongs to. Neither needs a request.

use std::sync::Arc;

use perihelion_driver::ContainerMetadata;
use perihelion_model::partition_key::PartitionKey;

use crate::FeedRange;

/// The physical partitions of a container, and the hash that places partition keys. See
/// [`Container::key_space`](crate::Container::key_space).
///
/// ```no_run
/// # async fn example(orders: perihelion_client::Container) -> Result<(), perihelion_client::Error> {
/// let space = orders.key_space().await?;
/// let halves: Vec<_> = space.feed_ranges().iter().flat_map(|range| space.divide(range, 2)).collect();
/// let mine = halves.iter().find(|half| half.contains(&space.range_of("ada")));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct KeySpace {
    metadata: Arc<ContainerMetadata>,
}

impl KeySpace {
    pub(crate) fn new(metadata: Arc<ContainerMetadata>) -> Self {
        KeySpace { metadata }
    }

    /// One range for each physical partition, in the order of their keys.
    pub fn feed_ranges(&self) -> Vec<FeedRange> {
        self.metadata.ranges.iter().map(|range| FeedRange::of(&range.range)).collect()
    }

    /// The range of the documents with this partition key. For a prefix of a hierarchical key,
    /// the range of all keys with this prefix.
    pub fn range_of(&self, key: impl Into<PartitionKey>) -> FeedRange {
        FeedRange::of(&self.metadata.partition_key.effective_range(&key.into()))
    }

    /// Divides a range into `parts` ranges with about the same number of keys each. Returns the
    /// range itself if it is too narrow, or if `parts` is below two.
    pub fn divide(&self, range: &FeedRange, parts: u32) -> Vec<FeedRange> {
        if parts < 2 {
            return vec![range.clone()];
        }
        let divided = range.effective_range().split_evenly(parts, self.metadata.partition_key.version);
        match divided.iter().all(|part| part.min < part.max) {
            true => divided.iter().map(FeedRange::of).collect(),
            false => vec![range.clone()],
        }
    }

    /// Whether both key spaces come from the same read of the container's metadata.
    pub fn is_same(&self, other: &KeySpace) -> bool {
        Arc::ptr_eq(&self.metadata, &other.metadata)
    }
}
