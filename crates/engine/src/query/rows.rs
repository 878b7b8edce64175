//! Turning documents into the rows of a page.
//!
//! There are three methods:
//! - *stream*, without ORDER BY: documents in `_rid` order, range after range;
//! - *merge*, with ORDER BY: each range returns its smallest rows after the cursor of
//!   the last page, from an index or by a scan of all documents, and the rows of all
//!   ranges are merged;
//! - [*gather*](super::gather): all rows are computed, and a page returns the next
//!   ones by their number.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use perihelion_model::json::{self, Style, Value};
use perihelion_query::{Program, Row};

use perihelion_wire::status;

use super::access::Plan;
use super::continuation::{Continuation, RowCursor, Watermark};
use super::output::Output;
use super::sources::{self, Scan, ScanRange};
use super::{PAGE_BYTES_MAX, QueryRequest, gather};
use crate::catalog::Container;
use crate::documents::StoredDocument;
use crate::index;
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
    if context.plan.is_ordered { merge(context, continuation) } else { stream(context, continuation) }
}

/// Collects the rows of one page within OFFSET, LIMIT, TOP and the page's size.
pub(super) struct Page {
    text: String,
    rows: usize,
    members: u64,
    rows_max: usize,
    state: Continuation,
    pub(super) documents: u64,
}

impl Page {
    pub(super) fn new(context: &Context<'_>, state: Continuation) -> Self {
        let rows_max = context.request.rows_max;
        Page { text: String::new(), rows: 0, members: 0, rows_max, state, documents: 0 }
    }

    /// Whether TOP or LIMIT is reached.
    pub(super) fn is_exhausted(&self) -> bool {
        self.state.take == Some(0)
    }

    /// Adds the next row, or skips it for OFFSET. Returns false, and does neither, if the
    /// page is full or TOP or LIMIT is reached.
    pub(super) fn try_push(&mut self, row: &Output, cursor: RowCursor) -> bool {
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
        self.state.after = Some(cursor);
        true
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
    }
    let unread = ranges.get(at..).unwrap_or_default();
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

/// One row of a document.
struct DocumentRow {
    output: Output,
    order_keys: Vec<Option<Value>>,
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

/// Makes a page of a query with ORDER BY.
fn merge(context: &Context<'_>, continuation: Continuation) -> Result<PageRows, Refusal> {
    let after = continuation.after.as_ref().map(|cursor| context.sort_key(cursor));
    let mut page = Page::new(context, continuation);
    // One row more than the page can have shows whether there is a next page.
    let wanted = page.rows_max.saturating_add(1).saturating_add(page.state.skip as usize);
    let wanted = page
        .state
        .take
        .map_or(wanted, |take| wanted.min((take.saturating_add(page.state.skip) as usize).saturating_add(1)));
    let mut smallest: BTreeMap<SortKey, (RangeId, Output)> = BTreeMap::new();
    for range in &sources::scan_ranges(context.container, &context.request.scope) {
        page.documents += context.collect_smallest(range, after.as_ref(), wanted, &mut smallest)?;
    }
    let mut has_more = false;
    for (key, (range, row)) in smallest {
        if !page.try_push(&row, context.cursor(range, key)) {
            has_more = true;
            break;
        }
    }
    Ok(page.finish(has_more))
}

impl Context<'_> {
    pub(super) fn scan<'b>(&'b self, range: &'b ScanRange<'b>) -> Scan<'b> {
        Scan { view: self.view, container: self.container, range, now: self.now }
    }

    /// The rows of a document, each with its cursor.
    fn rows_of(
        &self,
        range: RangeId,
        rid: u64,
        document: &StoredDocument,
    ) -> Result<impl Iterator<Item = (DocumentRow, RowCursor)> + use<>, Refusal> {
        let rows = document_rows(&self.request.program, document)?;
        Ok((0..).zip(rows).filter_map(move |(number, row)| {
            row.map(|row| (row, RowCursor { range, rid, row: number, order: None }))
        }))
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
        RowCursor { range, rid: self.rid_order(key.rid), row: key.row, order: Some(key.order) }
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

    /// Adds the rows of a range to `smallest`, which keeps the `rows_wanted` smallest rows.
    /// Leaves out the rows up to `after`, the last row of the last page. Returns how many
    /// documents were read.
    fn collect_smallest(
        &self,
        range: &ScanRange<'_>,
        after: Option<&SortKey>,
        rows_wanted: usize,
        smallest: &mut BTreeMap<SortKey, (RangeId, Output)>,
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
                if smallest.len() >= rows_wanted
                    && let Some((last, _)) = smallest.last_key_value()
                    && *last < key
                {
                    is_after_page |= orders_equal_keys || last.order < key.order;
                    continue;
                }
                smallest.insert(key, (range.id, row.output));
                if smallest.len() > rows_wanted {
                    smallest.pop_last();
                }
                if smallest.len() > ROWS_IN_MEMORY_MAX {
                    return Err(too_many_rows());
                }
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

pub(super) fn too_many_rows() -> Refusal {
    Refusal::bad_request(format!(
        "The query holds more than {ROWS_IN_MEMORY_MAX} rows in memory; narrow its filter or order by an indexed path."
    ))
}

/// The refusal for an evaluation error, such as a number that JSON cannot represent:
/// a backend error with a charge.
pub(super) fn evaluation_refusal(error: perihelion_query::EvaluationError) -> Refusal {
    Refusal::new(status::BAD_REQUEST, Layer::QueryRuntime, json::to_text(&error.to_json(), Style::Query))
        .with_charge(QUERY_ERROR_CHARGE)
}

/// The charge of a failed query, the same as that of a query without FROM.
const QUERY_ERROR_CHARGE: f64 = 2.25;
