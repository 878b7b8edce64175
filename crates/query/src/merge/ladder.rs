//! The ranges of a sorted query, the one with the smallest row last.
//!
//! A merge may give its smallest row only while every range that is not read
//! to its end shows one. Equal keys come in the order of the ranges.

use super::source::Source;
use crate::ast::Direction;
use crate::order::compare_order;

#[derive(Debug)]
pub(super) struct Ladder {
    pub(super) directions: Vec<Direction>,
    /// Ranges that show a row, in falling order.
    steps: Vec<usize>,
}

impl Ladder {
    pub(super) fn new(directions: Vec<Direction>) -> Self {
        Ladder { directions, steps: Vec::new() }
    }

    /// The range with the smallest row.
    pub(super) fn pop(&mut self) -> Option<usize> {
        self.steps.pop()
    }

    /// Puts a range where its first row belongs, if it shows one.
    pub(super) fn put(&mut self, sources: &[Source], source: usize) {
        let Some(row) = sources[source].head() else { return };
        let place = self.steps.partition_point(|other| {
            let Some(head) = sources[*other].head() else { return true };
            compare_order(&head.keys, &row.keys, &self.directions)
                .then_with(|| sources[*other].rank.cmp(&sources[source].rank))
                .is_gt()
        });
        self.steps.insert(place, source);
    }
}
