//! Scanning the keys that a plan chose. A scan visits documents one by one, in
//! `_rid` order or in the order of an index, from the end of the last page on.
//! In this file `rid` is the counter in the `_rid` of a document.

use std::ops::{Bound, ControlFlow};

use crate::catalog::{Container, PartitionRange};
use crate::documents::{StoredDocument, contains};
use crate::index::IndexGroup;
use crate::keys::{self, LogicalPartition, OwnedKeyRange, RangeId, SegmentId};
use crate::query::QueryScope;
use crate::query::access::IndexUse;
use crate::refusal::Refusal;
use crate::storage::{Direction, View};

use perihelion_model::partition_key::{EffectiveRange, PartitionKey};

/// Called with each document and the counter in its `_rid`. Breaks, or refuses, to end
/// the scan.
pub(super) type Consumer<'a> = dyn FnMut(u64, StoredDocument) -> Result<ControlFlow<()>, Refusal> + 'a;

/// The part of a query's scope that is in one physical partition.
#[derive(Debug, Clone)]
pub(super) struct ScanRange<'a> {
    pub(super) id: RangeId,
    segment: SegmentId,
    filter: ScanFilter<'a>,
}

/// Which documents of the segment belong to a [`ScanRange`].
#[derive(Debug, Clone)]
enum ScanFilter<'a> {
    /// The documents of one logical partition.
    Partition(&'a LogicalPartition),
    /// The documents whose hierarchical key begins with these levels, within the effective
    /// keys of the range.
    Prefix(&'a PartitionKey, EffectiveRange),
    /// The documents with these effective keys.
    Keys(EffectiveRange),
}

/// The parts of a scope, in the order in which they are read.
pub(super) fn scan_ranges<'a>(container: &Container, scope: &'a QueryScope) -> Vec<ScanRange<'a>> {
    let scan_range = |id: RangeId, filter: ScanFilter<'a>| {
        let segment = container.range(id).map_or(id, |range| range.segment);
        ScanRange { id, segment, filter }
    };
    match scope {
        QueryScope::Partition(target) => {
            vec![scan_range(target.range.id, ScanFilter::Partition(&target.partition))]
        }
        QueryScope::Prefix { key, ranges } => {
            let ranges = ranges.iter().filter_map(|id| container.range(*id));
            let keys = container.partition_key.effective_range(key);
            let filter = |range: &PartitionRange| ScanFilter::Prefix(key, range.keys.intersection(&keys));
            ranges.map(|range| scan_range(range.id, filter(range))).collect()
        }
        QueryScope::Ranges(ranges) => {
            ranges.iter().map(|(range, keys)| scan_range(*range, ScanFilter::Keys(keys.clone()))).collect()
        }
        QueryScope::All => container
            .ranges
            .iter()
            .map(|range| scan_range(range.id, ScanFilter::Keys(range.keys.clone())))
            .collect(),
    }
}

/// A scan of one part of a scope. `now` is in seconds since 1970.
pub(super) struct Scan<'a> {
    pub(super) view: &'a dyn View,
    pub(super) container: &'a Container,
    pub(super) range: &'a ScanRange<'a>,
    pub(super) now: u64,
}

