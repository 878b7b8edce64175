//! The priority queue of a k-way merge: the ranges of a sorted query, ordered
//! by their first row.
//!
//! The first row of the queue is the next row of the result only while every range
//! that is not at its end has a row in memory. Rows with equal keys come in the order
//! of the ranges.

use super::range_reader::RangeReader;
use crate::ast::Direction;
use crate::order::compare_order;

/// The queue. It holds the indexes of readers and not the readers themselves.
#[derive(Debug)]
pub(super) struct MergeQueue {
    pub(super) directions: Vec<Direction>,
    /// The readers with a row in memory, in reverse order: the reader whose row comes
    /// first in the result is the last element.
    readers: Vec<usize>,
}

impl MergeQueue {
    pub(super) fn new(directions: Vec<Direction>) -> Self {
        MergeQueue { directions, readers: Vec::new() }
    }

    /// Removes and returns the reader whose row comes first.
    pub(super) fn pop(&mut self) -> Option<usize> {
        self.readers.pop()
    }

    /// Adds a reader at the place of its first row, if the reader has a row in memory.
    pub(super) fn push(&mut self, readers: &[RangeReader], reader: usize) {
        let Some(row) = readers[reader].first_row() else { return };
        let position = self.readers.partition_point(|other| {
            let Some(first_row) = readers[*other].first_row() else { return true };
            compare_order(&first_row.keys, &row.keys, &self.directions)
                .then_with(|| readers[*other].rank.cmp(&readers[reader].rank))
                .is_gt()
        });
        self.readers.insert(position, reader);
    }
}
