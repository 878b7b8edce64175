//! Queries with ORDER BY: each range returns its smallest rows after the cursor of the last
//! page, from an index or by a scan of all documents, and the rows of all ranges are merged.
//!
//! A cursor has the order keys of the last row and its `_rid`. Long keys are shortened
//! ([`RowCursor::bound`]); the rest is then read from the next document, or from the last one.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use perihelion_model::json::Value;
use perihelion_query::Direction;

use super::continuation::{Continuation, NextRow, RowCursor, hash_of};
use super::output::Output;
use super::resume_filter::ResumeFilter;
use super::rows::{Context, Page, PageRows};
use super::sources::{self, ScanRange};
use super::{PAGE_BYTES_MAX, gather};
use crate::documents::StoredDocument;
use crate::index;
use crate::keys::RangeId;
use crate::refusal::Refusal;

/// The sort key of a row in an ordered query. The range is not part of it, because
/// a split changes the range, and the next page must continue after a split.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct SortKey {
    order: Vec<u8>,
    /// The `_rid` counter. It is inverted when the first key is descending, because an
    /// index that is scanned backwards returns descending `_rid`s.
    rid: u64,
    row: u64,
}

/// The rows with the smallest sort keys.
struct SmallestRows {
    rows: BTreeMap<SortKey, (RangeId, Output)>,
    rows_max: usize,
    /// The approximate size of the rows as text.
    bytes: usize,
    /// Whether a row was left out because there were too many.
    is_full: bool,
}

/// About the most bytes of the rows of one page in memory: more than the text of a page, so
/// that a page is not cut short.
const BYTES_IN_MEMORY_MAX: usize = 4 * PAGE_BYTES_MAX;

impl SmallestRows {
    fn new(rows_max: usize) -> Self {
        SmallestRows { rows: BTreeMap::new(), rows_max: rows_max.max(1), bytes: 0, is_full: false }
    }

    /// The largest key, if no row after it is needed.
    fn end(&self) -> Option<&SortKey> {
        let is_full = self.is_full || self.rows.len() >= self.rows_max;
        self.rows.last_key_value().map(|(last, _)| last).filter(|_| is_full)
    }

    /// Adds a row that is not after the end.
    fn insert(&mut self, key: SortKey, range: RangeId, output: Output) {
        self.bytes += output.approximate_length() + key.order.len();
        self.rows.insert(key, (range, output));
        while self.rows.len() > self.rows_max || (self.bytes > BYTES_IN_MEMORY_MAX && self.rows.len() > 1) {
            let Some((key, (_, output))) = self.rows.pop_last() else { break };
            self.bytes -= output.approximate_length() + key.order.len();
            self.is_full = true;
        }
    }
}

/// Makes a page of a query with ORDER BY.
pub(super) fn merge(context: &Context<'_>, continuation: Continuation) -> Result<PageRows, Refusal> {
    let after = match &continuation.after {
        Some(cursor) => Some(context.last_key(cursor)?),
        None => context.request.resume.as_ref().map(|resume| context.resume_key(resume)),
    };
    let mut smallest = SmallestRows::new(gather::rows_wanted(context, &continuation));
    let mut page = Page::new(context, continuation);
    for range in &sources::scan_ranges(context.container, &context.request.scope) {
        page.documents += context.collect_smallest(range, after.as_ref(), &mut smallest)?;
    }
    let has_others = smallest.is_full;
    let mut rows = smallest.rows.into_iter().peekable();
    while let Some((key, (range, row))) = rows.next() {
        // If there are rows that are not in memory, the last row in memory stays for the next
        // page, because the cursor may need the row after it.
        let is_kept = has_others && rows.peek().is_none() && page.has_advanced();
        if is_kept || !page.try_push(&row, context.cursor(range, key.clone())) {
            page.bound_cursor(&key.order, |last| NextRow::Document {
                rid: context.rid_order(key.rid),
                row: key.row,
                hash: hash_of(&key.order),
                last_hash: hash_of(last),
            });
            return Ok(page.finish(true));
        }
    }
    if has_others {
        // Only one row, a large one, was in memory. The row after it is not known.
        page.bound_last_cursor();
    }
    Ok(page.finish(has_others))
}

/// The encoded order keys of a row, each in its direction.
pub(super) fn encode_order(keys: &[Option<Value>], directions: &[Direction]) -> Vec<u8> {
    let mut order = Vec::new();
    for (value, direction) in keys.iter().zip(directions) {
        index::encode(&mut order, value.as_ref(), *direction == Direction::Descending);
    }
    order
}

