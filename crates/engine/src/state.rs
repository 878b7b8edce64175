//! The counters of a container: the next numbers to give out, and the size of
//! each physical partition. The counters are one small record, which every write of a
//! document replaces.
//!
//! In an account with several regions the record also says which writes of each
//! region are applied here, range by range. A session token carries the same
//! numbers.

use std::sync::Arc;

use crate::keys::RangeId;
use crate::region::{REGION_BITS, REGIONS_MAX, RegionId, Replica};

/// The position of a physical partition when an operation ran. The server makes session
/// tokens from positions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Position {
    /// The physical partition.
    pub range: RangeId,
    /// The LSN of the range's last write. If nothing was written yet, the container's first LSN; 0 if
    /// the range does not exist.
    pub lsn: u64,
    /// The LSN of each region's last write that is applied here. Only in an
    /// account with several regions.
    pub applied_lsns: Option<Arc<[u64]>>,
}

/// The counters of one container.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ContainerState {
    /// The counter in the next document's `_rid`. With several regions the number of
    /// the region is appended to the counter as the lowest bits. A write of a script takes a
    /// number, too.
    pub rid_next: u64,
    /// The counter in the next etag of a document. With several regions the number of
    /// the region is appended to the counter as the lowest bits. A write of a script takes a
    /// number, too.
    pub etag_next: u64,
    /// The counters of each physical partition.
    pub ranges: Vec<RangeState>,
    /// The number of regions; zero in an account with one region.
    pub regions: u8,
}

/// The counters of one physical partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RangeState {
    /// The physical partition.
    pub id: RangeId,
    /// The LSN of its last write.
    pub lsn: u64,
    /// The number of documents. Each child of a split begins with half of its parent's
    /// number, so only the sum over all ranges is exact. The number of one range may be
    /// negative.
    pub documents: i64,
    /// The bytes of the documents' texts. Only the sum over all ranges is exact.
    pub bytes: i64,
    /// The LSN of each region's last write that is applied here, as counted in
    /// that region. Elements beyond the number of regions are not used.
    pub applied_lsns: [u64; REGIONS_MAX],
}

/// The element of `applied_lsns` of a region that the account does not have.
const LSN_OF_NO_REGION: u64 = 1;

impl RangeState {
    /// The counters of a range without writes. `lsn` is the LSN before its first write.
    pub(crate) fn empty(id: RangeId, lsn: u64) -> Self {
        RangeState { id, lsn, documents: 0, bytes: 0, applied_lsns: [lsn; REGIONS_MAX] }
    }

    /// The counters of the ranges that this range is split into. Each child gets an equal
    /// share of the documents and bytes, and continues the LSNs of this range.
    pub(crate) fn divided_among(&self, children: &[RangeId]) -> Vec<RangeState> {
        let count = children.len().max(1) as i64;
        let share = |sum: i64, index: usize| {
            if index + 1 < children.len() { sum / count } else { sum - sum / count * (count - 1) }
        };
        let child = |(index, id): (usize, &RangeId)| RangeState {
            id: *id,
            documents: share(self.documents, index),
            bytes: share(self.bytes, index),
            ..*self
        };
        children.iter().enumerate().map(child).collect()
    }

    /// Takes the next LSN, for a write of this region.
    pub(crate) fn take_lsn(&mut self, replica: Option<Replica>) -> u64 {
        self.lsn += 1;
        if let Some(replica) = replica {
            self.applied_lsns[replica.region.index()] = self.lsn;
        }
        self.lsn
    }

    /// Takes an LSN for a write of another region that had `lsn` there: `lsn` if it is above
    /// all LSNs here, otherwise the next LSN.
    pub(crate) fn take_replicated_lsn(&mut self, lsn: u64) -> u64 {
        self.lsn = if lsn > self.lsn { lsn } else { self.lsn + 1 };
        self.lsn
    }
}

/// The bytes of the next `_rid` counter and the next etag counter in a record.
const HEAD_BYTES: usize = 16;
/// The bytes of a range in a record, before its `applied_lsns`: id, LSN, documents and
/// bytes.
const RANGE_BYTES: usize = 28;

