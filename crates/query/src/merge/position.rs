//! The position of a reader within a page of sorted rows.
//!
//! A continuation of the service is a position between two pages, but a merge
//! may stop in the middle of a page. So a token also has a [`RowPosition`]: the
//! sort keys of the last row taken, and the documents with exactly these keys
//! that were taken. This makes no assumption about the order of equal keys,
//! stays valid when documents are written and deleted, and is valid for both
//! halves of a split range, because each document is in one of them.

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
    /// The `_rid` of each document with these keys of which rows were taken,
    /// and how many rows.
    pub(super) ties: Vec<(String, u64)>,
}

/// Follows the position of one reader.
#[derive(Debug, Default)]
pub(super) struct PositionTracker {
    /// The position to resume from. Rows before it were taken by an earlier
    /// merge or range and are dropped when they are read again.
    inherited: Option<RowPosition>,
    /// A row after the inherited position was read, so no more rows have to be
    /// dropped. `inherited` is still needed until the end of the page.
    is_beyond: bool,
    /// The position after the last row taken from the current page.
    current: Option<RowPosition>,
    /// A row without `_rid` was taken from the current page, so there is no
    /// position.
    is_anonymous: bool,
}

impl PositionTracker {
    pub(super) fn from_position(position: Option<RowPosition>) -> Self {
        PositionTracker { inherited: position, ..PositionTracker::default() }
    }

    /// The rows of a new page that were not taken before.
    pub(super) fn admit(&mut self, rows: Vec<MergeRow>, directions: &[Direction]) -> VecDeque<MergeRow> {
        rows.into_iter().filter_map(|row| self.admit_one(row, directions)).collect()
    }

    fn admit_one(&mut self, row: MergeRow, directions: &[Direction]) -> Option<MergeRow> {
        let Some(position) = self.inherited.as_mut().filter(|_| !self.is_beyond) else { return Some(row) };
        match compare_order(&row.keys, &position.keys, directions) {
            Ordering::Less => None,
            Ordering::Greater => {
                self.is_beyond = true;
                Some(row)
            }
            Ordering::Equal => {
                let tie = position.ties.iter().position(|(rid, _)| Some(rid) == row.rid.as_ref());
                let Some(tie) = tie else { return Some(row) };
                position.ties[tie].1 -= 1;
                if position.ties[tie].1 == 0 {
                    position.ties.swap_remove(tie);
                }
                self.take(row.rid, row.keys, directions);
                None
            }
        }
    }

    /// Records that a row was taken.
    pub(super) fn take(&mut self, rid: Option<String>, keys: Vec<Option<Value>>, directions: &[Direction]) {
        let Some(rid) = rid else {
            self.is_anonymous = true;
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

    /// Ends the page: from here its continuation is the position.
    pub(super) fn end_page(&mut self) {
        self.current = None;
        self.is_anonymous = false;
        if std::mem::take(&mut self.is_beyond) {
            self.inherited = None;
        }
    }

    /// The position within the current page, for reading the page again.
    pub(super) fn position(&self, directions: &[Direction]) -> Result<Option<RowPosition>, NoPosition> {
        if self.is_anonymous {
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

    /// The position for the ranges that replace a range between two pages.
    pub(super) fn into_position(self) -> Option<RowPosition> {
        self.inherited
    }
}

/// The reader is at a row that has no position.
#[derive(Debug)]
pub(super) struct NoPosition;
