//! Scanning the keys that a plan chose. A scan visits documents one by one, in
//! `_rid` order or in the order of an index, from the end of the last page on. It ends
//! when its consumer breaks, or when the time of the page is over.
//! In this file `rid` is the counter in the `_rid` of a document.

use std::ops::{Bound, ControlFlow};

use crate::catalog::{Container, PartitionRange};
use crate::documents::{StoredDocument, contains, keep_refusal};
use crate::index::{IndexGroup, STRING_BYTES_MAX, cut_order};
use crate::keys::{self, LogicalPartition, OwnedKeyRange, RangeId, SegmentId};
use crate::pace::{Pace, PageEnd};
use crate::query::QueryScope;
use crate::query::access::IndexUse;
use crate::query::pause::INDEX_KEY_BYTES_MAX;
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

impl ScanRange<'_> {
    pub(super) fn segment(&self) -> SegmentId {
        self.segment
    }

    /// Whether this part of the scope has all documents of a physical partition.
    pub(super) fn is_whole(&self, range: &PartitionRange) -> bool {
        self.id == range.id
            && matches!(&self.filter, ScanFilter::Keys(keys) if keys.intersection(&range.keys) == range.keys)
    }
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
    pub(super) pace: &'a Pace<'a>,
    /// How the scan ends when the time of the page is over; `None` for a scan that must not end. Such
    /// a scan is refused when it takes too long.
    pub(super) page_end: Option<PageEnd>,
    pub(super) now: u64,
}

/// How a scan ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ScanEnd<P> {
    /// Every document was visited.
    Complete,
    /// The consumer ended the scan.
    Stopped,
    /// The time of the page was over before this entry.
    Paused(P),
}

/// The `_rid` counter of an index entry, and the beginning of its key without the prefix.
pub(super) type IndexPlace = (u64, Vec<u8>);

/// The most `_rid` counters that are sorted in memory at once. They have to be sorted because index
/// entries of several values are not in `_rid` order. If there are more, the documents are visited in
/// several parts.
const RIDS_IN_MEMORY_MAX: usize = 64 * 1024;

/// How many keys are read between two checks whether other reads wait. To read them takes about 0.1
/// ms.
pub(super) const KEYS_PER_CHECK: usize = 1024;

