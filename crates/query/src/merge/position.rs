//! The position of a reader within a page of sorted rows.
//!
//! A continuation of the service is a position between two pages, but a merge may stop
//! in the middle of a page. So a token also has a [`RowPosition`]: the sort keys of the
//! last row that was taken, and the documents with exactly these keys whose rows were
//! taken. A `RowPosition` makes no assumption about the order of equal keys, and stays valid
//! when documents are written and deleted. It is valid for both halves of a split range,
//! because each document is in one of the halves.

use std::cmp::Ordering;
use std::collections::VecDeque;

use perihelion_model::json::Value;

use super::rows::MergeRow;
use crate::ast::Direction;
use crate::order::compare_order;

/// A position within a page: after the last row taken.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RowPosition {
    pub(super) keys: Vec<Option<Value>>,
    /// The documents with these keys whose rows were taken: the `_rid`, and the number
    /// of rows.
    pub(super) ties: Vec<(String, u64)>,
}

/// Follows the position of one reader.
#[derive(Debug, Default)]
pub(super) struct PositionTracker {
    /// The position to resume from. An earlier merge, or the reader of a range that was
    /// split or merged, has taken the rows before this position. Such rows are dropped
    /// when they are read again.
    inherited: Option<RowPosition>,
    /// Whether a row after the inherited position was read, so that no more rows have
    /// to be dropped. `inherited` is still needed until the end of the page.
    is_past_inherited: bool,
    /// The position after the last row taken from the current page.
    current: Option<RowPosition>,
    /// Whether a row without `_rid` was taken from the current page. Then there is no
    /// position.
    has_taken_row_without_rid: bool,
}

impl PositionTracker {
    pub(super) fn from_position(position: Option<RowPosition>) -> Self {
        PositionTracker { inherited: position, ..PositionTracker::default() }
    }

    /// The rows of a new page that were not taken before.
    pub(super) fn without_taken(
        &mut self,
        rows: Vec<MergeRow>,
        directions: &[Direction],
    ) -> VecDeque<MergeRow> {
        rows.into_iter().filter_map(|row| self.unless_taken(row, directions)).collect()
    }

    fn unless_taken(&mut self, row: MergeRow, directions: &[Direction]) -> Option<MergeRow> {
        let Some(position) = self.inherited.as_mut().filter(|_| !self.is_past_inherited) else {
            return Some(row);
        };
        match compare_order(&row.keys, &position.keys, directions) {
            Ordering::Less => None,
            Ordering::Greater => {
                self.is_past_inherited = true;
                Some(row)
            }
            Ordering::Equal => {
                let tie = position.ties.iter().position(|(rid, _)| Some(rid) == row.rid.as_ref());
                let Some(tie) = tie else { return Some(row) };
                position.ties[tie].1 -= 1;
                if position.ties[tie].1 == 0 {
                    position.ties.swap_remove(tie);
                }
                // The row counts as taken from the current page, so that the next token
                // still has it.
                self.record_taken(row.rid, row.keys, directions);
                None
            }
        }
    }

    /// Records that a row was taken.
    pub(super) fn record_taken(
        &mut self,
        rid: Option<String>,
        keys: Vec<Option<Value>>,
        directions: &[Direction],
    ) {
        let Some(rid) = rid else {
            self.has_taken_row_without_rid = true;
            return;
        };
        match &mut self.current {
            Some(position) if compare_order(&position.keys, &keys, directions).is_eq() => {
                match position.ties.last_mut() {
                    Some((last, count)) if *last == rid => *count += 1,
                    _ => position.ties.push((rid, 1)),
                }
            }
            current => *current = Some(RowPosition { keys, ties: vec![(rid, 1)] }),
        }
    }

    /// Ends the page: now the continuation after the page is the position. The inherited
    /// position stays until a row after it was read.
    pub(super) fn end_page(&mut self) {
        self.current = None;
        self.has_taken_row_without_rid = false;
        if std::mem::take(&mut self.is_past_inherited) {
            self.inherited = None;
        }
    }

    /// The position within the current page, for reading the page again.
    pub(super) fn position(&self, directions: &[Direction]) -> Result<Option<RowPosition>, NoPosition> {
        if self.has_taken_row_without_rid {
            return Err(NoPosition);
        }
        let (Some(current), Some(inherited)) = (&self.current, &self.inherited) else {
            return Ok(self.current.clone().or_else(|| self.inherited.clone()));
        };
        let mut position = current.clone();
        if compare_order(&current.keys, &inherited.keys, directions).is_eq() {
            position.ties.extend(inherited.ties.iter().cloned());
        }
        Ok(Some(position))
    }

    /// Returns the inherited position of a reader that is between two pages. The ranges that
    /// replace the reader's range need the position, because they may return rows before it again.
    pub(super) fn into_position(self) -> Option<RowPosition> {
        self.inherited
    }
}

/// The error of a reader at a row that has no position.
#[derive(Debug)]
pub(super) struct NoPosition;
