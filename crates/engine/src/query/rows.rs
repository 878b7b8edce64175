//! Turning documents into the rows of a page.
//!
//! There are three methods:
//! - *stream*, without ORDER BY: documents in `_rid` order, range after range;
//! - [*merge*](super::ordered), with ORDER BY: the smallest rows after the last page;
//! - [*gather*](super::gather), for rows that do not belong to one document each.

use std::ops::ControlFlow;

use perihelion_model::json::{self, Style, Value};
use perihelion_query::{Program, Row};

use perihelion_wire::status;

use super::access::Plan;
use super::continuation::{Continuation, NextRow, RowCursor, Watermark, hash_of};
use super::output::Output;
use super::sources::{self, Scan, ScanRange};
use super::{PAGE_BYTES_MAX, Paging, QueryRequest, gather, ordered};
use crate::catalog::Container;
use crate::documents::StoredDocument;
use crate::keys::RangeId;
use crate::refusal::{Layer, Refusal};
use crate::storage::View;

/// The input of a page. `now` is in seconds since 1970.
pub(super) struct Context<'a> {
    pub(super) view: &'a dyn View,
    pub(super) container: &'a Container,
    pub(super) request: &'a QueryRequest,
    pub(super) plan: &'a Plan,
    pub(super) now: u64,
}

/// The rows of a page and the work they took.
pub(super) struct PageRows {
    /// The rows as JSON text, commas between them.
    pub(super) text: String,
    pub(super) rows: usize,
    /// The members of the rows, as the charge counts them.
    pub(super) members: u64,
    /// The documents that were read.
    pub(super) documents: u64,
    /// The state after this page; `None` for the last page.
    pub(super) continuation: Option<Continuation>,
}

/// The most rows that an aggregate, DISTINCT or an unindexed sort may have in memory,
/// so that one query cannot use all memory.
pub(super) const ROWS_IN_MEMORY_MAX: usize = 1_000_000;

/// Makes the rows of one page.
pub(super) fn produce(context: &Context<'_>, continuation: Continuation) -> Result<PageRows, Refusal> {
    let program = &context.request.program;
    if gather::is_needed(program) {
        return gather::gather(context, continuation);
    }
    if context.plan.is_ordered {
        ordered::merge(context, continuation)
    } else {
        stream(context, continuation)
    }
}

/// Collects the rows of one page within OFFSET, LIMIT, TOP and the page's size.
pub(super) struct Page {
    text: String,
    rows: usize,
    members: u64,
    pub(super) rows_max: usize,
    pub(super) state: Continuation,
    /// Whether the cursor was moved.
    has_advanced: bool,
    pub(super) documents: u64,
}

impl Page {
    pub(super) fn new(context: &Context<'_>, state: Continuation) -> Self {
        let rows_max = context.request.rows_max;
        Page { text: String::new(), rows: 0, members: 0, rows_max, state, has_advanced: false, documents: 0 }
    }

    /// Whether TOP or LIMIT is reached.
    pub(super) fn is_exhausted(&self) -> bool {
        self.state.take == Some(0)
    }

    /// Adds the next row, or skips it for OFFSET, and moves the cursor to it. Returns false,
    /// and does nothing, if the page is full or TOP or LIMIT is reached.
    pub(super) fn try_push(&mut self, row: &Output, cursor: RowCursor) -> bool {
        let is_added = self.try_add(row);
        if is_added {
            self.set_cursor(cursor);
        }
        is_added
    }

    /// Like [`Page::try_push`], but leaves the cursor where it is.
    pub(super) fn try_add(&mut self, row: &Output) -> bool {
        if self.is_exhausted() || self.rows >= self.rows_max {
            return false;
        }
        if self.state.skip > 0 {
            self.state.skip -= 1;
        } else if self.print(row) {
            self.rows += 1;
            self.members += row.members();
            if let Some(take) = &mut self.state.take {
                *take -= 1;
            }
        } else {
            return false;
        }
        true
    }

