//! Programs whose rows are all held in memory: aggregates without GROUP BY, groups with ORDER BY or
//! DISTINCT, DISTINCT with ORDER BY, programs in stages, and programs that read no document.
//!
//! A program in stages is evaluated from the inside out: the rows of the inner program, after
//! its ORDER BY, OFFSET, LIMIT and TOP, are the documents of the outer program. At most two
//! stages are in memory at a time, each within [`ROWS_IN_MEMORY_MAX`] and the memory that a page
//! may hold.
//!
//! Each row has a place, after which the next page can continue. The place consists of order keys
//! and a position. The order keys are those of the row, followed by those of the inner stage's row
//! that it was made from. The position is that of the group, of the distinct value, or of the inner
//! stage's row.

use std::collections::HashMap;
use std::ops::ControlFlow;

use perihelion_model::json::Value;
use perihelion_query::{Accumulator, GroupWindow, Program, Row, RowPlace, canonical_key};

use super::gathered_page::GatheredRow;
use super::ordered::encode_order;
use super::output::{Output, approximate_length};
use super::rows::{Context, ROWS_IN_MEMORY_MAX, evaluation_refusal, too_many_rows};
use super::value_position;
use crate::pace::Pace;
use crate::page_memory::HeldMemory;
use crate::refusal::Refusal;

/// A row of a stage and its place.
pub(super) struct StageRow {
    order: Vec<u8>,
    position: Vec<u8>,
    output: Value,
}

impl From<StageRow> for GatheredRow {
    fn from(row: StageRow) -> Self {
        GatheredRow { order: row.order, position: row.position, output: Some(Output::Value(row.output)) }
    }
}

impl Context<'_> {
    /// The rows of a program, sorted, without OFFSET, LIMIT and TOP. Stops when there are at
    /// least `rows_needed` rows. Adds the number of documents that it reads to `documents`.
    pub(super) fn stage_rows(
        &self,
        program: &Program,
        rows_needed: usize,
        documents: &mut u64,
    ) -> Result<Vec<StageRow>, Refusal> {
        let mut collector = Collector::new(program, rows_needed, self.pace);
        match program.inner() {
            Some(inner) => {
                let rows = self.stage_rows(inner, rows_needed_by(inner), documents)?;
                for row in within_offset_and_limit(inner, rows) {
                    collector.add(&row.output, Some((&row.order, &row.position)))?;
                    if collector.has_enough_rows() {
                        break;
                    }
                }
            }
            None if program.reads_no_document() => collector.add(&Value::Null, None)?,
            None if program.counts_every_document() => {
                let count = self.count_documents(documents)?;
                collector.add_documents(count);
            }
            None => self.each_document(&mut |document| {
                *documents += 1;
                collector.add(&document.value(), None)?;
                Ok(if collector.has_enough_rows() {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                })
            })?,
        }
        collector.finish()
    }
}

/// Applies the OFFSET, LIMIT and TOP of an inner program.
fn within_offset_and_limit(program: &Program, mut rows: Vec<StageRow>) -> impl Iterator<Item = StageRow> {
    let is_limited = program.offset().is_some() || program.limit().is_some() || program.top().is_some();
    if is_limited && (program.is_distinct() || program.is_grouped()) {
        // Which rows are returned must not depend on where they appeared first.
        sort_by_place(&mut rows);
    }
    let size = |count: Option<u64>, absent| {
        count.map_or(absent, |count| usize::try_from(count).unwrap_or(usize::MAX))
    };
    rows.into_iter()
        .skip(size(program.offset(), 0))
        .take(size(program.limit(), usize::MAX))
        .take(size(program.top(), usize::MAX))
}

/// How many rows of an inner program its OFFSET, LIMIT and TOP need. If the rows are sorted
/// first, all of them are needed.
fn rows_needed_by(program: &Program) -> usize {
    if !program.order().is_empty() || program.is_distinct() || program.is_grouped() {
        return usize::MAX;
    }
    let count = program.limit().unwrap_or(u64::MAX).min(program.top().unwrap_or(u64::MAX));
    usize::try_from(count.saturating_add(program.offset().unwrap_or(0))).unwrap_or(usize::MAX)
}

fn sort_by_place(rows: &mut [StageRow]) {
    rows.sort_by(|one, other| (&one.order, &one.position).cmp(&(&other.order, &other.position)));
}