impl ContainerState {
    /// The counters of a new container. `lsn_first` is the LSN of its ranges before the first write.
    pub(crate) fn new(
        ranges: impl Iterator<Item = RangeId>,
        replica: Option<Replica>,
        lsn_first: u64,
    ) -> Self {
        let regions = replica.map_or(0, |replica| replica.regions);
        let empty = |id| {
            let mut range = RangeState::empty(id, lsn_first);
            range.applied_lsns[usize::from(regions)..].fill(LSN_OF_NO_REGION);
            range
        };
        ContainerState { rid_next: 1, etag_next: 1, ranges: ranges.map(empty).collect(), regions }
    }

    /// The counters of a range.
    pub fn range(&self, id: RangeId) -> Option<&RangeState> {
        self.ranges.iter().find(|range| range.id == id)
    }

    pub(crate) fn range_mut(&mut self, id: RangeId) -> Option<&mut RangeState> {
        self.ranges.iter_mut().find(|range| range.id == id)
    }

    /// The LSN of a range's last write; 0 if the range does not exist.
    pub fn lsn(&self, id: RangeId) -> u64 {
        self.range(id).map_or(0, |range| range.lsn)
    }

    /// The position of a range, for a session token.
    pub fn position(&self, id: RangeId) -> Position {
        let Some(range) = self.range(id) else { return Position { range: id, lsn: 0, applied_lsns: None } };
        let applied_lsns =
            (self.regions > 0).then(|| Arc::from(&range.applied_lsns[..usize::from(self.regions)]));
        Position { range: id, lsn: range.lsn, applied_lsns }
    }

    /// A counter above those of all `_rid`s so far.
    pub(crate) fn rid_after_all(&self, replica: Option<Replica>) -> u64 {
        with_region(self.rid_next, replica)
    }

    /// Takes the counter of a new `_rid`, unique over all regions.
    pub(crate) fn take_rid(&mut self, replica: Option<Replica>) -> u64 {
        self.rid_next += 1;
        with_region(self.rid_next - 1, replica)
    }

    /// Takes the counter of a new etag, unique over all regions and above every etag
    /// counter that was applied here.
    pub(crate) fn take_etag(&mut self, replica: Option<Replica>) -> u64 {
        self.etag_next += 1;
        with_region(self.etag_next - 1, replica)
    }

    /// Raises the next counters above those of another region's write, so that later
    /// writes here get higher counters.
    pub(crate) fn raise_above(&mut self, rid: u64, etag_counter: u64) {
        self.rid_next = self.rid_next.max((rid >> REGION_BITS) + 1);
        self.etag_next = self.etag_next.max((etag_counter >> REGION_BITS) + 1);
    }

    /// The LSN of a region's last write that is applied here in a range.
    pub fn applied_lsn(&self, range: RangeId, region: RegionId) -> u64 {
        self.range(range).map_or(0, |range| range.applied_lsns[region.index()])
    }

    /// The number of documents in the container.
    pub fn documents(&self) -> u64 {
        self.ranges.iter().map(|range| range.documents).sum::<i64>().max(0) as u64
    }

    /// The bytes of all documents' texts.
    pub fn bytes(&self) -> u64 {
        self.ranges.iter().map(|range| range.bytes).sum::<i64>().max(0) as u64
    }

