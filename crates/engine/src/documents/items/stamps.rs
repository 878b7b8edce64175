//! The LSN of a write, and the order of the changes within the write.

use crate::keys::RangeId;
use crate::region::Replica;
use crate::replication::OutboxCursor;
use crate::state::ContainerState;

/// The position of a change in the change feed: the LSN of its write, and its
/// ordinal among the changes with that LSN.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WriteStamp {
    pub(crate) lsn: u64,
    pub(crate) ordinal: u64,
}

/// Gives the changes of one write the same LSN and growing ordinals. A write is one
/// operation, one atomic batch, the deletion of one logical partition, or the part of a
/// distributed transaction that is in one range.
#[derive(Debug, Default)]
pub(crate) struct WriteStamps {
    lsn: Option<u64>,
    ordinal_next: u64,
    /// The LSN that the write had in the region that made it, if that is another
    /// region.
    replicated_lsn: Option<u64>,
    /// The outbox entry that holds these changes. The parts of a distributed transaction share
    /// one entry. Not used in an account with one region.
    pub(crate) outbox: OutboxCursor,
}

impl WriteStamps {
    /// The stamps of a write that another region made. In that region the write has this LSN.
    pub(crate) fn replicated(lsn: u64) -> Self {
        WriteStamps { replicated_lsn: Some(lsn), ..WriteStamps::default() }
    }

    /// The stamp of the next change. The first change takes an LSN from the range. `replica` is
    /// this engine's region, if the account has several.
    pub(super) fn next(
        &mut self,
        state: &mut ContainerState,
        range: RangeId,
        replica: Option<Replica>,
    ) -> WriteStamp {
        let replicated_lsn = self.replicated_lsn;
        let lsn = *self.lsn.get_or_insert_with(|| {
            state.range_mut(range).map_or(0, |range| match replicated_lsn {
                Some(lsn) => range.take_replicated_lsn(lsn),
                None => range.take_lsn(replica),
            })
        });
        // The children of a split share a segment, but each child counts its own LSNs. The
        // id of the range is part of the ordinal, so that their feed entries differ.
        let ordinal = (u64::from(range) << 32) | self.ordinal_next;
        self.ordinal_next += 1;
        WriteStamp { lsn, ordinal }
    }
}
