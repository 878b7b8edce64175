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

    /// Returns one row per group, in the order in which the groups appeared.
    pub fn finish(self) -> Result<Vec<Row>, EvaluationError> {
        let Some(table) = self.table else { return Ok(Vec::new()) };
        self.context.budget.renew();
        let rows = group_rows(table, &self.program.select, &Frame::root(None), &self.context)?;
        rows.into_iter()
            .map(|(output, order_keys)| {
                self.program.check_output(output.as_ref())?;
                Ok(Row { output, order_keys })
            })
            .collect()
    }
}
