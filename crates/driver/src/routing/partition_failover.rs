//! Partition failover: in an account with one write region, the service may move the writes of
//! a single physical partition to another region, when that partition fails in the write
//! region. The account document says whether the service does this
//! (`enablePerPartitionFailoverBehavior`), but not which partitions have moved.
//!
//! So the driver finds the region by trying: a region that does not take the partition's
//! writes refuses them with 403/3. [`PartitionWriters`] remembers the region that took the
//! last write of each partition that has moved. It is a snapshot: a method that changes it
//! returns the next snapshot, or `None` when nothing changes.
//!
//! What always holds: the moves are sorted by partition, each partition has at most one move,
//! and there are at most [`MOVES_MAX`] moves.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::circuit_breaker::Partition;
use crate::region::Region;

/// The most partitions whose region is remembered. Each change copies one pointer for each of
/// them. When a partition is forgotten, its next write finds the region again.
const MOVES_MAX: usize = 2048;

/// A move is forgotten when its partition got no writes for this many periods of
/// `TopologyOptions::failback_after`.
const PERIODS_UNTIL_STALE: u32 = 10;

/// The partitions whose writes go to another region than the account's write region.
#[derive(Debug, Clone, Default)]
pub(crate) struct PartitionWriters {
    moves: Vec<Arc<PartitionMove>>,
}

/// A partition whose writes have moved to another region.
#[derive(Debug, Clone)]
struct PartitionMove {
    partition: Partition,
    /// The account's write region when the move was found. If the account has another write
    /// region now, the move is out of date.
    from: Region,
    /// The region that took the last write.
    to: Region,
    /// From this time on, one write is sent to the account's write region, to find out whether it
    /// takes the partition's writes again.
    failback_from: Instant,
    /// When a write of the partition was last recorded. A write is recorded at most once in a
    /// period, so that not every write makes a new snapshot. So the last write may be up to one
    /// period later.
    used_at: Instant,
}

impl PartitionWriters {
    /// The region that takes the writes of a partition; `None` if the partition has not moved
    /// away from `write_region`, the account's write region.
    pub(crate) fn region_of(&self, partition: &Partition, write_region: &Region) -> Option<&Region> {
        self.find(partition).filter(|known| known.from == *write_region).map(|known| &known.to)
    }

    /// Whether a write of the partition should be sent to the account's write region again.
    pub(crate) fn is_failback_due(&self, partition: &Partition, now: Instant) -> bool {
        self.find(partition).is_some_and(|known| known.failback_from <= now)
    }

    /// Whether a write that goes to the region of the move should be recorded by
    /// [`PartitionWriters::used`].
    pub(crate) fn is_use_due(&self, partition: &Partition, now: Instant, period: Duration) -> bool {
        self.find(partition).is_some_and(|known| now.saturating_duration_since(known.used_at) >= period)
    }

    /// The next snapshot when a write goes to the region of the move. `None` if an earlier write
    /// was recorded less than a period ago.
    pub(crate) fn used(&self, partition: &Partition, now: Instant, period: Duration) -> Option<Self> {
        let known = self.find(partition).filter(|_| self.is_use_due(partition, now, period))?;
        Some(self.with(PartitionMove { used_at: now, ..PartitionMove::clone(known) }))
    }

    /// The next snapshot when `region` has taken a write of a partition. `period` is the time
    /// until a write is sent to the account's write region again.
    pub(crate) fn found(
        &self,
        partition: &Partition,
        region: &Region,
        write_region: &Region,
        now: Instant,
        period: Duration,
    ) -> Option<Self> {
        if region == write_region {
            return self.find(partition).map(|_| self.without(partition));
        }
        let is_known = self.region_of(partition, write_region) == Some(region);
        (!is_known).then(|| {
            self.with(PartitionMove {
                partition: partition.clone(),
                from: write_region.clone(),
                to: region.clone(),
                failback_from: now + period,
                used_at: now,
            })
        })
    }

    /// The next snapshot when one write is sent to the account's write region again: the next such
    /// write is due after another `period`. `None` if no such write is due now, for example because
    /// another write has claimed it.
    pub(crate) fn claim_failback(
        &self,
        partition: &Partition,
        now: Instant,
        period: Duration,
    ) -> Option<Self> {
        let known = self.find(partition).filter(|known| known.failback_from <= now)?;
        let known = PartitionMove::clone(known);
        Some(self.with(PartitionMove { failback_from: now + period, used_at: now, ..known }))
    }

    /// Forgets the moves of partitions that get no writes any more, such as partitions that
    /// were split or deleted, and moves that were found under another write region.
    pub(crate) fn remove_stale(&self, write_region: &Region, now: Instant, period: Duration) -> Option<Self> {
        let is_kept = |known: &PartitionMove| {
            known.from == *write_region
                && now.saturating_duration_since(known.used_at) < period.saturating_mul(PERIODS_UNTIL_STALE)
        };
        let kept = || self.moves.iter().filter(|known| is_kept(known));
        (kept().count() < self.moves.len()).then(|| PartitionWriters { moves: kept().cloned().collect() })
    }

