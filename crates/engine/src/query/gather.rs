//! Queries whose rows are all computed before the first one is returned: DISTINCT,
//! aggregates, GROUP BY and statements in stages (subqueries in FROM). Also queries
//! that read no document.
//!
//! Each page computes all rows again, skips the rows that earlier pages returned,
//! and returns the next rows. A program in stages is evaluated from the inside
//! out: the rows of the inner program, after its ORDER BY, OFFSET, LIMIT and TOP, are the
//! documents of the outer program. At most two stages are in memory at a time, each
//! within [`ROWS_IN_MEMORY_MAX`] and [`BYTES_IN_MEMORY_MAX`].

use std::ops::ControlFlow;

use perihelion_model::json::Value;
use perihelion_query::{Accumulator, DistinctValues, Program, Row};

use super::continuation::{Continuation, RowCursor};
use super::output::Output;
use super::rows::{Context, Page, PageRows, ROWS_IN_MEMORY_MAX, evaluation_refusal, too_many_rows};
use super::sources;
use crate::documents::StoredDocument;
use crate::refusal::Refusal;

/// The most bytes of rows in one stage. `perihelion-query` limits groups to as many bytes.
const BYTES_IN_MEMORY_MAX: usize = 256 * 1024 * 1024;

/// Whether a program's rows have to be gathered.
pub(super) fn is_needed(program: &Program) -> bool {
    program.inner().is_some() || program.reads_no_document() || program.is_grouped() || program.is_distinct()
}

/// Makes one page by computing all rows.
pub(super) fn gather(context: &Context<'_>, continuation: Continuation) -> Result<PageRows, Refusal> {
    let program = &context.request.program;
    let mut documents = 0;
    let all = sorted_outputs(program, context.collect(program, usize::MAX, &mut documents)?);
    let rows_returned = continuation.after.as_ref().map_or(0, |cursor| cursor.row);
    let mut page = Page::new(context, continuation);
    page.documents = documents;
    let mut has_more = false;
    for (row_number, row) in (1..).zip(all) {
        if row_number <= rows_returned {
            continue;
        }
        if !page.try_push(&Output::Value(row), RowCursor { range: 0, rid: 0, row: row_number, order: None }) {
            has_more = true;
            break;
        }
    }
    Ok(page.finish(has_more))
}

impl Context<'_> {
    /// The rows of a program, not yet sorted. Stops when there are at least `rows_needed`
    /// rows. Adds the number of documents that it reads to `documents`.
    fn collect(
        &self,
        program: &Program,
        rows_needed: usize,
        documents: &mut u64,
    ) -> Result<Vec<Row>, Refusal> {
        let mut collector = Collector::new(program, rows_needed);
        match program.inner() {
            Some(inner) => {
                let rows = self.collect(inner, rows_needed_by(inner), documents)?;
                for value in inner.arrange(rows) {
                    collector.add(&value)?;
                    if collector.has_enough_rows() {
                        break;
                    }
                }
            }
            None if program.reads_no_document() => collector.add(&Value::Null)?,
            None => self.each_document(&mut |document| {
                *documents += 1;
                collector.add(&document.value())?;
                Ok(if collector.has_enough_rows() {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                })
            })?,
        }
        collector.finish()
    }

    /// Calls `consume` with the documents in the scope of the query until `consume` breaks.
    fn each_document(
        &self,
        consume: &mut dyn FnMut(StoredDocument) -> Result<ControlFlow<()>, Refusal>,
    ) -> Result<(), Refusal> {
        let mut has_ended = false;
        for range in &sources::scan_ranges(self.container, &self.request.scope) {
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

/// The rows or groups collected so far.
struct Collector<'p> {
    program: &'p Program,
    /// The groups of a grouped program; such a program has no `rows`.
    groups: Option<Accumulator<'p>>,
    rows: Vec<Row>,
    /// The values of the rows, for DISTINCT.
    seen: DistinctValues,
    /// The approximate size of the rows as text.
    bytes: usize,
    rows_needed: usize,
}

impl<'p> Collector<'p> {
    fn new(program: &'p Program, rows_needed: usize) -> Self {
        let groups = program.is_grouped().then(|| program.accumulator());
        Collector {
            program,
            groups,
            rows: Vec::new(),
            seen: DistinctValues::default(),
            bytes: 0,
            rows_needed,
        }
    }

    /// Adds the rows of a document, or of an inner stage's row.
    fn add(&mut self, document: &Value) -> Result<(), Refusal> {
        if let Some(groups) = &mut self.groups {
            return groups.add(document).map_err(evaluation_refusal);
        }
        let mut rows = Vec::new();
        self.program.rows(document, &mut rows).map_err(evaluation_refusal)?;
        for row in rows {
            let Some(output) = &row.output else { continue };
            if self.program.is_distinct() && !self.seen.insert(output) {
                continue;
            }
            self.bytes += approximate_length(output);
            self.rows.push(row);
        }
        if self.rows.len() > ROWS_IN_MEMORY_MAX || self.bytes > BYTES_IN_MEMORY_MAX {
            return Err(too_many_rows());
        }
        Ok(())
    }

    /// Whether there are enough rows, so that no further document has to be read.
    fn has_enough_rows(&self) -> bool {
        self.rows.len() >= self.rows_needed
    }

    fn finish(self) -> Result<Vec<Row>, Refusal> {
        match self.groups {
            Some(groups) => groups.finish().map_err(evaluation_refusal),
            None => Ok(self.rows),
        }
    }
}

/// How many rows of an inner program its OFFSET, LIMIT and TOP need. With ORDER BY
/// all rows are needed.
fn rows_needed_by(program: &Program) -> usize {
    if !program.order().is_empty() {
        return usize::MAX;
    }
    let count = program.limit().unwrap_or(u64::MAX).min(program.top().unwrap_or(u64::MAX));
    usize::try_from(count.saturating_add(program.offset().unwrap_or(0))).unwrap_or(usize::MAX)
}

/// Sorts the rows. Drops undefined rows and, for DISTINCT, repeated rows. OFFSET, LIMIT and
/// TOP are applied later, by [`Page`].
fn sorted_outputs(program: &Program, mut rows: Vec<Row>) -> Vec<Value> {
    rows.sort_by(|one, other| program.compare(one, other));
    let mut seen = DistinctValues::default();
    let outputs = rows.into_iter().filter_map(|row| row.output);
    // Other rows were checked for repeats when they were added.
    let may_repeat = program.is_distinct() && program.is_grouped();
    outputs.filter(|output| !may_repeat || seen.insert(output)).collect()
}

/// The approximate length of a row as text.
fn approximate_length(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) => 5,
        Value::Number(_) => 12,
        Value::String(text) => text.len() + 2,
        Value::Array(items) => 2 + items.iter().map(|item| approximate_length(item) + 1).sum::<usize>(),
        Value::Object(object) => {
            2 + object.iter().map(|(name, value)| name.len() + 4 + approximate_length(value)).sum::<usize>()
        }
    }
}
