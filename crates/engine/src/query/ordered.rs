//! Queries with ORDER BY: each range returns its smallest rows after the cursor of the last
//! page, from an index or by a scan of all documents, and the rows of all ranges are merged.
//!
//! A cursor has the order keys of the last row and its `_rid`. Long keys are shortened
//! ([`RowCursor::shorten`](super::continuation::RowCursor::shorten)); the rest is then read from
//! the document of the next row, or from the document of the last row.
//!
//! An index holds only the beginning of a long string. The rows whose keys begin alike are not in
//! order in the index, so a page reads all of them before it returns one.
//!
//! If the time of a page is over before all ranges were read, the page has no rows. Its
//! continuation names the place where the next page goes on reading, and the smallest rows so far
//! ([`BestRow`]). The page that reads the last document returns only rows up to the last of the
//! [`BestRow`]s: an earlier page may have read and dropped rows after that row. A row that was
//! deleted or changed between the pages is left out. If that leaves no row to return, the next page
//! begins after the last [`BestRow`].

use std::ops::ControlFlow;

use perihelion_model::json::Value;
use perihelion_model::resource_id::DOCUMENT_COUNTER_MAX;
use perihelion_query::{Direction, EvaluationError, RowPlace};

use super::continuation::{Continuation, NextRow, RowCursor, hash_of};
use super::gather;
use super::pause::{BestRow, Pause};
use super::resume_filter::ResumeFilter;
use super::rows::{Context, DocumentRow, Page, PageRows, evaluation_refusal};
use super::smallest_rows::{HeldRow, SmallestRows, SortKey};
use super::sources::{self, ScanEnd, ScanRange};
use super::stream::is_or_descends_from;
use crate::documents::StoredDocument;
use crate::index;
use crate::keys::RangeId;
use crate::pace::PageEnd;
use crate::refusal::Refusal;

/// Makes a page of a query with ORDER BY.
pub(super) fn merge(context: &Context<'_>, mut continuation: Continuation) -> Result<PageRows, Refusal> {
    let after = match &continuation.after {
        Some(cursor) => Some(context.last_key(cursor)?),
        None => context.request.resume.as_ref().map(|resume| context.resume_key(resume)),
    };
    let mut smallest = SmallestRows::new(gather::rows_wanted(context, &continuation));
    let ranges = sources::scan_ranges(context.container, &context.request.scope);
    let (pause, sure_up_to) = context.take_pause(&mut continuation, &mut smallest)?;
    let mut page = Page::new(context, continuation);
    if context.request.program.order().iter().any(|key| key.path.is_none()) {
        // The next pages have to sort by the same values.
        page.state.ticks = context.ticks();
    }
    let is_paused_in = |range: &ScanRange<'_>| {
        pause.as_ref().is_some_and(|pause| is_or_descends_from(context.container, range.id, pause.range))
    };
    // The ranges before the range of the pause were read.
    let first = if pause.is_some() { ranges.iter().position(is_paused_in) } else { Some(0) };
    let unread = ranges.get(first.ok_or_else(Refusal::range_gone)?..).unwrap_or_default();
    for range in unread {
        let start = pause.as_ref().filter(|_| is_paused_in(range));
        let from = ScanStart { after: after.as_ref(), pause: start };
        let (documents, pause) = context.collect_smallest(range, &from, &mut smallest)?;
        page.documents += documents;
        if let Some(pause) = pause {
            let (best, sure_up_to) = context.best_rows(&smallest, sure_up_to.as_ref());
            let sure_up_to = sure_up_to.filter(|_| pause.index_key.is_none());
            page.state.pause = Some(Pause { best, sure_up_to, ..pause });
            return Ok(page.finish(true));
        }
    }
    let (start, sure) = (page.state.after.clone(), sure_up_to.clone());
    let mut page = finish(context, page, smallest, sure_up_to);
    if let Some(state) = page.continuation.as_mut().filter(|state| state.after == start) {
        // All rows up to this key were deleted or changed.
        let past = sure.filter(|sure| after.as_ref().is_none_or(|after| sure > after));
        let range = ranges.first().map_or(0, |range| range.id);
        state.after = past.map(|key| context.cursor(range, key)).or(start);
    }
    Ok(page)
}

