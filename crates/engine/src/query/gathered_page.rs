//! One page of gathered rows: the order in which they are returned, and where the next page
//! starts.

use super::continuation::{Continuation, NextRow, RowCursor, hash_of};
use super::output::Output;
use super::rows::{Context, Page, PageRows};

/// The gathered rows that a page is made from.
pub(super) struct Gathered {
    /// If `is_whole`, the rows are sorted by the order keys; without ORDER BY they are in the
    /// order in which they appeared.
    pub(super) rows: Vec<GatheredRow>,
    /// Whether `rows` has all rows that are left to return. Otherwise the positions of the
    /// missing rows are after the positions of these rows.
    pub(super) is_whole: bool,
}

/// A gathered row and its place in the sequence of rows.
pub(super) struct GatheredRow {
    /// The encoded order keys; empty without ORDER BY.
    pub(super) order: Vec<u8>,
    /// See [`value_position`](super::value_position).
    pub(super) position: Vec<u8>,
    /// `None` for a group whose row is undefined.
    pub(super) output: Option<Output>,
}

/// Makes a page of the rows.
pub(super) fn page_of(context: &Context<'_>, mut continuation: Continuation, gathered: Gathered) -> PageRows {
    let mut rows = gathered.rows;
    continuation.ticks = u64::try_from(context.request.program.now().unix_ticks()).ok();
    // With OFFSET, LIMIT or TOP the order must not depend on whether all rows fit on one page:
    // otherwise two statements with different OFFSETs could return the same row.
    let has_offset_or_limit = continuation.skip > 0 || continuation.take.is_some();
    if continuation.after.is_none() && gathered.is_whole && !has_offset_or_limit {
        let page = page_from(Page::new(context, continuation.clone()), &rows, 0, false);
        if page.continuation.is_none() {
            return page;
        }
    }
    rows.sort_by(|one, other| (&one.order, &one.position).cmp(&(&other.order, &other.position)));
    let first = continuation.after.as_ref().map_or(0, |cursor| first_row(&rows, cursor));
    page_from(Page::new(context, continuation), &rows, first, !gathered.is_whole)
}

/// A page of the rows from the index `first` on. `has_others` says whether the query has rows that
/// are not in `rows`.
fn page_from(mut page: Page, rows: &[GatheredRow], first: usize, has_others: bool) -> PageRows {
    let mut is_taken = |row: &GatheredRow| row.output.as_ref().is_none_or(|output| page.try_add(output));
    let end = first + rows.iter().skip(first).take_while(|row| is_taken(row)).count();
    if let Some(last) = rows[first..end].last() {
        let copies = rows[..end].iter().rev().take_while(|row| row.is_at(last)).count();
        page.set_cursor(last.cursor(copies));
    }
    if let Some(next) = rows.get(end) {
        page.shorten_cursor(&next.order, |last| NextRow::Value {
            position: next.position.clone(),
            hash: hash_of(&next.order),
            last_hash: hash_of(last),
        });
    }
    page.finish(has_others || end < rows.len())
}

/// The index of the first row after the cursor.
fn first_row(rows: &[GatheredRow], cursor: &RowCursor) -> usize {
    let (order, position) = (cursor.order.as_deref().unwrap_or_default(), cursor.position.as_deref());
    let position = position.unwrap_or_default();
    let returned = usize::try_from(cursor.row).unwrap_or(usize::MAX);
    if let Some(NextRow::Value { position: next, hash, last_hash }) = &cursor.next {
        // The cursor has only the beginning of the order keys. So the last row is searched for or,
        // if it does not exist any more, the next row.
        let find = |wanted: &[u8], hash: u64| {
            let is_found = |row: &GatheredRow| {
                row.position == wanted && row.order.starts_with(order) && hash_of(&row.order) == hash
            };
            rows.iter().position(is_found)
        };
        return find(position, *last_hash)
            .map(|first| {
                first + returned.min(rows[first..].iter().take_while(|row| row.is_at(&rows[first])).count())
            })
            .or_else(|| find(next, *hash))
            .unwrap_or_else(|| rows.partition_point(|row| row.order.as_slice() < order));
    }
    let at = rows.partition_point(|row| (row.order.as_slice(), row.position.as_slice()) < (order, position));
    let is_equal = |row: &&GatheredRow| row.order == order && row.position == position;
    let copies = rows[at..].iter().take_while(is_equal).count();
    at + returned.min(copies)
}

impl GatheredRow {
    /// Whether another row has the same place.
    fn is_at(&self, other: &GatheredRow) -> bool {
        self.order == other.order && self.position == other.position
    }

    /// The cursor of this row. `copies` is the number of equal rows up to this row, itself
    /// included.
    fn cursor(&self, copies: usize) -> RowCursor {
        RowCursor {
            range: 0,
            rid: 0,
            row: copies as u64,
            order: Some(self.order.clone()),
            position: Some(self.position.clone()),
            next: None,
        }
    }
}