    /// Moves the cursor to a row: the next page starts after it.
    pub(super) fn set_cursor(&mut self, cursor: RowCursor) {
        self.state.after = Some(cursor);
        self.has_advanced = true;
    }

    /// Whether the next page would not start where this one did.
    pub(super) fn has_advanced(&self) -> bool {
        self.has_advanced
    }

    /// Keeps the cursor short; see [`RowCursor::bound`].
    pub(super) fn bound_cursor(&mut self, next: &[u8], next_row: impl FnOnce(&[u8]) -> NextRow) {
        if let Some(cursor) = &mut self.state.after {
            cursor.bound(next, next_row);
        }
    }

    /// Appends the text of a row if it fits; the first row always fits.
    fn print(&mut self, row: &Output) -> bool {
        let end = self.text.len();
        if self.rows > 0 {
            self.text.push(',');
        }
        row.print_into(&mut self.text);
        let fits = self.rows == 0 || self.text.len() <= PAGE_BYTES_MAX;
        if !fits {
            self.text.truncate(end);
        }
        fits
    }

    /// Keeps the cursor short if the next row is not known: the next page then finds the last
    /// row again.
    pub(super) fn bound_last_cursor(&mut self) {
        let Some(cursor) = &mut self.state.after else { return };
        let order = cursor.order.clone().unwrap_or_default();
        cursor.bound(&order, |last| {
            let last_hash = hash_of(last);
            NextRow::Document { rid: u64::MAX, row: 0, hash: !last_hash, last_hash }
        });
    }

    /// Ends the page. `has_more` says whether a row did not fit. There is a next page if a row
    /// did not fit and TOP and LIMIT are not reached.
    pub(super) fn finish(mut self, has_more: bool) -> PageRows {
        // A continuation that the client made up may have any numbers.
        self.state.pages = self.state.pages.saturating_add(1);
        self.state.rows = self.state.rows.saturating_add(self.rows as u64);
        let continues = has_more && !self.is_exhausted();
        PageRows {
            text: self.text,
            rows: self.rows,
            members: self.members,
            documents: self.documents,
            continuation: continues.then_some(self.state),
        }
    }
}

