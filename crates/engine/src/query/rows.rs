//! Turning documents into the rows of a page.
//!
//! There are three methods:
//! - [*stream*](super::stream), without ORDER BY: documents in `_rid` order, range after range;
//! - [*merge*](super::ordered), with ORDER BY: the smallest rows after the last page;
//! - [*gather*](super::gather), for rows that do not belong to one document each.

use perihelion_model::json::{self, Style, Value};
use perihelion_query::{Row, RowPlace};

use perihelion_wire::status;

use super::access::Plan;
use super::continuation::{Continuation, NextRow, RowCursor, hash_of};
use super::output::Output;
use super::sources::{Scan, ScanRange};
use super::{QueryRequest, gather, ordered, stream};
use crate::catalog::Container;
use crate::documents::StoredDocument;
use crate::pace::{Pace, PageEnd};
use crate::refusal::{Layer, Refusal};
use crate::state::ContainerState;
use crate::storage::View;

/// The input of a page. `now` is in seconds since 1970.
pub(super) struct Context<'a> {
    pub(super) view: &'a dyn View,
    pub(super) container: &'a Container,
    /// The counters of the container, from the snapshot of `view`.
    pub(super) state: &'a ContainerState,
    pub(super) request: &'a QueryRequest,
    pub(super) plan: &'a Plan,
    pub(super) pace: &'a Pace<'a>,
    pub(super) now: u64,
}

/// The rows of a page and the work they took.
pub(super) struct PageRows {
    /// The rows as JSON text, with commas between them.
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
        stream::stream(context, continuation)
    }
}

/// Collects the rows of one page within OFFSET, LIMIT, TOP and the page's size.
pub(super) struct Page {
    text: String,
    pub(super) rows: usize,
    members: u64,
    pub(super) rows_max: usize,
    bytes_max: usize,
    pub(super) state: Continuation,
    /// Whether the cursor was moved.
    has_advanced: bool,
    pub(super) documents: u64,
}

impl Page {
    pub(super) fn new(context: &Context<'_>, state: Continuation) -> Self {
        let rows_max = context.request.rows_max;
        Page {
            text: String::new(),
            rows: 0,
            members: 0,
            rows_max,
            bytes_max: context.pace.bytes_max(),
            state,
            has_advanced: false,
            documents: 0,
        }
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

    /// Adds the next row, or skips it for OFFSET, without moving the cursor. Returns false, and
    /// does nothing, if the page is full or TOP or LIMIT is reached.
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

    /// Whether the cursor was moved, so that the next page starts after the start of this page.
    pub(super) fn has_advanced(&self) -> bool {
        self.has_advanced
    }

    /// Shortens the cursor; see [`RowCursor::shorten`].
    pub(super) fn shorten_cursor(&mut self, next: &[u8], next_row: impl FnOnce(&[u8]) -> NextRow) {
        if let Some(cursor) = &mut self.state.after {
            cursor.shorten(next, next_row);
        }
    }

    /// Appends the text of a row if it fits; the first row always fits.
    fn print(&mut self, row: &Output) -> bool {
        let end = self.text.len();
        if self.rows > 0 {
            self.text.push(',');
        }
        row.print_into(&mut self.text);
        let fits = self.rows == 0 || self.text.len() <= self.bytes_max;
        if !fits {
            self.text.truncate(end);
        }
        fits
    }

    /// Shortens the cursor if the next row is not known. The cursor then names a next row that
    /// cannot exist, so the next page looks for the last row instead.
    pub(super) fn shorten_last_cursor(&mut self) {
        let Some(cursor) = &mut self.state.after else { return };
        let order = cursor.order.clone().unwrap_or_default();
        cursor.shorten(&order, |last| {
            let last_hash = hash_of(last);
            NextRow::Document { rid: u64::MAX, row: 0, hash: !last_hash, last_hash }
        });
    }

    /// Ends the page. `has_more` says whether rows may be left. If so, there is a next page,
    /// unless TOP or LIMIT is reached.
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

/// One row of a document.
pub(super) struct DocumentRow {
    pub(super) output: Output,
    pub(super) order_keys: Vec<Option<Value>>,
}

impl DocumentRow {
    /// `None` for a row whose value is undefined.
    fn of(row: Row) -> Option<Self> {
        Some(DocumentRow { output: Output::Value(row.output?), order_keys: row.order_keys })
    }
}

impl Context<'_> {
    /// A scan that does not end when the time of the page is over.
    pub(super) fn scan<'b>(&'b self, range: &'b ScanRange<'b>) -> Scan<'b> {
        Scan {
            view: self.view,
            container: self.container,
            range,
            pace: self.pace,
            page_end: None,
            now: self.now,
        }
    }

    /// A scan that ends when the time of the page is over.
    pub(super) fn paced_scan<'b>(&'b self, range: &'b ScanRange<'b>, end: PageEnd) -> Scan<'b> {
        Scan { page_end: Some(end), ..self.scan(range) }
    }

    /// Calls `visit` with the rows of a document, from a place on, until `visit` returns false.
    /// Each row comes with its number and the elements of its place. Returns the place of the first
    /// row that was not taken, because `visit` returned false or because the rows before it took a
    /// lot of work; `None` if no row is left. If the program selects every document, a document is
    /// parsed only if it must be printed again.
    pub(super) fn each_row_of(
        &self,
        document: &StoredDocument,
        start: &RowPlace,
        visit: &mut dyn FnMut(u64, &[u32], DocumentRow) -> bool,
    ) -> Result<Option<RowPlace>, Refusal> {
        let program = &self.request.program;
        if !program.selects_whole_document() {
            let mut visit_defined = |number: u64, elements: &[u32], row: Row| {
                DocumentRow::of(row).is_none_or(|row| visit(number, elements, row))
            };
            return program
                .rows_from(&document.value(), start, &mut visit_defined)
                .map_err(evaluation_refusal);
        }
        let row = if program.selects_every_document() {
            Some(DocumentRow { output: Output::of(document, || document.value()), order_keys: Vec::new() })
        } else {
            let value = document.value();
            let keys = program.document_keys(&value).map_err(evaluation_refusal)?;
            keys.map(|order_keys| DocumentRow { output: Output::of(document, || value), order_keys })
        };
        let is_taken = start.row > 0 || row.is_none_or(|row| visit(0, &[], row));
        Ok((!is_taken).then(RowPlace::default))
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
