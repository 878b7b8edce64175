//! Queries whose rows do not belong to one document each: DISTINCT, aggregates, GROUP BY and
//! statements in stages (subqueries in FROM). Queries that read no document are handled here too.
//!
//! If all rows fit on the first page, they come in the order in which they appeared. Otherwise they
//! come in the order of their [positions](super::value_position), and each page continues after the
//! position of the last row. A position depends only on the value of the row or, in an outer stage,
//! on the inner stage's row from which the row was made. So writes and splits between two pages
//! neither repeat a row nor lose one, unless they change the row itself.
//!
//! - DISTINCT and GROUP BY without ORDER BY keep only the *window* of the page in memory: the rows or
//!   groups of this page, which have the smallest positions. The first page reads all documents. If the
//!   rows depend on one value of a document and an index has the documents in the order of this value,
//!   a later page reads only the documents of its rows.
//! - The other queries have all their rows in memory (`stages`).

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use perihelion_model::json::Value;
use perihelion_query::{GroupWindow, Program, Row, RowPlace};

use super::continuation::Continuation;
use super::gathered_page::{Gathered, GatheredRow, page_of};
use super::output::{Output, approximate_length};
use super::rows::{Context, PageRows, ROWS_IN_MEMORY_MAX, evaluation_refusal};
use super::sources::ScanRange;
use super::{PAGE_BYTES_MAX, sources, value_position};
use crate::documents::StoredDocument;
use crate::index;
use crate::refusal::Refusal;

/// About the most bytes of the rows or groups of one page: more than the text of a page, so
/// that a page is not cut short.
const WINDOW_BYTES_MAX: usize = 4 * PAGE_BYTES_MAX;

/// Called with a document. Returns the last position of the page's window if the window is full, so
/// that no row after this position is needed.
type WindowConsumer<'a> = dyn FnMut(&Value) -> Result<Option<Vec<u8>>, Refusal> + 'a;

/// Whether a program's rows have to be gathered.
pub(super) fn is_needed(program: &Program) -> bool {
    program.inner().is_some() || program.reads_no_document() || program.is_grouped() || program.is_distinct()
}

/// Makes one page of a query whose rows are gathered.
pub(super) fn gather(context: &Context<'_>, continuation: Continuation) -> Result<PageRows, Refusal> {
    let program = &context.request.program;
    // The token is from another query, or from an earlier version of Perihelion, whose tokens had
    // the number of a row instead of its position.
    if continuation.after.as_ref().is_some_and(|cursor| cursor.position.is_none()) {
        return Err(Continuation::invalid());
    }
    let is_plain = program.inner().is_none() && !program.reads_no_document() && program.order().is_empty();
    let mut documents = 0;
    let gathered = match (program.is_distinct(), program.has_group_by()) {
        (true, false) if is_plain && !program.is_grouped() => {
            context.distinct_window(&continuation, &mut documents)?
        }
        (false, true) if is_plain => context.group_window(&continuation, &mut documents)?,
        _ => {
            let rows = context.stage_rows(program, usize::MAX, &mut documents)?;
            Gathered { rows: rows.into_iter().map(GatheredRow::from).collect(), is_whole: true }
        }
    };
    let mut page = page_of(context, continuation, gathered);
    page.documents = documents;
    Ok(page)
}

/// How many rows or groups a page needs: those to skip, those to return, and one more that
/// shows whether there is a next page.
pub(super) fn rows_wanted(context: &Context<'_>, continuation: &Continuation) -> usize {
    let page = (context.request.rows_max as u64).min(continuation.take.unwrap_or(u64::MAX));
    let wanted = page.saturating_add(continuation.skip).saturating_add(1);
    usize::try_from(wanted).unwrap_or(usize::MAX).min(ROWS_IN_MEMORY_MAX)
}

