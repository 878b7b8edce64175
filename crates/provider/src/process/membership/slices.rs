//! Slices: the container cut into parts that processes own. If there are at most as many processes as
//! physical partitions, a slice is a physical partition. If there are more processes, each
//! partition is cut into 2, 4 or 8 slices of equal width. So a poll of a slice is one
//! request, and there are about as many slices as processes or partitions, whichever are more.
//!
//! Rendezvous hashing maps slices to processes: each slice has a score for each process. The share of
//! a process is the number of slices divided by the number of processes, rounded up. Among the
//! processes that do not own their share yet, the one with the highest score gets the slice. When a
//! process joins or leaves, most slices keep their owner.

use perihelion_client::{FeedRange, KeySpace, PartitionKey};

use super::hash::{hash_of, score};

/// The most slices of one physical partition.
pub(crate) const SLICES_PER_PARTITION_MAX: u32 = 8;

/// A part of the container.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Slice {
    pub(crate) range: FeedRange,
    /// The index of its physical partition.
    pub(crate) partition: usize,
    /// The index of the first slice of that partition.
    pub(crate) first_of_partition: usize,
    /// The hash of its first key, for scores. A slice that keeps its first key when the
    /// number of slices changes keeps its scores.
    hash: u64,
}

/// All slices of the container, in the order of their keys.
#[derive(Debug, Clone, Default)]
pub(crate) struct Slices {
    /// `None` while the partitions are not known. Then there are no slices.
    space: Option<KeySpace>,
    pub(crate) all: Vec<Slice>,
}

impl Slices {
    /// Cuts the container for this many processes.
    pub(super) fn cut(space: &KeySpace, processes: usize) -> Slices {
        let partitions = space.feed_ranges();
        let parts = parts_of_partition(partitions.len(), processes);
        let mut all: Vec<Slice> = Vec::new();
        for (partition, range) in partitions.iter().enumerate() {
            let first_of_partition = all.len();
            all.extend(space.divide(range, parts).into_iter().map(|range| Slice {
                hash: hash_of(range.first_key()),
                range,
                partition,
                first_of_partition,
            }));
        }
        Slices { space: Some(space.clone()), all }
    }

    /// Whether the slices were cut from this read of the partitions.
    pub(super) fn is_cut_from(&self, space: &KeySpace) -> bool {
        self.space.as_ref().is_some_and(|own| own.is_same(space))
    }

    pub(super) fn space(&self) -> Option<&KeySpace> {
        self.space.as_ref()
    }

    /// The index of the slice of a partition key, such as an instance; `None` if the slices are not
    /// known.
    pub(super) fn index_of(&self, key: impl Into<PartitionKey>) -> Option<usize> {
        let range = self.space.as_ref()?.range_of(key);
        self.index_at(range.first_key())
    }

    /// The index of the slice that an effective key belongs to.
    pub(super) fn index_at(&self, key: &str) -> Option<usize> {
        self.all.partition_point(|slice| slice.range.first_key() <= key).checked_sub(1)
    }

    /// The number of physical partitions.
    pub(super) fn partitions(&self) -> usize {
        self.all.last().map_or(0, |slice| slice.partition + 1)
    }

    /// The owner of each slice, as an index into `processes`, which are ids in ascending order. No
    /// process owns more than its share. Without processes there are no owners.
    pub(super) fn owners(&self, processes: &[&str]) -> Vec<usize> {
        if processes.is_empty() {
            return Vec::new();
        }
        let share = self.all.len().div_ceil(processes.len());
        let hashes: Vec<u64> = processes.iter().map(|id| hash_of(id)).collect();
        // With a thousand processes there are half a million scores, so this loop is kept simple.
        let mut owned = vec![0; hashes.len()];
        let owner = |slice: &Slice| {
            let with_room = hashes.iter().enumerate().filter(|(process, _)| owned[*process] < share);
            let best = with_room.max_by_key(|(_, hash)| score(**hash, slice.hash));
            // The shares add up to at least the number of slices, so some process has room.
            let owner = best.map_or(0, |(process, _)| process);
            owned[owner] += 1;
            owner
        };
        self.all.iter().map(owner).collect()
    }
}

/// Into how many slices each partition is cut. This is a power of two: when it doubles, each slice
/// is cut in half, and the first half keeps the first key of the slice and so its scores.
fn parts_of_partition(partitions: usize, processes: usize) -> u32 {
    let wanted = processes.div_ceil(partitions.max(1)).next_power_of_two();
    u32::try_from(wanted).unwrap_or(SLICES_PER_PARTITION_MAX).min(SLICES_PER_PARTITION_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_about_as_many_slices_as_processes_or_partitions() {
        for (partitions, processes, parts) in [
            (1, 1, 1),
            (16, 4, 1),
            (16, 16, 1),
            (1, 4, 4),
            (4, 5, 2),
            (4, 16, 4),
            (16, 64, 4),
            (1, 64, 8),
            (70, 1000, 8),
        ] {
            assert_eq!(
                parts_of_partition(partitions, processes),
                parts,
                "{partitions} partitions, {processes} processes"
            );
        }
    }
}