    /// The stored record. Its length is even in an account with one region. With several
    /// regions the record ends with one byte for the number of regions, so its length is odd.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let regions = usize::from(self.regions);
        let mut out = Vec::with_capacity(HEAD_BYTES + (RANGE_BYTES + 8 * regions) * self.ranges.len() + 1);
        out.extend_from_slice(&self.rid_next.to_be_bytes());
        out.extend_from_slice(&self.etag_next.to_be_bytes());
        for range in &self.ranges {
            out.extend_from_slice(&range.id.to_be_bytes());
            out.extend_from_slice(&range.lsn.to_be_bytes());
            out.extend_from_slice(&range.documents.to_be_bytes());
            out.extend_from_slice(&range.bytes.to_be_bytes());
            for lsn in &range.applied_lsns[..regions] {
                out.extend_from_slice(&lsn.to_be_bytes());
            }
        }
        if self.regions > 0 {
            out.push(self.regions);
        }
        out
    }

    /// The counters in a record; `None` if the record is damaged.
    pub(crate) fn decode(record: &[u8]) -> Option<Self> {
        let (regions, record) = match record.split_last() {
            Some((regions, rest)) if record.len() % 2 == 1 => (*regions, rest),
            _ => (0, record),
        };
        if usize::from(regions) > REGIONS_MAX {
            return None;
        }
        let (head, rest) = record.split_at_checked(HEAD_BYTES)?;
        let ranges = rest.chunks(RANGE_BYTES + 8 * usize::from(regions)).map(|chunk| {
            let mut applied_lsns = [LSN_OF_NO_REGION; REGIONS_MAX];
            for (index, lsn) in applied_lsns.iter_mut().enumerate().take(usize::from(regions)) {
                *lsn = u64_at(chunk, RANGE_BYTES + 8 * index)?;
            }
            Some(RangeState {
                id: u32::from_be_bytes(chunk.get(..4)?.try_into().ok()?),
                lsn: u64_at(chunk, 4)?,
                documents: u64_at(chunk, 12)? as i64,
                bytes: u64_at(chunk, 20)? as i64,
                applied_lsns,
            })
        });
        Some(ContainerState {
            rid_next: u64_at(head, 0)?,
            etag_next: u64_at(head, 8)?,
            ranges: ranges.collect::<Option<_>>()?,
            regions,
        })
    }
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_be_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

/// Appends the number of the region to a counter, as its lowest bits.
fn with_region(counter: u64, replica: Option<Replica>) -> u64 {
    replica.map_or(counter, |replica| (counter << REGION_BITS) | u64::from(replica.region.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_decode_to_what_was_encoded() {
        let mut state = ContainerState::new([0, 3].into_iter(), None, 7);
        state.range_mut(3).unwrap().lsn = 9;
        assert_eq!(ContainerState::decode(&state.encode()), Some(state));
        assert_eq!(ContainerState::decode(&[1, 2]), None);
    }

    #[test]
    fn counters_of_several_regions_decode_to_what_was_encoded() {
        for ranges in 0..3 {
            let replica = Replica { region: RegionId(1), regions: 3 };
            let mut state = ContainerState::new(0..ranges, Some(replica), 7);
            state.ranges.iter_mut().for_each(|range| range.applied_lsns[2] = 77);
            assert_eq!(ContainerState::decode(&state.encode()), Some(state));
        }
        assert_eq!(ContainerState::decode(&[9; 17]), None, "more regions than allowed");
    }

    #[test]
    fn counters_of_two_regions_differ_and_later_ones_are_higher() {
        let [first, second] = [0, 1].map(|region| Some(Replica { region: RegionId(region), regions: 2 }));
        let mut here = ContainerState::new([0].into_iter(), first, 1);
        let mut there = here.clone();
        let (ours, theirs) = (here.take_rid(first), there.take_rid(second));
        assert_ne!(ours, theirs);
        let etag = (0..5).map(|_| there.take_etag(second)).last().unwrap();
        here.raise_above(theirs, etag);
        assert!(here.take_rid(first) > theirs);
        assert!(here.take_etag(first) > etag);
    }

    #[test]
    fn the_shares_of_a_split_add_up() {
        let whole = RangeState { documents: 7, bytes: -5, ..RangeState::empty(0, 1) };
        let parts = whole.divided_among(&[1, 2, 3]);
        assert_eq!(parts.iter().map(|part| part.documents).sum::<i64>(), 7);
        assert_eq!(parts.iter().map(|part| part.bytes).sum::<i64>(), -5);
        assert_eq!(parts.iter().map(|part| part.id).collect::<Vec<_>>(), [1, 2, 3]);
    }
}
