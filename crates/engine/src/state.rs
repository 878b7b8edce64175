//! A container's counters: what the next write gets, and how full each
//! physical partition is. One small record, rewritten with every write.

use crate::keys::RangeId;

/// The counters of one container.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ContainerState {
    /// The counter in the next document's `_rid`.
    pub rid_next: u64,
    pub etag_next: u64,
    pub ranges: Vec<RangeState>,
}

/// The counters of one physical partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RangeState {
    pub id: RangeId,
    pub lsn: u64,
    /// How full it is. The children of a split begin with half of their
    /// parent's each, so only the sum over all ranges is exact, and one may
    /// be below zero.
    pub documents: i64,
    pub bytes: i64,
}

impl RangeState {
    pub fn empty(id: RangeId) -> Self {
        RangeState { id, lsn: 1, documents: 0, bytes: 0 }
    }

    /// The counters of the two ranges that this one is split into.
    pub fn halves(&self, [first, second]: [RangeId; 2]) -> [RangeState; 2] {
        let (documents, bytes) = (self.documents / 2, self.bytes / 2);
        [
            RangeState { id: first, lsn: self.lsn, documents, bytes },
            RangeState {
                id: second,
                lsn: self.lsn,
                documents: self.documents - documents,
                bytes: self.bytes - bytes,
            },
        ]
    }
}

const HEAD_BYTES: usize = 16;
const RANGE_BYTES: usize = 28;

impl ContainerState {
    pub fn new(ranges: impl Iterator<Item = RangeId>) -> Self {
        let ranges = ranges.map(RangeState::empty).collect();
        ContainerState { rid_next: 1, etag_next: 1, ranges }
    }

    pub fn range(&self, id: RangeId) -> Option<&RangeState> {
        self.ranges.iter().find(|range| range.id == id)
    }

    pub fn range_mut(&mut self, id: RangeId) -> Option<&mut RangeState> {
        self.ranges.iter_mut().find(|range| range.id == id)
    }

    pub fn lsn(&self, id: RangeId) -> u64 {
        self.range(id).map_or(0, |range| range.lsn)
    }

    pub fn documents(&self) -> u64 {
        self.ranges.iter().map(|range| range.documents).sum::<i64>().max(0) as u64
    }

    pub fn bytes(&self) -> u64 {
        self.ranges.iter().map(|range| range.bytes).sum::<i64>().max(0) as u64
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEAD_BYTES + RANGE_BYTES * self.ranges.len());
        out.extend_from_slice(&self.rid_next.to_be_bytes());
        out.extend_from_slice(&self.etag_next.to_be_bytes());
        for range in &self.ranges {
            out.extend_from_slice(&range.id.to_be_bytes());
            out.extend_from_slice(&range.lsn.to_be_bytes());
            out.extend_from_slice(&range.documents.to_be_bytes());
            out.extend_from_slice(&range.bytes.to_be_bytes());
        }
        out
    }

    pub fn decode(record: &[u8]) -> Option<Self> {
        let u64_at =
            |bytes: &[u8], at: usize| Some(u64::from_be_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        let (head, rest) = record.split_at_checked(HEAD_BYTES)?;
        let ranges = rest.chunks(RANGE_BYTES).map(|chunk| {
            Some(RangeState {
                id: u32::from_be_bytes(chunk.get(..4)?.try_into().ok()?),
                lsn: u64_at(chunk, 4)?,
                documents: u64_at(chunk, 12)? as i64,
                bytes: u64_at(chunk, 20)? as i64,
            })
        });
        Some(ContainerState {
            rid_next: u64_at(head, 0)?,
            etag_next: u64_at(head, 8)?,
            ranges: ranges.collect::<Option<_>>()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_read_back() {
        let mut state = ContainerState::new([0, 3].into_iter());
        state.range_mut(3).unwrap().lsn = 9;
        assert_eq!(ContainerState::decode(&state.encode()), Some(state));
        assert_eq!(ContainerState::decode(&[1, 2]), None);
    }
}