    fn find(&self, partition: &Partition) -> Option<&Arc<PartitionMove>> {
        let index = self.moves.binary_search_by(|known| known.partition.cmp(partition)).ok()?;
        self.moves.get(index)
    }

    fn without(&self, partition: &Partition) -> Self {
        let others = self.moves.iter().filter(|known| known.partition != *partition);
        PartitionWriters { moves: others.cloned().collect() }
    }

    /// The next snapshot with this move. When there are too many moves, the move whose partition
    /// was written longest ago is forgotten.
    fn with(&self, new: PartitionMove) -> Self {
        let mut next = self.without(&new.partition);
        if next.moves.len() >= MOVES_MAX
            && let Some((oldest, _)) = next.moves.iter().enumerate().min_by_key(|(_, known)| known.used_at)
        {
            next.moves.remove(oldest);
        }
        let index = next.moves.partition_point(|known| known.partition < new.partition);
        next.moves.insert(index, Arc::new(new));
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: Duration = Duration::from_secs(300);

    fn partition(range: usize) -> Partition {
        Partition { container: "rid".into(), range: range.to_string().into() }
    }

    #[test]
    fn a_move_is_forgotten_when_the_write_region_takes_a_write_or_changes() {
        let (now, west, east) = (Instant::now(), Region::new("West"), Region::new("East"));
        let empty = PartitionWriters::default();
        assert!(empty.found(&partition(1), &west, &west, now, PERIOD).is_none());
        let moved = empty.found(&partition(1), &east, &west, now, PERIOD).unwrap();
        assert_eq!(moved.region_of(&partition(1), &west), Some(&east));
        assert_eq!(moved.region_of(&partition(2), &west), None);
        assert_eq!(moved.region_of(&partition(1), &Region::new("North")), None);
        assert!(moved.found(&partition(1), &east, &west, now, PERIOD).is_none(), "nothing changes");
        let back = moved.found(&partition(1), &west, &west, now, PERIOD).unwrap();
        assert_eq!(back.region_of(&partition(1), &west), None);
    }

    #[test]
    fn one_write_per_period_asks_the_write_region_again() {
        let (now, west, east) = (Instant::now(), Region::new("West"), Region::new("East"));
        let moved = PartitionWriters::default().found(&partition(1), &east, &west, now, PERIOD).unwrap();
        assert!(moved.claim_failback(&partition(1), now, PERIOD).is_none());
        assert!(moved.is_failback_due(&partition(1), now + PERIOD));
        let claimed = moved.claim_failback(&partition(1), now + PERIOD, PERIOD).unwrap();
        assert!(!claimed.is_failback_due(&partition(1), now + PERIOD));
        assert_eq!(claimed.region_of(&partition(1), &west), Some(&east));
        // The claim counts as a write. Ten periods after it, the move is stale.
        assert!(claimed.remove_stale(&west, now + PERIOD * 10, PERIOD).is_none());
        let later = now + PERIOD * 11;
        assert_eq!(claimed.remove_stale(&west, later, PERIOD).unwrap().region_of(&partition(1), &west), None);
        assert!(claimed.remove_stale(&east, now, PERIOD).is_some(), "the write region has changed");
    }

    #[test]
    fn a_move_is_kept_while_it_is_used() {
        let (now, west, east) = (Instant::now(), Region::new("West"), Region::new("East"));
        let moved = PartitionWriters::default().found(&partition(1), &east, &west, now, PERIOD).unwrap();
        assert!(!moved.is_use_due(&partition(1), now + PERIOD / 2, PERIOD), "once in a period");
        assert!(moved.used(&partition(1), now + PERIOD / 2, PERIOD).is_none());
        assert!(moved.used(&partition(2), now + PERIOD, PERIOD).is_none());
        let used = moved.used(&partition(1), now + PERIOD * 9, PERIOD).unwrap();
        assert!(used.is_failback_due(&partition(1), now + PERIOD), "the failback is not postponed");
        assert!(used.remove_stale(&west, now + PERIOD * 18, PERIOD).is_none());
        assert!(used.remove_stale(&west, now + PERIOD * 19, PERIOD).is_some());
    }

    #[test]
    fn the_number_of_moves_is_bounded() {
        let (now, west, east) = (Instant::now(), Region::new("West"), Region::new("East"));
        let mut writers = PartitionWriters::default();
        for range in 0..MOVES_MAX + 5 {
            let at = now + Duration::from_millis(range as u64);
            writers = writers.found(&partition(range), &east, &west, at, PERIOD).unwrap();
        }
        assert_eq!(writers.moves.len(), MOVES_MAX);
        assert_eq!(writers.region_of(&partition(4), &west), None, "the oldest are forgotten");
        assert_eq!(writers.region_of(&partition(5), &west), Some(&east));
    }
}
