//! Counting all documents of a scope (`SELECT VALUE COUNT(1) FROM c`) without reading them.
//!
//! - Physical partitions are counted by the counters of the container. Where partitions share a segment
//!   after a split, only the sum of their counters is exact: each begins with half of its parent's number.
//! - A logical partition, or all logical partitions whose hierarchical keys begin with some levels, are
//!   counted by the keys in their lists of documents.
//!
//! Both methods count documents that are expired and not removed yet, so they are used for containers
//! without a TTL only. In all other cases the documents are scanned, but not parsed.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use perihelion_model::partition_key::PartitionKey;

use super::QueryScope;
use super::rows::Context;
use super::sources::{self, KEYS_PER_CHECK, ScanRange};
use crate::documents::keep_refusal;
use crate::keys::{self, LogicalPartition, OwnedKeyRange, RangeId, SegmentId};
use crate::refusal::Refusal;
use crate::storage::Direction;

impl Context<'_> {
    /// The number of documents in the scope of the query. Adds the number of documents that were read
    /// to `documents`.
    pub(super) fn count_documents(&self, documents: &mut u64) -> Result<u64, Refusal> {
        let ranges = sources::scan_ranges(self.container, &self.request.scope);
        if self.container.default_ttl.is_some() {
            return self.count_by_scan(&ranges, documents);
        }
        match &self.request.scope {
            QueryScope::Partition(target) => self.count_members(&target.partition),
            QueryScope::Prefix { key, ranges: listed } if self.are_all_of_prefix(key, listed) => {
                self.count_members(&LogicalPartition::of(key))
            }
            QueryScope::Prefix { .. } => self.count_by_scan(&ranges, documents),
            QueryScope::Ranges(_) | QueryScope::All => self.count_ranges(ranges, documents),
        }
    }

    /// Counts the documents of these physical partitions. Reads the documents of a segment if the
    /// scope has only a part of the segment.
    fn count_ranges(&self, mut ranges: Vec<ScanRange<'_>>, documents: &mut u64) -> Result<u64, Refusal> {
        let mut count = 0;
        for segment in ranges.iter().map(ScanRange::segment).collect::<BTreeSet<_>>() {
            if let Some(stored) = self.documents_of_whole_segment(segment, &ranges) {
                count += stored;
                ranges.retain(|range| range.segment() != segment);
            }
        }
        Ok(count + self.count_by_scan(&ranges, documents)?)
    }

    /// The number of stored documents of a segment, if the scope has all its partitions, each once
    /// and with all its keys.
    fn documents_of_whole_segment(&self, segment: SegmentId, ranges: &[ScanRange<'_>]) -> Option<u64> {
        let selected = || ranges.iter().filter(|range| range.segment() == segment);
        let members = || self.container.ranges.iter().filter(|range| range.segment == segment);
        let is_whole = selected().count() == members().count()
            && members().all(|range| selected().any(|selected| selected.is_whole(range)));
        let counters = members().map(|range| self.state.range(range.id).map(|range| range.documents));
        let stored = counters.sum::<Option<i64>>().filter(|_| is_whole)?;
        u64::try_from(stored).ok()
    }

    /// Whether these are all physical partitions with keys that begin with these levels.
    fn are_all_of_prefix(&self, key: &PartitionKey, ranges: &[RangeId]) -> bool {
        let keys = self.container.partition_key.effective_range(key);
        let mut overlapping = self.container.ranges.iter().filter(|range| range.keys.overlaps(&keys));
        overlapping.all(|range| ranges.contains(&range.id))
    }

    /// Counts the keys in the list of documents of a logical partition, or of all logical partitions
    /// whose names begin with this name.
    fn count_members(&self, partition: &LogicalPartition) -> Result<u64, Refusal> {
        let prefix = keys::partition_member_prefix(self.container.number(), &partition.0);
        let mut count = 0;
        self.each_key(&OwnedKeyRange::prefix(&prefix), &mut |_| {
            count += 1;
            ControlFlow::Continue(())
        })?;
        Ok(count)
    }

    /// Counts documents by reading them.
    fn count_by_scan(&self, ranges: &[ScanRange<'_>], documents: &mut u64) -> Result<u64, Refusal> {
        let mut count = 0;
        self.each_document_in(ranges, &mut |_| {
            count += 1;
            Ok(ControlFlow::Continue(()))
        })?;
        *documents += count;
        Ok(count)
    }

    /// Calls `visit` with keys until it breaks. The page is refused if that takes too long.
    fn each_key(
        &self,
        key_range: &OwnedKeyRange,
        visit: &mut dyn FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<(), Refusal> {
        let (mut keys_read, mut outcome) = (0_usize, Ok(()));
        self.view.scan(key_range.as_range(), Direction::Forward, &mut |key, _| {
            keys_read += 1;
            if keys_read.is_multiple_of(KEYS_PER_CHECK) {
                let checked = self.pace.check_gathering().map(|()| ControlFlow::Continue(()));
                if keep_refusal(checked, &mut outcome).is_break() {
                    return ControlFlow::Break(());
                }
            }
            visit(key)
        })?;
        outcome
    }
}
