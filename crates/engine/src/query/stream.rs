//! Queries without ORDER BY: the rows of the documents in `_rid` order, range after range.
//!
//! A page ends after a row, within the rows of one document, or before a document when its time
//! is over. The next page starts in the range of that place. Ranges may be split between two
//! pages; their children then go on where their parent ended.

use std::ops::ControlFlow;

use perihelion_query::RowPlace;

use super::Paging;
use super::continuation::{Continuation, RowCursor, Watermark};
use super::pause::Pause;
use super::rows::{Context, Page, PageRows};
use super::sources::{self, ScanEnd, ScanRange};
use crate::catalog::Container;
use crate::documents::StoredDocument;
use crate::keys::RangeId;
use crate::pace::PageEnd;
use crate::refusal::Refusal;

/// Makes a page of a query without order.
pub(super) fn stream(context: &Context<'_>, mut continuation: Continuation) -> Result<PageRows, Refusal> {
    let ranges = sources::scan_ranges(context.container, &context.request.scope);
    let pause = continuation.pause.take();
    let watermarks = watermarks(&continuation, pause.as_ref());
    let mut at = first_scan_range(context.container, &ranges, &continuation, pause.as_ref())?;
    let mut page = Page::new(context, continuation);
    let mut has_more = false;
    while let Some(range) = ranges.get(at) {
        let watermark = watermark_of(context.container, range.id, &watermarks);
        let start = |rid: u64| match &pause {
            Some(pause) if pause.rid == rid => pause.place.clone(),
            Some(_) | None => RowPlace::default(),
        };
        let first = watermark.map_or(0, first_rid_after);
        let scan = context.paced_scan(range, PageEnd::Cheap);
        let end = scan.visit_by_rid(context.plan.index.as_ref(), first, &mut |rid, document| {
            page.documents += 1;
            let place = page.add_rows(context, (range.id, rid), &document, &start(rid), watermark)?;
            let Some(place) = place else { return Ok(ControlFlow::Continue(())) };
            has_more = true;
            let is_within = place != RowPlace::default();
            page.state.pause = is_within.then(|| Pause { place, ..Pause::before(range.id, rid) });
            Ok(ControlFlow::Break(()))
        })?;
        if let ScanEnd::Paused(rid) = end {
            has_more = true;
            page.state.pause = Some(Pause::before(range.id, rid));
        }
        if has_more || page.is_exhausted() {
            break;
        }
        at += 1;
        if context.request.paging == Paging::AsService {
            match ranges.get(at) {
                Some(next) => page.set_cursor(RowCursor::before(next.id)),
                None if page.rows < page.rows_max => break,
                None => {}
            }
            has_more = true;
            break;
        }
    }
    // The next page starts in the range of the last row, which may be before the range whose
    // first row did not fit.
    let resumes_at = first_scan_range(context.container, &ranges, &page.state, page.state.pause.as_ref())?;
    let unread = ranges.get(resumes_at..).unwrap_or_default();
    page.state.watermarks = watermarks;
    page.state.watermarks.retain(|watermark| {
        let is_split = context.container.range(watermark.range).is_none();
        is_split
            && unread.iter().any(|range| is_or_descends_from(context.container, range.id, watermark.range))
    });
    Ok(page.finish(has_more))
}

impl Page {
    /// Adds the rows of a document from a place on. Returns the place of the first row that was
    /// not added; `None` if all were.
    fn add_rows(
        &mut self,
        context: &Context<'_>,
        (range, rid): (RangeId, u64),
        document: &StoredDocument,
        start: &RowPlace,
        watermark: Option<(u64, u64)>,
    ) -> Result<Option<RowPlace>, Refusal> {
        context.each_row_of(document, start, &mut |number, _, row| {
            if watermark.is_some_and(|watermark| (rid, number) <= watermark) {
                return true;
            }
            let cursor = RowCursor { range, rid, row: number, order: None, position: None, next: None };
            self.try_push(&row.output, cursor)
        })
    }
}

/// The first `_rid` counter whose document has rows after a watermark.
fn first_rid_after((rid, row): (u64, u64)) -> u64 {
    if row == u64::MAX { rid.saturating_add(1) } else { rid }
}

/// The watermarks of a continuation, and a watermark for the end of the last page.
fn watermarks(continuation: &Continuation, pause: Option<&Pause>) -> Vec<Watermark> {
    let last = match pause {
        // The documents before the pause were read whole.
        Some(pause) => match pause.place.row.checked_sub(1) {
            Some(row) => Some((pause.range, pause.rid, row)),
            None => pause.rid.checked_sub(1).map(|rid| (pause.range, rid, u64::MAX)),
        },
        None => continuation.after.as_ref().map(|cursor| (cursor.range, cursor.rid, cursor.row)),
    };
    let last = last.map(|(range, rid, row)| Watermark { range, rid, row });
    continuation.watermarks.iter().copied().chain(last).collect()
}

/// The `_rid` counter and row number of the last row that was read in this range, or in a
/// range from which this range was split.
fn watermark_of(container: &Container, range: RangeId, watermarks: &[Watermark]) -> Option<(u64, u64)> {
    let own = watermarks.iter().filter(|watermark| is_or_descends_from(container, range, watermark.range));
    own.map(|watermark| (watermark.rid, watermark.row)).max()
}

/// The index of the range in which a page continues: that of the pause, or else that of the last
/// row. The children of a split range take its place in the list.
fn first_scan_range(
    container: &Container,
    ranges: &[ScanRange<'_>],
    continuation: &Continuation,
    pause: Option<&Pause>,
) -> Result<usize, Refusal> {
    let last = pause.map(|pause| pause.range);
    let last = last.or_else(|| continuation.after.as_ref().map(|cursor| cursor.range));
    let Some(last) = last else { return Ok(0) };
    let continues = |range: &ScanRange<'_>| is_or_descends_from(container, range.id, last);
    ranges.iter().position(continues).ok_or_else(Refusal::range_gone)
}

/// Whether a range is `ancestor` or was split from it.
pub(super) fn is_or_descends_from(container: &Container, range: RangeId, ancestor: RangeId) -> bool {
    container.range(range).map_or(range == ancestor, |range| range.descends_from(ancestor))
}