impl Context<'_> {
    /// The groups of the next page.
    fn group_window(&self, continuation: &Continuation, documents: &mut u64) -> Result<Gathered, Refusal> {
        let mut groups = self.request.program.groups_after(GroupWindow {
            position_of: value_position::of_group,
            after: continuation.last_position().to_vec(),
            groups_max: rows_wanted(self, continuation),
            bytes_max: WINDOW_BYTES_MAX,
        });
        let mut held = self.pace.held_memory();
        self.each_document_of_window(continuation, documents, &mut |document| {
            groups.add(document).map_err(evaluation_refusal)?;
            held.set(groups.bytes())?;
            Ok(groups.window_end().map(<[u8]>::to_vec))
        })?;
        let groups = groups.finish_window().map_err(evaluation_refusal)?;
        let rows = groups.rows.into_iter().map(|(position, row)| GatheredRow {
            order: Vec::new(),
            position,
            output: row.output.map(Output::Value),
        });
        Ok(Gathered { rows: rows.collect(), is_whole: groups.is_whole })
    }

    /// The distinct rows of the next page.
    fn distinct_window(&self, continuation: &Continuation, documents: &mut u64) -> Result<Gathered, Refusal> {
        let program = &self.request.program;
        let mut window =
            DistinctWindow::new(continuation.last_position().to_vec(), rows_wanted(self, continuation));
        let mut held = self.pace.held_memory();
        self.each_document_of_window(continuation, documents, &mut |document| {
            let mut start = Some(RowPlace::default());
            while let Some(place) = start {
                self.pace.check_gathering()?;
                let mut add = |_, _: &[u32], row: Row| {
                    row.output.into_iter().for_each(|output| window.add(output));
                    true
                };
                start = program.rows_from(document, &place, &mut add).map_err(evaluation_refusal)?;
                held.set_text_bytes(window.bytes)?;
            }
            Ok(window.end().map(<[u8]>::to_vec))
        })?;
        Ok(window.finish())
    }

    /// Calls `add` with all documents whose rows can be in the window of this page, and with some or
    /// all of the other documents.
    fn each_document_of_window(
        &self,
        continuation: &Continuation,
        documents: &mut u64,
        add: &mut WindowConsumer<'_>,
    ) -> Result<(), Refusal> {
        let after = continuation.last_position();
        let plan = self.plan.window.as_ref().filter(|_| !after.is_empty() && self.plan.index.is_none());
        let Some((plan, Ok(used))) = plan.map(|plan| (plan, &plan.index)) else {
            return self.each_document(&mut |document| {
                *documents += 1;
                add(&document.value()).map(|_| ControlFlow::Continue(()))
            });
        };
        used.definition.last_use.note(self.now);
        let start = value_position::index_order_of(after, &plan.lead);
        let mut end = None;
        for range in &sources::scan_ranges(self.container, &self.request.scope) {
            self.scan(range).visit_by_index(used, Some(start.clone()), &mut |_, document| {
                *documents += 1;
                let document = document.value();
                let value = index::find(&document, &plan.path);
                let order = value_position::index_order_of_value(value, plan.lead.len());
                let is_after_window = end.as_ref().is_some_and(|end| order > *end);
                end = add(&document)?.map(|end| value_position::index_order_of(&end, &plan.lead));
                Ok(if is_after_window { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
            })?;
        }
        Ok(())
    }

    /// Calls `consume` with the documents in the scope of the query until `consume` breaks.
    pub(super) fn each_document(
        &self,
        consume: &mut dyn FnMut(StoredDocument) -> Result<ControlFlow<()>, Refusal>,
    ) -> Result<(), Refusal> {
        self.each_document_in(&sources::scan_ranges(self.container, &self.request.scope), consume)
    }

    /// Calls `consume` with the documents in these parts of the scope until `consume` breaks.
    pub(super) fn each_document_in(
        &self,
        ranges: &[ScanRange<'_>],
        consume: &mut dyn FnMut(StoredDocument) -> Result<ControlFlow<()>, Refusal>,
    ) -> Result<(), Refusal> {
        let mut has_ended = false;
        for range in ranges {
            self.scan(range).visit_by_rid(self.plan.index.as_ref(), 0, &mut |_, document| {
                let flow = consume(document)?;
                has_ended = flow.is_break();
                Ok(flow)
            })?;
            if has_ended {
                break;
            }
        }
        Ok(())
    }
}

/// The distinct rows with the smallest positions after a given position.
struct DistinctWindow {
    after: Vec<u8>,
    rows_max: usize,
    /// The rows by their positions, each with the number of rows that were added before it.
    rows: BTreeMap<Vec<u8>, (usize, Value)>,
    /// How many rows were added, also those that were dropped again.
    rows_added: usize,
    bytes: usize,
    /// Whether a row was left out because the rows were too many or too large.
    is_full: bool,
}

impl DistinctWindow {
    fn new(after: Vec<u8>, rows_max: usize) -> Self {
        DistinctWindow { after, rows_max, rows: BTreeMap::new(), rows_added: 0, bytes: 0, is_full: false }
    }

    fn add(&mut self, output: Value) {
        let position = value_position::of_row(&output);
        if position <= self.after || self.rows.contains_key(&position) {
            return;
        }
        let is_last = self.rows.last_key_value().is_none_or(|(last, _)| *last < position);
        if is_last && (self.is_full || self.rows.len() >= self.rows_max) {
            self.is_full = true;
            return;
        }
        self.bytes += approximate_length(&output) + position.len();
        self.rows.insert(position, (self.rows_added, output));
        self.rows_added += 1;
        while self.rows.len() > self.rows_max || (self.bytes > WINDOW_BYTES_MAX && self.rows.len() > 1) {
            let Some((position, (_, dropped))) = self.rows.pop_last() else { break };
            self.bytes -= approximate_length(&dropped) + position.len();
            self.is_full = true;
        }
    }

    /// The last position of the window, if no row after it is needed.
    fn end(&self) -> Option<&[u8]> {
        let is_full = self.is_full || self.rows.len() >= self.rows_max;
        self.rows.last_key_value().filter(|_| is_full).map(|(last, _)| last.as_slice())
    }

    fn finish(self) -> Gathered {
        let mut rows: Vec<(Vec<u8>, (usize, Value))> = self.rows.into_iter().collect();
        rows.sort_unstable_by_key(|(_, (number, _))| *number);
        let rows = rows.into_iter().map(|(position, (_, output))| GatheredRow {
            order: Vec::new(),
            position,
            output: Some(Output::Value(output)),
        });
        Gathered { rows: rows.collect(), is_whole: !self.is_full }
    }
}