/// Fills the page. After a pause, only the rows up to `sure_up_to` are surely the smallest, and
/// there may be rows that are not in memory.
fn finish(
    context: &Context<'_>,
    mut page: Page,
    smallest: SmallestRows,
    sure_up_to: Option<SortKey>,
) -> PageRows {
    // If no row was read before the last pause, and `smallest` is not full, all rows are in memory.
    let has_others = smallest.is_full || sure_up_to.is_some();
    let mut rows = smallest.rows.into_iter().peekable();
    while let Some((key, row)) = rows.next() {
        // If there are rows that are not in memory, the last row in memory stays for the next
        // page, because the cursor may need the row after it.
        let is_kept = smallest.is_full && rows.peek().is_none() && page.has_advanced();
        let is_unsure = sure_up_to.as_ref().is_some_and(|last| key > *last);
        if is_unsure {
            page.shorten_last_cursor();
            return page.finish(true);
        }
        if is_kept || !page.try_push(&row.output, context.cursor(row.range, key.clone())) {
            page.shorten_cursor(&key.order, |last| NextRow::Document {
                rid: context.rid_order(key.rid),
                row: key.row,
                hash: hash_of(&key.order),
                last_hash: hash_of(last),
            });
            return page.finish(true);
        }
    }
    if has_others {
        // The row after the last one in memory is not known.
        page.shorten_last_cursor();
    }
    page.finish(has_others)
}

/// The encoded order keys of a row, each in its direction.
pub(super) fn encode_order(keys: &[Option<Value>], directions: &[Direction]) -> Vec<u8> {
    let mut order = Vec::new();
    for (value, direction) in keys.iter().zip(directions) {
        index::encode(&mut order, value.as_ref(), *direction == Direction::Descending);
    }
    order
}

/// Where the scan of a range begins.
struct ScanStart<'a> {
    /// The last row of the last page.
    after: Option<&'a SortKey>,
    /// Where the last page ended, if that was in this range.
    pause: Option<&'a Pause>,
}