/// The rows or groups collected so far.
struct Collector<'p> {
    program: &'p Program,
    /// The groups of a grouped program; such a program has no `rows` until the end.
    groups: Option<Accumulator<'p>>,
    rows: Vec<StageRow>,
    /// The index in `rows` of each distinct row, by the canonical key of the row.
    indexes: HashMap<Vec<u8>, usize>,
    /// The approximate size of the rows.
    bytes: usize,
    held: HeldMemory<'p>,
    pace: &'p Pace<'p>,
    rows_needed: usize,
}

impl<'p> Collector<'p> {
    fn new(program: &'p Program, rows_needed: usize, pace: &'p Pace<'p>) -> Self {
        let all_groups = GroupWindow {
            position_of: value_position::of_group,
            after: Vec::new(),
            groups_max: ROWS_IN_MEMORY_MAX,
            bytes_max: usize::MAX,
        };
        let groups = program.is_grouped().then(|| program.groups_after(all_groups));
        let (rows, indexes, held) = (Vec::new(), HashMap::new(), pace.held_memory());
        Collector { program, groups, rows, indexes, bytes: 0, held, pace, rows_needed }
    }

    /// Adds the rows of a document, or of an inner stage's row with this order and position.
    fn add(&mut self, document: &Value, place: Option<(&[u8], &[u8])>) -> Result<(), Refusal> {
        if let Some(groups) = &mut self.groups {
            self.pace.check_gathering()?;
            groups.add(document).map_err(evaluation_refusal)?;
            return self.held.set(groups.bytes());
        }
        let program = self.program;
        let mut start = Some(RowPlace::default());
        while let Some(from) = start {
            self.pace.check_gathering()?;
            let mut outcome = Ok(());
            let mut push = |number: u64, _: &[u32], row: Row| {
                let mut order = encode_order(&row.order_keys, program.directions());
                order.extend_from_slice(place.map_or(&[], |(order, _)| order));
                let number = u32::try_from(number).unwrap_or(u32::MAX);
                let position = place.map(|(_, position)| value_position::of_outer_row(position, number));
                outcome = self.push(row, order, position);
                outcome.is_ok()
            };
            start = program.rows_from(document, &from, &mut push).map_err(evaluation_refusal)?;
            outcome?;
        }
        Ok(())
    }

    /// Adds this many documents to the group of a program that only counts them.
    fn add_documents(&mut self, documents: u64) {
        if let Some(groups) = &mut self.groups {
            groups.add_documents(documents);
        }
    }

    /// Adds a row, unless it is undefined. Of equal rows, DISTINCT keeps the first in the order.
    fn push(&mut self, row: Row, order: Vec<u8>, position: Option<Vec<u8>>) -> Result<(), Refusal> {
        let Some(output) = row.output else { return Ok(()) };
        let position = position.filter(|_| !self.program.is_distinct());
        let position = position.unwrap_or_else(|| value_position::of_row(&output));
        if self.program.is_distinct() {
            let key = canonical_key(Some(&output));
            if let Some(known) = self.indexes.get(&key).and_then(|index| self.rows.get_mut(*index)) {
                if order < known.order {
                    known.order = order;
                }
                return Ok(());
            }
            self.bytes += key.len();
            self.indexes.insert(key, self.rows.len());
        }
        self.bytes += approximate_length(&output) + order.len() + position.len();
        self.rows.push(StageRow { order, position, output });
        if self.rows.len() > ROWS_IN_MEMORY_MAX {
            return Err(too_many_rows());
        }
        self.held.set_text_bytes(self.bytes)
    }

    /// Whether there are enough rows, so that no further document has to be read.
    fn has_enough_rows(&self) -> bool {
        self.rows.len() >= self.rows_needed
    }

    fn finish(mut self) -> Result<Vec<StageRow>, Refusal> {
        if let Some(groups) = self.groups.take() {
            // The groups are replaced by their rows.
            let groups = groups.finish_window().map_err(evaluation_refusal)?;
            if !groups.is_whole {
                return Err(too_many_rows());
            }
            for (position, row) in groups.rows {
                let order = encode_order(&row.order_keys, self.program.directions());
                self.push(row, order, Some(position))?;
            }
        }
        if self.program.is_distinct() && !self.program.order().is_empty() {
            // A client that merges the distinct rows of ranges recognizes equal arrays and equal
            // objects only if they follow each other.
            sort_by_place(&mut self.rows);
        } else {
            self.rows.sort_by(|one, other| one.order.cmp(&other.order));
        }
        Ok(self.rows)
    }
}