impl Scan<'_> {
    /// Visits documents in the order of their `_rid`, from the counter `first` on: the
    /// documents that the index selects, or all documents without an index.
    pub(super) fn visit_by_rid(
        &self,
        index: Option<&IndexUse>,
        first: u64,
        consume: &mut Consumer<'_>,
    ) -> Result<(), Refusal> {
        match (index, &self.range.filter) {
            (Some(used), _) if used.is_by_rid => {
                let prefix = self.index_prefix(used, only_prefix(used));
                self.visit_prefix(&prefix, first, &mut self.with_levels(consume))
            }
            (Some(used), _) => {
                let mut rids = self.index_entry_rids(used)?;
                rids.retain(|rid| *rid >= first);
                rids.sort_unstable();
                self.visit_all(rids, &mut self.with_levels(consume))
            }
            (None, ScanFilter::Keys(_)) => self.visit_segment(first, consume),
            (None, ScanFilter::Partition(partition)) => self.visit_prefix(
                &keys::partition_member_prefix(self.container.number(), &partition.0),
                first,
                consume,
            ),
            (None, ScanFilter::Prefix(levels, _)) => {
                let mut rids = self.member_rids(&LogicalPartition::of(levels).0)?;
                rids.retain(|rid| *rid >= first);
                rids.sort_unstable();
                self.visit_all(rids, consume)
            }
        }
    }

    /// Visits the documents that an index selects, in the order of the index. `start` is
    /// the encoded key, without the prefix, at which the scan begins.
    pub(super) fn visit_by_index(
        &self,
        used: &IndexUse,
        start: Option<&[u8]>,
        consume: &mut Consumer<'_>,
    ) -> Result<(), Refusal> {
        let direction = if used.is_backward { Direction::Backward } else { Direction::Forward };
        let key_range = self.index_key_range(used, only_prefix(used), start);
        self.visit_keys(&key_range, direction, &mut self.with_levels(consume))
    }

    /// Passes on only the documents whose key begins with the levels of the scope, if it has
    /// levels. The entries of an index are not grouped by them, and different keys may have
    /// the same hash.
    fn with_levels<'c>(
        &'c self,
        consume: &'c mut Consumer<'_>,
    ) -> impl FnMut(u64, StoredDocument) -> Result<ControlFlow<()>, Refusal> + 'c {
        move |rid, document| match &self.range.filter {
            ScanFilter::Prefix(levels, _) if !self.container.has_key(&document.value(), levels) => {
                Ok(ControlFlow::Continue(()))
            }
            _ => consume(rid, document),
        }
    }

    /// Visits the documents of the segment, from the `_rid` counter `first` on.
    fn visit_segment(&self, first: u64, consume: &mut Consumer<'_>) -> Result<(), Refusal> {
        let number = self.container.number();
        let prefix = keys::document_prefix(number, self.range.segment);
        let from = keys::document(number, self.range.segment, first);
        let key_range = OwnedKeyRange::between(&from, &keys::after_prefix(&prefix));
        let mut outcome = Ok(());
        self.view.scan(key_range.as_range(), Direction::Forward, &mut |key, record| {
            let document = StoredDocument::decode(&bytes::Bytes::copy_from_slice(record));
            match (keys::last_u64(key), document) {
                (Some(rid), Some(document)) if self.is_in_scope(&document) => {
                    keep_refusal(consume(rid, document), &mut outcome)
                }
                _ => ControlFlow::Continue(()),
            }
        })?;
        outcome
    }

    /// Visits the documents of the keys with a prefix, from the `_rid` counter `first` on.
    /// These keys are the prefix and the `_rid` counter, with nothing between or after them.
    fn visit_prefix(&self, prefix: &[u8], first: u64, consume: &mut Consumer<'_>) -> Result<(), Refusal> {
        let from = [prefix, &first.to_be_bytes()].concat();
        self.visit_keys(
            &OwnedKeyRange::between(&from, &keys::after_prefix(prefix)),
            Direction::Forward,
            consume,
        )
    }

    /// Visits the documents whose `_rid` counters are the last bytes of the keys in a range.
    fn visit_keys(
        &self,
        key_range: &OwnedKeyRange,
        direction: Direction,
        consume: &mut Consumer<'_>,
    ) -> Result<(), Refusal> {
        let mut outcome = Ok(());
        self.view.scan(key_range.as_range(), direction, &mut |key, _| {
            let Some(rid) = keys::last_u64(key) else { return ControlFlow::Continue(()) };
            self.visit(rid, consume, &mut outcome)
        })?;
        outcome
    }

    /// The `_rid` counters of the entries that an index use selects, in the order of the
    /// index.
    fn index_entry_rids(&self, used: &IndexUse) -> Result<Vec<u64>, Refusal> {
        let mut rids = Vec::new();
        for prefix in &used.prefixes {
            rids.append(&mut self.rids_in(&self.index_key_range(used, prefix, None))?);
        }
        Ok(rids)
    }

    /// The `_rid` counters of the documents whose logical partition begins with `prefix`.
    fn member_rids(&self, prefix: &[u8]) -> Result<Vec<u64>, Refusal> {
        self.rids_in(&OwnedKeyRange::prefix(&keys::partition_member_prefix(self.container.number(), prefix)))
    }

    /// The `_rid` counters at the end of the keys in a range.
    fn rids_in(&self, key_range: &OwnedKeyRange) -> Result<Vec<u64>, Refusal> {
        let mut rids = Vec::new();
        self.view.scan(key_range.as_range(), Direction::Forward, &mut |key, _| {
            rids.extend(keys::last_u64(key));
            ControlFlow::Continue(())
        })?;
        Ok(rids)
    }

    /// Visits the document with this `_rid` counter, if it is in this part of the scope. The
    /// counter comes from a token, so it may be that of another logical partition.
    pub(super) fn visit_rid(&self, rid: u64, consume: &mut Consumer<'_>) -> Result<(), Refusal> {
        let is_member = match &self.range.filter {
            ScanFilter::Partition(partition) => {
                self.view.get(&keys::partition_member(self.container.number(), partition, rid))?.is_some()
            }
            ScanFilter::Prefix(..) | ScanFilter::Keys(_) => true,
        };
        if is_member { self.visit_all(vec![rid], &mut self.with_levels(consume)) } else { Ok(()) }
    }

    /// Visits the documents with these `_rid` counters, in this order.
    fn visit_all(&self, rids: Vec<u64>, consume: &mut Consumer<'_>) -> Result<(), Refusal> {
        let mut outcome = Ok(());
        for rid in rids {
            if self.visit(rid, consume, &mut outcome).is_break() {
                break;
            }
        }
        outcome
    }

    /// Reads a document, and passes it to `consume` if it belongs to this part of the scope.
    /// A refusal is stored in `outcome` and ends the scan.
    fn visit(
        &self,
        rid: u64,
        consume: &mut Consumer<'_>,
        outcome: &mut Result<(), Refusal>,
    ) -> ControlFlow<()> {
        let key = keys::document(self.container.number(), self.range.segment, rid);
        match self.view.get(&key) {
            Ok(record) => match record.as_ref().and_then(StoredDocument::decode) {
                Some(document) if self.is_in_scope(&document) => {
                    keep_refusal(consume(rid, document), outcome)
                }
                _ => ControlFlow::Continue(()),
            },
            Err(error) => keep_refusal(Err(error.into()), outcome),
        }
    }

    /// Whether a document belongs to this part of the scope and is not expired.
    fn is_in_scope(&self, document: &StoredDocument) -> bool {
        let is_inside = match &self.range.filter {
            ScanFilter::Partition(_) => true,
            ScanFilter::Prefix(_, keys) | ScanFilter::Keys(keys) => contains(keys, &document.effective_key),
        };
        is_inside && !document.is_expired(self.container.default_ttl, self.now)
    }

    /// The beginning of the index keys in this part of the scope whose values begin with
    /// `prefix`.
    fn index_prefix(&self, used: &IndexUse, prefix: &[u8]) -> Vec<u8> {
        let no_partition = LogicalPartition(Vec::new());
        let partition = match &self.range.filter {
            ScanFilter::Partition(partition) => partition,
            ScanFilter::Prefix(..) | ScanFilter::Keys(_) => &no_partition,
        };
        let group = IndexGroup { partition, segment: self.range.segment };
        [&used.definition.group_prefix(self.container.number(), group), prefix].concat()
    }

    /// The index keys to scan: those with this prefix, within the bounds of the index use,
    /// and from `start` on in the direction of the scan.
    fn index_key_range(&self, used: &IndexUse, prefix: &[u8], start: Option<&[u8]>) -> OwnedKeyRange {
        let prefix = self.index_prefix(used, prefix);
        let joined = |key: &[u8]| [prefix.as_slice(), key].concat();
        let from = match &used.from {
            Bound::Unbounded => Bound::Included(prefix.clone()),
            Bound::Included(key) => Bound::Included(joined(key)),
            // Entries have more bytes after the value. So the scan starts after all entries
            // with this value.
            Bound::Excluded(key) => Bound::Included(keys::after_prefix(&joined(key))),
        };
        let to = match &used.to {
            Bound::Unbounded => Bound::Excluded(keys::after_prefix(&prefix)),
            Bound::Included(key) => Bound::Excluded(keys::after_prefix(&joined(key))),
            Bound::Excluded(key) => Bound::Excluded(joined(key)),
        };
        match start {
            None => OwnedKeyRange { from, to },
            Some(start) if used.is_backward => {
                OwnedKeyRange { from, to: Bound::Excluded(keys::after_prefix(&joined(start))) }
            }
            Some(start) => OwnedKeyRange { from: Bound::Included(joined(start)), to },
        }
    }
}

/// The prefix of an index use with exactly one prefix. An index use has exactly one prefix
/// if its scan is in `_rid` order or in the order of the query.
fn only_prefix(used: &IndexUse) -> &[u8] {
    debug_assert_eq!(used.prefixes.len(), 1);
    used.prefixes.first().map_or(&[], Vec::as_slice)
}

/// Ends a scan on a refusal and stores the refusal in `outcome`.
fn keep_refusal(
    flow: Result<ControlFlow<()>, Refusal>,
    outcome: &mut Result<(), Refusal>,
) -> ControlFlow<()> {
    flow.unwrap_or_else(|refusal| {
        *outcome = Err(refusal);
        ControlFlow::Break(())
    })
}