impl Scan<'_> {
    /// Visits documents in the order of their `_rid`, from the counter `first` on: the
    /// documents that the index selects, or all documents without an index.
    pub(super) fn visit_by_rid(
        &self,
        index: Option<&IndexUse>,
        first: u64,
        consume: &mut Consumer<'_>,
    ) -> Result<ScanEnd<u64>, Refusal> {
        match (index, &self.range.filter) {
            (Some(used), _) if used.is_by_rid => {
                let prefix = self.index_prefix(used, only_prefix(used));
                self.visit_prefix(&prefix, first, &mut self.with_levels(consume))
            }
            (Some(used), _) => {
                let key_ranges: Vec<OwnedKeyRange> =
                    used.prefixes.iter().map(|prefix| self.index_key_range(used, prefix, None)).collect();
                self.visit_in_parts(&key_ranges, first, &mut self.with_levels(consume))
            }
            (None, ScanFilter::Keys(_)) => self.visit_segment(first, consume),
            (None, ScanFilter::Partition(partition)) => self.visit_prefix(
                &keys::partition_member_prefix(self.container.number(), &partition.0),
                first,
                consume,
            ),
            (None, ScanFilter::Prefix(levels, _)) => {
                let prefix =
                    keys::partition_member_prefix(self.container.number(), &LogicalPartition::of(levels).0);
                self.visit_in_parts(&[OwnedKeyRange::prefix(&prefix)], first, consume)
            }
        }
    }

    /// Visits the documents that an index selects, in the order of the index. `start` is the
    /// encoded key, without the prefix, at which the scan begins. The scan does not pause at an
    /// entry whose key begins like `start`, because the next page would begin at the same place.
    /// Entries that a cut string makes equal are not in order, so all of them are read before a row
    /// is returned. The page is refused if that takes too long.
    pub(super) fn visit_by_index(
        &self,
        used: &IndexUse,
        start: Option<Vec<u8>>,
        consume: &mut Consumer<'_>,
    ) -> Result<ScanEnd<IndexPlace>, Refusal> {
        let direction = if used.is_backward { Direction::Backward } else { Direction::Forward };
        let key_range = self.index_key_range(used, only_prefix(used), start.as_deref());
        let prefix_length = self.index_prefix(used, only_prefix(used)).len();
        let consume = &mut self.with_levels(consume);
        let (mut outcome, mut end) = (Ok(()), ScanEnd::Complete);
        let mut tie = Vec::new();
        self.view.scan(key_range.as_range(), direction, &mut |key, _| {
            let Some(rid) = keys::last_u64(key) else { return ControlFlow::Continue(()) };
            let whole = key.get(prefix_length..key.len() - 8).unwrap_or_default();
            let values = &whole[..whole.len().min(INDEX_KEY_BYTES_MAX)];
            let has_advanced = start.as_deref().is_none_or(|start| !start.starts_with(values));
            let ends = if !has_advanced && continues_tie(whole, &mut tie) {
                outcome = self.pace.check_gathering();
                outcome.is_err()
            } else {
                self.ends_before_entry(&mut outcome) && (has_advanced || outcome.is_err())
            };
            if ends {
                end = ScanEnd::Paused((rid, values.to_vec()));
                return ControlFlow::Break(());
            }
            let flow = self.visit(rid, consume, &mut outcome);
            if flow.is_break() {
                end = ScanEnd::Stopped;
            }
            flow
        })?;
        outcome.map(|()| end)
    }

    /// Counts an entry that is about to be visited. Returns whether the scan ends before the entry,
    /// because the time of the page is over or the page is refused. A refusal is stored in
    /// `outcome`.
    fn ends_before_entry(&self, outcome: &mut Result<(), Refusal>) -> bool {
        // Entries outside of the scope count too: a scan of a small interval of effective keys may read
        // past many of them.
        let ends = match self.page_end {
            Some(end) => self.pace.ends_before_entry(end),
            None => self.pace.check_gathering().map(|()| false),
        };
        ends.unwrap_or_else(|refusal| {
            *outcome = Err(refusal);
            true
        })
    }

    /// Passes on only the documents whose key begins with the levels of the scope, if it has
    /// levels. The entries of an index are not grouped by these levels, and different keys may have
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
    fn visit_segment(&self, first: u64, consume: &mut Consumer<'_>) -> Result<ScanEnd<u64>, Refusal> {
        let number = self.container.number();
        let prefix = keys::document_prefix(number, self.range.segment);
        let from = keys::document(number, self.range.segment, first);
        let key_range = OwnedKeyRange::between(&from, &keys::after_prefix(&prefix));
        let (mut outcome, mut end) = (Ok(()), ScanEnd::Complete);
        self.view.scan(key_range.as_range(), Direction::Forward, &mut |key, record| {
            let Some(rid) = keys::last_u64(key) else { return ControlFlow::Continue(()) };
            if self.ends_before_entry(&mut outcome) {
                end = ScanEnd::Paused(rid);
                return ControlFlow::Break(());
            }
            let document = StoredDocument::decode(&bytes::Bytes::copy_from_slice(record));
            let flow = self.pass_on(rid, document, consume, &mut outcome);
            if flow.is_break() {
                end = ScanEnd::Stopped;
            }
            flow
        })?;
        outcome.map(|()| end)
    }

    /// Visits the documents of the keys with a prefix, from the `_rid` counter `first` on.
    /// These keys are the prefix and the `_rid` counter, with nothing between or after them.
    fn visit_prefix(
        &self,
        prefix: &[u8],
        first: u64,
        consume: &mut Consumer<'_>,
    ) -> Result<ScanEnd<u64>, Refusal> {
        let from = [prefix, &first.to_be_bytes()].concat();
        let key_range = OwnedKeyRange::between(&from, &keys::after_prefix(prefix));
        let (mut outcome, mut end) = (Ok(()), ScanEnd::Complete);
        self.view.scan(key_range.as_range(), Direction::Forward, &mut |key, _| {
            let Some(rid) = keys::last_u64(key) else { return ControlFlow::Continue(()) };
            self.visit_next(rid, consume, &mut outcome, &mut end)
        })?;
        outcome.map(|()| end)
    }

    /// Visits the documents of the keys in these ranges, in the order of their `_rid` counters,
    /// from the counter `first` on. Each key ends with the counter of its document.
    fn visit_in_parts(
        &self,
        key_ranges: &[OwnedKeyRange],
        mut first: u64,
        consume: &mut Consumer<'_>,
    ) -> Result<ScanEnd<u64>, Refusal> {
        loop {
            let (rids, is_last_part) = self.smallest_rids(key_ranges, first)?;
            let last = rids.last().copied();
            match self.visit_all(rids, consume)? {
                ScanEnd::Complete if !is_last_part => first = last.map_or(first, |rid| rid.saturating_add(1)),
                end => return Ok(end),
            }
        }
    }

    /// The smallest `_rid` counters, from `first` on, at the end of the keys in these ranges, and
    /// whether these are all.
    fn smallest_rids(&self, key_ranges: &[OwnedKeyRange], first: u64) -> Result<(Vec<u64>, bool), Refusal> {
        let mut rids: Vec<u64> = Vec::new();
        let (mut is_last_part, mut keys_read, mut outcome) = (true, 0_usize, Ok(()));
        for key_range in key_ranges {
            self.view.scan(key_range.as_range(), Direction::Forward, &mut |key, _| {
                keys_read += 1;
                if keys_read.is_multiple_of(KEYS_PER_CHECK) {
                    let checked = self.pace.check_gathering().map(|()| ControlFlow::Continue(()));
                    if keep_refusal(checked, &mut outcome).is_break() {
                        return ControlFlow::Break(());
                    }
                }
                rids.extend(keys::last_u64(key).filter(|rid| *rid >= first));
                if rids.len() >= 2 * RIDS_IN_MEMORY_MAX {
                    rids.select_nth_unstable(RIDS_IN_MEMORY_MAX);
                    rids.truncate(RIDS_IN_MEMORY_MAX);
                    is_last_part = false;
                }
                ControlFlow::Continue(())
            })?;
            std::mem::replace(&mut outcome, Ok(()))?;
        }
        rids.sort_unstable();
        is_last_part &= rids.len() <= RIDS_IN_MEMORY_MAX;
        rids.truncate(RIDS_IN_MEMORY_MAX);
        Ok((rids, is_last_part))
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
        let mut outcome = Ok(());
        if is_member {
            let _flow = self.visit(rid, &mut self.with_levels(consume), &mut outcome);
        }
        outcome
    }

    /// Visits the documents with these `_rid` counters, in this order.
    fn visit_all(&self, rids: Vec<u64>, consume: &mut Consumer<'_>) -> Result<ScanEnd<u64>, Refusal> {
        let (mut outcome, mut end) = (Ok(()), ScanEnd::Complete);
        for rid in rids {
            if self.visit_next(rid, consume, &mut outcome, &mut end).is_break() {
                break;
            }
        }
        outcome.map(|()| end)
    }

    /// Visits a document of a scan by `_rid`, unless the time of the page is over. Sets how the
    /// scan ended if it breaks.
    fn visit_next(
        &self,
        rid: u64,
        consume: &mut Consumer<'_>,
        outcome: &mut Result<(), Refusal>,
        end: &mut ScanEnd<u64>,
    ) -> ControlFlow<()> {
        if self.ends_before_entry(outcome) {
            *end = ScanEnd::Paused(rid);
            return ControlFlow::Break(());
        }
        let flow = self.visit(rid, consume, outcome);
        if flow.is_break() {
            *end = ScanEnd::Stopped;
        }
        flow
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
            Ok(record) => {
                self.pass_on(rid, record.as_ref().and_then(StoredDocument::decode), consume, outcome)
            }
            Err(error) => keep_refusal(Err(error.into()), outcome),
        }
    }

    /// Passes a document to `consume` if it belongs to this part of the scope. A refusal is stored in
    /// `outcome` and ends the scan.
    fn pass_on(
        &self,
        rid: u64,
        document: Option<StoredDocument>,
        consume: &mut Consumer<'_>,
        outcome: &mut Result<(), Refusal>,
    ) -> ControlFlow<()> {
        let Some(document) = document.filter(|document| self.is_in_scope(document)) else {
            return ControlFlow::Continue(());
        };
        let checked = self.pace.check_document(document.text.len());
        keep_refusal(checked.and_then(|()| consume(rid, document)), outcome)
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

/// Whether the keys of an index entry and of the entry before it are equal up to the end of a cut
/// string. `key` has neither the prefix nor the `_rid`. `tie` is the beginning of the last key with a
/// cut string, up to the end of this string.
fn continues_tie(key: &[u8], tie: &mut Vec<u8>) -> bool {
    if key.len() <= STRING_BYTES_MAX {
        return false;
    }
    let (beginning, is_cut) = cut_order(key);
    let is_tied = is_cut && *tie == *beginning;
    if is_cut && !is_tied {
        *tie = beginning.into_owned();
    }
    is_tied
}

/// The later one of two starts of an index scan, in the direction of the scan.
pub(super) fn later_start(used: &IndexUse, one: Option<Vec<u8>>, other: Option<&[u8]>) -> Option<Vec<u8>> {
    let Some(one) = one else { return other.map(<[u8]>::to_vec) };
    let Some(other) = other else { return Some(one) };
    // A scan includes all entries that begin with its start. If one start begins with the other,
    // the longer one selects fewer entries.
    let one_is_later = if other.starts_with(&one) {
        false
    } else if one.starts_with(other) {
        true
    } else {
        (one.as_slice() > other) != used.is_backward
    };
    Some(if one_is_later { one } else { other.to_vec() })
}

/// The prefix of an index use with exactly one prefix. An index use has exactly one prefix
/// if its scan is in `_rid` order or in the order of the query.
fn only_prefix(used: &IndexUse) -> &[u8] {
    debug_assert_eq!(used.prefixes.len(), 1);
    used.prefixes.first().map_or(&[], Vec::as_slice)
}