/// Makes a page of a query without order.
fn stream(context: &Context<'_>, continuation: Continuation) -> Result<PageRows, Refusal> {
    let ranges = sources::scan_ranges(context.container, &context.request.scope);
    let watermarks = watermarks(&continuation);
    let mut at = first_scan_range(context.container, &ranges, continuation.after.as_ref())?;
    let mut page = Page::new(context, continuation);
    let mut has_more = false;
    while let Some(range) = ranges.get(at) {
        let watermark = watermark_of(context.container, range.id, &watermarks);
        let first = watermark.map_or(0, |(rid, _)| rid);
        context.scan(range).visit_by_rid(context.plan.index.as_ref(), first, &mut |rid, document| {
            page.documents += 1;
            for (row, cursor) in context.rows_of(range.id, rid, &document)? {
                if watermark.is_some_and(|watermark| (rid, cursor.row) <= watermark) {
                    continue;
                }
                if !page.try_push(&row.output, cursor) {
                    has_more = true;
                    return Ok(ControlFlow::Break(()));
                }
            }
            Ok(ControlFlow::Continue(()))
        })?;
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
    let resumes_at = first_scan_range(context.container, &ranges, page.state.after.as_ref())?;
    let unread = ranges.get(resumes_at..).unwrap_or_default();
    page.state.watermarks = watermarks;
    page.state.watermarks.retain(|watermark| {
        let is_split = context.container.range(watermark.range).is_none();
        is_split
            && unread.iter().any(|range| is_or_descends_from(context.container, range.id, watermark.range))
    });
    Ok(page.finish(has_more))
}

/// The watermarks of a continuation, and a watermark for the last row of the last page.
fn watermarks(continuation: &Continuation) -> Vec<Watermark> {
    let last = continuation.after.as_ref();
    let last = last.map(|cursor| Watermark { range: cursor.range, rid: cursor.rid, row: cursor.row });
    continuation.watermarks.iter().copied().chain(last).collect()
}

/// The `_rid` counter and row number of the last row that was read in this range, or in a
/// range from which this range was split.
fn watermark_of(container: &Container, range: RangeId, watermarks: &[Watermark]) -> Option<(u64, u64)> {
    let own = watermarks.iter().filter(|watermark| is_or_descends_from(container, range, watermark.range));
    own.map(|watermark| (watermark.rid, watermark.row)).max()
}

/// The index of the range in which a page continues after the row `after`. The children of
/// a split range take its place in the list.
fn first_scan_range(
    container: &Container,
    ranges: &[ScanRange<'_>],
    after: Option<&RowCursor>,
) -> Result<usize, Refusal> {
    let Some(cursor) = after else { return Ok(0) };
    let continues = |range: &ScanRange<'_>| is_or_descends_from(container, range.id, cursor.range);
    ranges.iter().position(continues).ok_or_else(Refusal::range_gone)
}

/// Whether a range is `ancestor` or was split from it.
fn is_or_descends_from(container: &Container, range: RangeId, ancestor: RangeId) -> bool {
    container.range(range).map_or(range == ancestor, |range| range.descends_from(ancestor))
}

/// One row of a document.
pub(super) struct DocumentRow {
    pub(super) output: Output,
    pub(super) order_keys: Vec<Option<Value>>,
}

/// The rows of a document; `None` for an undefined row, or for a whole document that the
/// filter drops. If the program selects every document, a document is parsed only if it
/// must be printed again.
fn document_rows(program: &Program, document: &StoredDocument) -> Result<Vec<Option<DocumentRow>>, Refusal> {
    if program.selects_every_document() {
        return Ok(vec![Some(DocumentRow {
            output: Output::of(document, || document.value()),
            order_keys: Vec::new(),
        })]);
    }
    let value = document.value();
    if program.selects_whole_document() {
        let keys = program.document_keys(&value).map_err(evaluation_refusal)?;
        let row = keys.map(|order_keys| DocumentRow { output: Output::of(document, || value), order_keys });
        return Ok(vec![row]);
    }
    let mut rows = Vec::new();
    program.rows(&value, &mut rows).map_err(evaluation_refusal)?;
    let defined = |row: Row| {
        let output = Output::Value(row.output?);
        Some(DocumentRow { output, order_keys: row.order_keys })
    };
    Ok(rows.into_iter().map(defined).collect())
}

impl Context<'_> {
    pub(super) fn scan<'b>(&'b self, range: &'b ScanRange<'b>) -> Scan<'b> {
        Scan { view: self.view, container: self.container, range, now: self.now }
    }

    /// The rows of a document, each with its cursor.
    pub(super) fn rows_of(
        &self,
        range: RangeId,
        rid: u64,
        document: &StoredDocument,
    ) -> Result<impl Iterator<Item = (DocumentRow, RowCursor)> + use<>, Refusal> {
        let rows = document_rows(&self.request.program, document)?;
        Ok((0..).zip(rows).filter_map(move |(number, row)| {
            row.map(|row| {
                (row, RowCursor { range, rid, row: number, order: None, position: None, next: None })
            })
        }))
    }
}

pub(super) fn too_many_rows() -> Refusal {
    Refusal::bad_request(format!(
        "The query holds more than {ROWS_IN_MEMORY_MAX} rows in memory; narrow its filter or order by an indexed path."
    ))
}

/// The refusal for an evaluation error, such as a number that JSON cannot represent:
/// a backend error with a charge.
pub(super) fn evaluation_refusal(error: perihelion_query::EvaluationError) -> Refusal {
    let text = json::to_text(&error.to_json(), Style::Query);
    let mut refusal = Refusal::new(status::BAD_REQUEST, Layer::QueryRuntime, text);
    refusal.sub_status = error.sub_status();
    refusal.with_charge(QUERY_ERROR_CHARGE)
}

/// The charge of a failed query, the same as that of a query without FROM.
const QUERY_ERROR_CHARGE: f64 = 2.25;
