//! `RowPlace`: a place among the rows of one document, from which a later evaluation continues.
//!
//! Joins can make more rows of one document than fit on a page, and more than the budget of one
//! evaluation allows. So the rows of a document are read in parts. A place names the element of
//! each array in FROM, so that a later part does not visit the rows of earlier parts again.

use perihelion_model::json::Value;

use super::{Program, Row};
use crate::error::EvaluationError;
use crate::eval::{Frame, JoinWalk, each_row_from, order_keys, output_of};

/// A place among the rows of a document. The default is the place before the first row.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RowPlace {
    /// How many rows of the document come before this place.
    pub row: u64,
    /// For each array or subquery in FROM, the number of its element. Numbers that are missing
    /// at the end count as 0.
    pub elements: Vec<u32>,
}

impl Program {
    /// Calls `visit` with the rows of one document, from a place on, until `visit` returns false.
    /// Each row comes with its number and the elements of its place. Returns the place of the first
    /// row that `visit` did not take, or at which the budget was spent; `None` if there is no row
    /// left. A single row that needs more than the budget is an error. Not for grouped programs.
    pub fn rows_from(
        &self,
        document: &Value,
        start: &RowPlace,
        visit: &mut dyn FnMut(u64, &[u32], Row) -> bool,
    ) -> Result<Option<RowPlace>, EvaluationError> {
        let context = self.context();
        let frame = Frame::root(Some(document));
        let mut walk = JoinWalk::from(start.elements.clone());
        let mut number = start.row;
        let ended = each_row_from(&self.select, &frame, &context, &mut walk, &mut |row, elements| {
            let output = output_of(&self.select.output, row, &context)?;
            self.check_output(output.as_ref())?;
            let row = Row { output, order_keys: order_keys(&self.select.order, row, &context)? };
            let is_taken = visit(number, elements, row);
            number += u64::from(is_taken);
            Ok(is_taken)
        });
        let place = |elements: &[u32]| Some(RowPlace { row: number, elements: elements.to_vec() });
        match ended {
            Ok(true) => Ok(None),
            Ok(false) => Ok(place(walk.elements())),
            Err(EvaluationError::TooMuchWork) if walk.elements() > start.elements.as_slice() => {
                Ok(place(walk.elements()))
            }
            Err(error) => Err(error),
        }
    }
}