impl Context<'_> {
    /// The time that the date functions see, as it is in a token.
    fn ticks(&self) -> Option<u64> {
        u64::try_from(self.request.program.now().unix_ticks()).ok()
    }

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
        // In a descending order, a shortened key would have the largest number as its `_rid`
        // counter. A token cannot contain that number, so the largest counter of a document is
        // used.
        let (rid, row) = (self.rid_order(key.rid).min(DOCUMENT_COUNTER_MAX), key.row);
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
        let found = self.find_row(rid, &RowPlace::default(), row, hash)?;
        Ok(found.map(|(_, _, order)| order))
    }

    /// A row of a document, if the document still has that row and its order keys have that
    /// hash. The search begins at a place among the rows of the document.
    fn find_row(
        &self,
        rid: u64,
        start: &RowPlace,
        row: u64,
        hash: u64,
    ) -> Result<Option<(RangeId, DocumentRow, Vec<u8>)>, Refusal> {
        let mut found = None;
        for range in &sources::scan_ranges(self.container, &self.request.scope) {
            self.scan(range).visit_rid(rid, &mut |_, document| {
                let mut place = Some(start.clone());
                // The rows of a large document are read in parts.
                while let Some(start) = place.filter(|place| found.is_none() && place.row <= row) {
                    self.pace.check_gathering()?;
                    place = self.each_row_of(&document, &start, &mut |number, _, found_row| {
                        if number == row {
                            let order = self.encode_order(&found_row.order_keys);
                            found = Some((range.id, found_row, order));
                        }
                        number < row
                    })?;
                }
                Ok(ControlFlow::Break(()))
            })?;
        }
        Ok(found.filter(|(_, _, order)| hash_of(order) == hash))
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

    /// Takes the pause from the continuation: the place where this page goes on. Adds the smallest
    /// rows of the earlier pages to `smallest`, except rows that have changed. Also returns a key:
    /// `smallest` has every row up to this key that was read before the pause. The key is `None` if
    /// no row was read.
    ///
    /// Returns no pause, so that everything is read again, in three cases:
    /// - this page uses an index that gives the order and the page before did not, or the opposite;
    /// - rows were read, but no such key is known;
    /// - the order keys were computed with another time.
    fn take_pause(
        &self,
        continuation: &mut Continuation,
        smallest: &mut SmallestRows,
    ) -> Result<(Option<Pause>, Option<SortKey>), Refusal> {
        let has_ordering_index = self.plan.index.as_ref().is_some_and(|used| used.gives_order);
        let has_same_time = continuation.ticks.is_none_or(|ticks| Some(ticks) == self.ticks());
        let pause = continuation.pause.take().filter(|_| has_same_time);
        let Some(pause) = pause.filter(|pause| pause.index_key.is_some() == has_ordering_index) else {
            return Ok((None, None));
        };
        let (mut rows, mut last) = (Vec::with_capacity(pause.best.len()), None);
        for best in &pause.best {
            let found = self.find_row(best.rid, &best.place, best.place.row, best.hash)?;
            let Some((range, row, order)) = found else { continue };
            let key = SortKey { order, rid: self.rid_order(best.rid), row: best.place.row };
            last = last.max(Some(key.clone()));
            let elements = best.place.elements.clone();
            rows.push((key, HeldRow { range, elements, output: row.output }));
        }
        let sure_up_to = last.max(pause.sure_up_to.clone());
        if sure_up_to.is_none() && !pause.best.is_empty() {
            return Ok((None, None));
        }
        rows.into_iter().for_each(|(key, row)| smallest.insert(key, row));
        Ok((Some(pause), sure_up_to))
    }

    /// The smallest rows so far, for the continuation, and a key: all rows that were read up to
    /// this key are among these rows. Rows after `sure_up_to` are left out: an earlier page may
    /// have dropped a smaller row.
    fn best_rows(
        &self,
        smallest: &SmallestRows,
        sure_up_to: Option<&SortKey>,
    ) -> (Vec<BestRow>, Option<SortKey>) {
        let is_sure = |key: &SortKey| sure_up_to.is_none_or(|last| key <= last);
        let mut rows = smallest.rows.iter().take_while(|(key, _)| is_sure(key));
        let (mut best, mut last) = (Vec::<BestRow>::new(), None);
        while best.first().is_none_or(|first| best.len() < BestRow::count_max(&first.place)) {
            let Some((key, row)) = rows.next() else { break };
            let place = RowPlace { row: key.row, elements: row.elements.clone() };
            best.push(BestRow { rid: self.rid_order(key.rid), place, hash: hash_of(&key.order) });
            last = Some(key);
        }
        // If no row is left over, `best` has every row in memory up to `sure_up_to`. Rows that did
        // not fit into memory are after the last row in memory.
        let reaches_sure = !smallest.is_full || smallest.last().is_some_and(|last| !is_sure(last));
        let is_whole = rows.next().is_none() && reaches_sure;
        (best, sure_up_to.filter(|_| is_whole).or(last).cloned())
    }

    /// Adds the rows of a range to `smallest`. Leaves out the rows up to the last row of the last
    /// page. Returns how many documents were read, and the place where the time of the page was
    /// over.
    fn collect_smallest(
        &self,
        range: &ScanRange<'_>,
        from: &ScanStart<'_>,
        smallest: &mut SmallestRows,
    ) -> Result<(u64, Option<Pause>), Refusal> {
        let mut documents = 0;
        let mut paused_within = None;
        let ordering_index = self.plan.index.as_ref().filter(|used| used.gives_order);
        let mut held = self.pace.held_memory();
        let mut consume = |rid: u64, document: StoredDocument| {
            documents += 1;
            let start = from.pause.filter(|pause| pause.rid == rid).map(|pause| pause.place.clone());
            let read = self.add_rows((range.id, rid), &document, start, from.after, smallest)?;
            held.set_text_bytes(smallest.bytes)?;
            let ends = match read {
                // An index returns rows in order, so the first row after the page ends the scan.
                RowsRead::All { has_row_after_page } => has_row_after_page && ordering_index.is_some(),
                RowsRead::Until(place) => {
                    paused_within = Some(Pause { place, ..Pause::before(range.id, rid) });
                    true
                }
            };
            Ok(if ends { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        };
        let pause = self.scan_in_order(range, from, &mut consume)?;
        Ok((documents, pause.or(paused_within)))
    }

    /// Visits the documents of a range by the index that gives the order, or by `_rid`. Returns the
    /// place where the time of the page was over.
    fn scan_in_order(
        &self,
        range: &ScanRange<'_>,
        from: &ScanStart<'_>,
        consume: &mut sources::Consumer<'_>,
    ) -> Result<Option<Pause>, Refusal> {
        // Some clients read only the first page of a query that sorts by a score or a distance. So
        // the first page has to read all rows, however long that takes.
        let scan = match self.request.program.sorts_by_score() {
            true => self.scan(range),
            false => self.paced_scan(range, PageEnd::Costly),
        };
        let Some(used) = self.plan.index.as_ref().filter(|used| used.gives_order) else {
            let first = from.pause.map_or(0, |pause| pause.rid);
            let end = scan.visit_by_rid(self.plan.index.as_ref(), first, consume)?;
            return Ok(match end {
                ScanEnd::Paused(rid) => Some(Pause::before(range.id, rid)),
                ScanEnd::Stopped | ScanEnd::Complete => None,
            });
        };
        let after = from.after.map(|after| self.index_start(used.is_backward, after));
        let paused = from.pause.and_then(|pause| pause.index_key.as_deref());
        let end = scan.visit_by_index(used, sources::later_start(used, after, paused), consume)?;
        Ok(match end {
            ScanEnd::Paused((rid, key)) => {
                Some(Pause { index_key: Some(key), ..Pause::before(range.id, rid) })
            }
            ScanEnd::Stopped | ScanEnd::Complete => None,
        })
    }

    /// Adds the rows of a document to `smallest`, from a place on.
    fn add_rows(
        &self,
        (range, rid): (RangeId, u64),
        document: &StoredDocument,
        start: Option<RowPlace>,
        after: Option<&SortKey>,
        smallest: &mut SmallestRows,
    ) -> Result<RowsRead, Refusal> {
        let ordering_index = self.plan.index.as_ref().filter(|used| used.gives_order);
        // An index whose first column is declared descending is scanned forwards for a
        // descending order. The scan then returns the keys in order, but rows with equal
        // keys by ascending `_rid`, where the query wants them by descending `_rid`.
        let orders_equal_keys = ordering_index.is_some_and(|used| used.is_backward == self.is_reversed());
        let may_pause = ordering_index.is_none() && !self.request.program.sorts_by_score();
        let mut has_row_after_page = false;
        let mut place = start.unwrap_or_default();
        for part in 0.. {
            let left = self.each_row_of(document, &place, &mut |number, elements, row| {
                let order = self.encode_order(&row.order_keys);
                let key = SortKey { order, rid: self.rid_order(rid), row: number };
                if after.is_some_and(|after| key <= *after) {
                    return true;
                }
                if let Some(end) = smallest.end().filter(|end| **end < key) {
                    has_row_after_page |= match index::cut_order(&key.order) {
                        // The entries with this beginning are not in order.
                        (cut, true) => index::cut_order(&end.order).0 < cut,
                        (_, false) => orders_equal_keys || end.order < key.order,
                    };
                    smallest.is_full = true;
                    return true;
                }
                smallest.insert(key, HeldRow { range, elements: elements.to_vec(), output: row.output });
                true
            })?;
            match left {
                None => return Ok(RowsRead::All { has_row_after_page }),
                Some(next) if may_pause && self.pace.is_over() => return Ok(RowsRead::Until(next)),
                // The page cannot pause within a document, because a place in an index does not say
                // which documents with equal keys were read.
                Some(_) if part >= PARTS_MAX && ordering_index.is_some() => break,
                Some(next) => {
                    if !may_pause {
                        self.pace.check_gathering()?;
                    }
                    place = next;
                }
            }
        }
        Err(evaluation_refusal(EvaluationError::TooMuchWork))
    }

    /// Where an index scan continues: at the beginning of the index keys of the row `after`. The
    /// bytes are inverted for an index that is scanned backwards.
    fn index_start(&self, is_backward: bool, after: &SortKey) -> Vec<u8> {
        let (start, _) = index::cut_order(&after.order);
        if is_backward { start.iter().map(|byte| !byte).collect() } else { start.into_owned() }
    }
}

/// The most parts in which the rows of one document are read, if an index gives the order. Each
/// part is the work that one evaluation may do, about a second.
const PARTS_MAX: u32 = 8;

/// Which rows of a document were read.
enum RowsRead {
    /// All rows.
    All {
        /// Whether one of the rows is after the last row of the page.
        has_row_after_page: bool,
    },
    /// The rows before this place. There the time of the page was over.
    Until(RowPlace),
}
