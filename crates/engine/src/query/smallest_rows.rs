//! `SmallestRows` keeps the rows of the next page while the documents of a query with ORDER BY are
//! read.

use std::collections::BTreeMap;

use super::PAGE_BYTES_MAX;
use super::output::Output;
use crate::keys::RangeId;

/// The sort key of a row in an ordered query. The range is not part of it, because
/// a split changes the range, and the next page must continue after a split.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SortKey {
    /// The encoded order keys.
    pub(super) order: Vec<u8>,
    /// The `_rid` counter. It is inverted when the first key is descending, because an
    /// index that is scanned backwards returns descending `_rid`s.
    pub(super) rid: u64,
    /// The number of the row among the rows of its document.
    pub(super) row: u64,
}

impl SortKey {
    /// This key if its order keys have at most this many bytes. Otherwise a key before it: the
    /// first key with the same beginning.
    pub(super) fn shortened(&self, bytes_max: usize) -> SortKey {
        match self.order.get(..bytes_max) {
            Some(start) if start.len() < self.order.len() => {
                SortKey { order: start.to_vec(), rid: 0, row: 0 }
            }
            _ => self.clone(),
        }
    }
}

/// A row in memory.
pub(super) struct HeldRow {
    pub(super) range: RangeId,
    /// The elements of the arrays in FROM from which the row was made.
    pub(super) elements: Vec<u32>,
    pub(super) output: Output,
}

/// The rows with the smallest sort keys.
pub(super) struct SmallestRows {
    pub(super) rows: BTreeMap<SortKey, HeldRow>,
    rows_max: usize,
    /// The approximate size of the rows as text.
    pub(super) bytes: usize,
    /// Whether a row was left out because the rows were too many or too large.
    pub(super) is_full: bool,
}

/// About the most bytes of the rows of one page in memory: more than the text of a page, so
/// that a page is not cut short.
const BYTES_IN_MEMORY_MAX: usize = 4 * PAGE_BYTES_MAX;

impl SmallestRows {
    pub(super) fn new(rows_max: usize) -> Self {
        SmallestRows { rows: BTreeMap::new(), rows_max: rows_max.max(1), bytes: 0, is_full: false }
    }

    /// The largest key, if no row after it is needed.
    pub(super) fn end(&self) -> Option<&SortKey> {
        let is_full = self.is_full || self.rows.len() >= self.rows_max;
        self.last().filter(|_| is_full)
    }

    /// The largest key in memory.
    pub(super) fn last(&self) -> Option<&SortKey> {
        self.rows.last_key_value().map(|(last, _)| last)
    }

    /// Adds a row that is not after the end. A row may come twice, if a scan continues a little
    /// before the place where it ended.
    pub(super) fn insert(&mut self, key: SortKey, row: HeldRow) {
        if self.rows.contains_key(&key) {
            return;
        }
        self.bytes += row.output.approximate_length() + key.order.len();
        self.rows.insert(key, row);
        while self.rows.len() > self.rows_max || (self.bytes > BYTES_IN_MEMORY_MAX && self.rows.len() > 1) {
            let Some((key, row)) = self.rows.pop_last() else { break };
            self.bytes -= row.output.approximate_length() + key.order.len();
            self.is_full = true;
        }
    }
}
