//! Answers that need every document before their first row: DISTINCT,
//! aggregates, GROUP BY, statements in stages, and those that read nothing.
//!
//! Each page computes the whole answer and cuts its rows out by count. A
//! program in stages is answered from the inside out: the inner answer, sorted
//! and cut, stands in for the documents of the outer program. What is held at
//! a time is two stages, each within [`ROWS_HELD_MAX`] and [`BYTES_HELD_MAX`].

use std::ops::ControlFlow;

use perihelion_model::json::Value;
use perihelion_query::{Accumulator, DistinctValues, Program, Row};

use super::continuation::{Continuation, Place};
use super::output::Output;
use super::rows::{Context, Page, Produced, ROWS_HELD_MAX, evaluation_refusal, too_many_rows};
use super::sources;
use crate::documents::StoredDocument;
use crate::refusal::Refusal;

/// Bytes of rows that one stage may hold, as much as groups may.
const BYTES_HELD_MAX: usize = 256 * 1024 * 1024;

pub(super) fn is_needed(program: &Program) -> bool {
    program.inner().is_some() || program.reads_no_document() || program.is_grouped() || program.is_distinct()
}

pub(super) fn gather(context: &Context<'_>, continuation: Continuation) -> Result<Produced, Refusal> {
    let program = &context.request.program;
    let mut documents = 0;
    let all = in_order(program, context.collect(program, usize::MAX, &mut documents)?);
    let emitted = continuation.after.as_ref().map_or(0, |place| place.row);
    let mut page = Page::new(context, continuation);
    page.documents = documents;
    let mut has_more = false;
    for (row_number, row) in (1..).zip(all) {
        if row_number <= emitted {
            continue;
        }
        if !page.offer(&Output::Value(row), Place { range: 0, rid: 0, row: row_number, order: None }) {
            has_more = true;
            break;
        }
    }
    Ok(page.finish(has_more))
}

impl Context<'_> {
    /// All rows of a program, in no order yet; at most `enough` are wanted.
    fn collect(&self, program: &Program, enough: usize, documents: &mut u64) -> Result<Vec<Row>, Refusal> {
        let mut collector = Collector::new(program, enough);
        match program.inner() {
            Some(inner) => {
                let rows = self.collect(inner, rows_enough(inner), documents)?;
                for value in inner.arrange(rows) {
                    collector.add(&value)?;
                    if collector.is_settled() {
                        break;
                    }
                }
            }
            None if program.reads_no_document() => collector.add(&Value::Null)?,
            None => self.each_document(&mut |document| {
                *documents += 1;
                collector.add(&document.value())?;
                Ok(if collector.is_settled() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
            })?,
        }
        collector.finish()
    }

    fn each_document(
        &self,
        consume: &mut dyn FnMut(StoredDocument) -> Result<ControlFlow<()>, Refusal>,
    ) -> Result<(), Refusal> {
        let mut is_over = false;
        for unit in &sources::units(self.container, &self.request.scope) {
            self.walk(unit).by_rid(self.plan.index.as_ref(), 0, &mut |_, document| {
                let flow = consume(document)?;
                is_over = flow.is_break();
                Ok(flow)
            })?;
            if is_over {
                break;
            }
        }
        Ok(())
    }
}

/// Rows or groups in the making.
struct Collector<'p> {
    program: &'p Program,
    groups: Option<Accumulator<'p>>,
    rows: Vec<Row>,
    seen: DistinctValues,
    bytes: usize,
    enough: usize,
}

impl<'p> Collector<'p> {
    fn new(program: &'p Program, enough: usize) -> Self {
        let groups = program.is_grouped().then(|| program.accumulator());
        Collector { program, groups, rows: Vec::new(), seen: DistinctValues::default(), bytes: 0, enough }
    }

    /// Takes what a document, or a value in its place, gives.
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
            self.bytes += estimate(output);
            self.rows.push(row);
        }
        if self.rows.len() > ROWS_HELD_MAX || self.bytes > BYTES_HELD_MAX {
            return Err(too_many_rows());
        }
        Ok(())
    }

    /// Can nothing that comes change the answer any more?
    fn is_settled(&self) -> bool {
        self.rows.len() >= self.enough
    }

    fn finish(self) -> Result<Vec<Row>, Refusal> {
        match self.groups {
            Some(groups) => groups.finish().map_err(evaluation_refusal),
            None => Ok(self.rows),
        }
    }
}

/// How many rows settle the answer of an inner program.
fn rows_enough(program: &Program) -> usize {
    if !program.order().is_empty() {
        return usize::MAX;
    }
    let count = program.limit().unwrap_or(u64::MAX).min(program.top().unwrap_or(u64::MAX));
    usize::try_from(count.saturating_add(program.offset().unwrap_or(0))).unwrap_or(usize::MAX)
}

/// Sorts rows that are all there, and drops undefined and repeated ones. The
/// window is the page's.
fn in_order(program: &Program, mut rows: Vec<Row>) -> Vec<Value> {
    rows.sort_by(|one, other| program.compare(one, other));
    let mut seen = DistinctValues::default();
    let outputs = rows.into_iter().filter_map(|row| row.output);
    // Rows that are no groups were looked at when they came in.
    let may_repeat = program.is_distinct() && program.is_grouped();
    outputs.filter(|output| !may_repeat || seen.insert(output)).collect()
}

/// Roughly how long a row is as text.
fn estimate(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) => 5,
        Value::Number(_) => 12,
        Value::String(text) => text.len() + 2,
        Value::Array(items) => 2 + items.iter().map(|item| estimate(item) + 1).sum::<usize>(),
        Value::Object(object) => {
            2 + object.iter().map(|(name, value)| name.len() + 4 + estimate(value)).sum::<usize>()
        }
    }
}