impl Context<'_> {
    /// Whether the first order key is descending.
    fn is_reversed(&self) -> bool {
        self.plan.is_descending.first().copied().unwrap_or(false)
    }

    /// The number by which rows with equal order keys are sorted. Applied to that number, the
    /// function returns the `_rid` counter again.
    fn rid_order(&self, rid: u64) -> u64 {
        if self.is_reversed() { u64::MAX - rid } else { rid }
    }

    /// The sort key of the row at a cursor.
    fn sort_key(&self, cursor: &RowCursor) -> SortKey {
        let order = cursor.order.clone().unwrap_or_default();
        SortKey { order, rid: self.rid_order(cursor.rid), row: cursor.row }
    }

    /// The cursor of the row with a sort key.
    fn cursor(&self, range: RangeId, key: SortKey) -> RowCursor {
        let (rid, row) = (self.rid_order(key.rid), key.row);
        RowCursor { range, rid, row, order: Some(key.order), position: None, next: None }
    }

    /// The sort key of the last row of the last page. If the cursor has only the beginning of
    /// the order keys, the rest is read from the next row, or from the last row if the next
    /// one has changed. If both have changed, the rows with this beginning are returned
    /// again: a row may come twice, but none is lost.
    fn last_key(&self, cursor: &RowCursor) -> Result<SortKey, Refusal> {
        let key = self.sort_key(cursor);
        let Some(NextRow::Document { rid, row, hash, last_hash }) = cursor.next else { return Ok(key) };
        if let Some(order) = self.find_order(rid, row, hash)? {
            // The key just before the next row.
            let rid = self.rid_order(rid);
            return Ok(match row.checked_sub(1) {
                Some(row) => SortKey { order, rid, row },
                None => SortKey { order, rid: rid.saturating_sub(1), row: u64::MAX },
            });
        }
        Ok(match self.find_order(cursor.rid, cursor.row, last_hash)? {
            Some(order) => SortKey { order, ..key },
            None => SortKey { rid: 0, row: 0, ..key },
        })
    }

    /// The sort key just before the first row that a resume filter leaves.
    fn resume_key(&self, resume: &ResumeFilter) -> SortKey {
        let order = self.encode_order(&resume.values);
        match (resume.rid.map(|rid| self.rid_order(rid)), resume.exclude) {
            (Some(rid), true) => SortKey { order, rid, row: u64::MAX },
            (Some(rid), false) => SortKey { order, rid: rid.saturating_sub(1), row: u64::MAX },
            (None, true) => SortKey { order, rid: u64::MAX, row: u64::MAX },
            (None, false) => SortKey { order, rid: 0, row: 0 },
        }
    }

    /// The encoded order keys of a row, if the document still has that row and the keys have
    /// that hash.
    fn find_order(&self, rid: u64, row: u64, hash: u64) -> Result<Option<Vec<u8>>, Refusal> {
        let mut found = None;
        for range in &sources::scan_ranges(self.container, &self.request.scope) {
            self.scan(range).visit_rid(rid, &mut |rid, document| {
                let mut rows = self.rows_of(range.id, rid, &document)?;
                let order = rows.find(|(_, cursor)| cursor.row == row);
                found = order.map(|(row, _)| self.encode_order(&row.order_keys));
                Ok(ControlFlow::Break(()))
            })?;
        }
        Ok(found.filter(|order| hash_of(order) == hash))
    }

    /// The encoded order keys of a row, without the keys that an equality fixes.
    fn encode_order(&self, keys: &[Option<Value>]) -> Vec<u8> {
        let mut order = Vec::new();
        let columns = self.plan.is_descending.iter().zip(&self.plan.is_constant);
        for (value, (is_descending, is_constant)) in keys.iter().zip(columns) {
            if !is_constant {
                index::encode(&mut order, value.as_ref(), *is_descending);
            }
        }
        order
    }

    /// Adds the rows of a range to `smallest`. Leaves out the rows up to `after`, the last row of the last page. Returns how many
    /// documents were read.
    fn collect_smallest(
        &self,
        range: &ScanRange<'_>,
        after: Option<&SortKey>,
        smallest: &mut SmallestRows,
    ) -> Result<u64, Refusal> {
        let mut documents = 0;
        let ordering_index = self.plan.index.as_ref().filter(|used| used.gives_order);
        // An index whose first column is declared descending is scanned forwards for a
        // descending order. The scan then returns the keys in order, but rows with equal
        // keys by ascending `_rid`, where the query wants them by descending `_rid`.
        let orders_equal_keys = ordering_index.is_some_and(|used| used.is_backward == self.is_reversed());
        let mut consume = |rid: u64, document: StoredDocument| {
            documents += 1;
            let mut is_after_page = false;
            for (row, cursor) in self.rows_of(range.id, rid, &document)? {
                let cursor = RowCursor { order: Some(self.encode_order(&row.order_keys)), ..cursor };
                let key = self.sort_key(&cursor);
                if after.is_some_and(|after| key <= *after) {
                    continue;
                }
                if let Some(end) = smallest.end().filter(|end| **end < key) {
                    is_after_page |= orders_equal_keys || end.order < key.order;
                    smallest.is_full = true;
                    continue;
                }
                smallest.insert(key, range.id, row.output);
            }
            // An index returns rows in order, so the first row after the page ends the
            // scan.
            Ok(if is_after_page && ordering_index.is_some() {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            })
        };
        match ordering_index {
            Some(used) => {
                let start = after.map(|after| self.index_start(used.is_backward, after));
                self.scan(range).visit_by_index(used, start.as_deref(), &mut consume)?;
            }
            None => self.scan(range).visit_by_rid(self.plan.index.as_ref(), 0, &mut consume)?,
        }
        Ok(documents)
    }

    /// Where an index scan continues: at the encoded order keys of the row `after`. The bytes
    /// are inverted for an index that is scanned backwards.
    fn index_start(&self, is_backward: bool, after: &SortKey) -> Vec<u8> {
        if is_backward { after.order.iter().map(|byte| !byte).collect() } else { after.order.clone() }
    }
}
