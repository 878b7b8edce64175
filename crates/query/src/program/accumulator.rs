//! `Accumulator`: collects documents into groups, for GROUP BY and aggregates.

use perihelion_model::json::Value;

use super::{Program, Row};
use crate::context::Context;
use crate::error::EvaluationError;
use crate::eval::{Frame, GroupTable, each_row, group_rows};

/// Collects documents into groups; see [`Program::accumulator`].
#[derive(Debug)]
pub struct Accumulator<'p> {
    pub(super) program: &'p Program,
    /// `None` when the program is not grouped.
    pub(super) table: Option<GroupTable>,
    pub(super) context: Context,
}

impl Accumulator<'_> {
    /// Adds the rows of one document to their groups.
    pub fn add(&mut self, document: &Value) -> Result<(), EvaluationError> {
        let select = &self.program.select;
        let (Some(table), Some(grouping)) = (&mut self.table, &select.grouping) else { return Ok(()) };
        self.context.budget.renew();
        let frame = Frame::root(Some(document));
        let context = &self.context;
        each_row(select, &frame, context, &mut |row| table.add(grouping, row, context).map(|()| true))?;
        Ok(())
    }

    /// Adds this many documents, for a program that [counts every
    /// document](Program::counts_every_document).
    pub fn add_documents(&mut self, documents: u64) {
        if let (Some(table), Some(grouping)) = (&mut self.table, &self.program.select.grouping) {
            table.count_rows(grouping, i64::try_from(documents).unwrap_or(i64::MAX));
        }
    }

    /// About how many bytes the groups take.
    pub fn bytes(&self) -> usize {
        self.table.as_ref().map_or(0, GroupTable::bytes)
    }

    /// The position of the last group in the window, if the window has no room for groups after it.
    pub fn window_end(&self) -> Option<&[u8]> {
        self.table.as_ref().and_then(GroupTable::window_end)
    }

    /// Returns one row per group, in the order in which the groups appeared.
    pub fn finish(self) -> Result<Vec<Row>, EvaluationError> {
        Ok(self.finish_window()?.rows.into_iter().map(|(_, row)| row).collect())
    }

    /// Returns one row per group in the [`GroupWindow`](crate::GroupWindow) of the accumulator;
    /// without a window, one row per group.
    pub fn finish_window(self) -> Result<GroupRows, EvaluationError> {
        let Some(table) = self.table else { return Ok(GroupRows { rows: Vec::new(), is_whole: true }) };
        self.context.budget.renew();
        let (is_whole, positions) = (table.is_whole(), table.positions());
        let rows = group_rows(table, &self.program.select, &Frame::root(None), &self.context)?;
        let rows = positions.into_iter().zip(rows).map(|(position, (output, order_keys))| {
            self.program.check_output(output.as_ref())?;
            Ok((position, Row { output, order_keys }))
        });
        Ok(GroupRows { rows: rows.collect::<Result<_, EvaluationError>>()?, is_whole })
    }
}

/// The rows of the groups in a [`GroupWindow`](crate::GroupWindow).
#[derive(Debug)]
pub struct GroupRows {
    /// The position and the row of each group. If `is_whole`, the rows are in the order in which
    /// the groups appeared; else they are in no particular order. A window has the groups with the
    /// lowest positions after `GroupWindow::after`. Positions are compared as bytes. The next window
    /// begins after the highest position of this one.
    pub rows: Vec<(Vec<u8>, Row)>,
    /// Whether no group comes after the window.
    pub is_whole: bool,
}
