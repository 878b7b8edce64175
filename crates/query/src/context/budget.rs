//! The budget of one evaluation.
//!
//! A statement of half a megabyte over a document of two megabytes can need far more
//! work than these sizes suggest: joins multiply rows, nested subqueries such as
//! `(SELECT VALUE [x, x] …)` double a value at every level, REPLACE makes text longer.
//! Two counters bound the work:
//!
//! * *Steps* pay for rows, array elements, comparisons of values (by their elements, members and
//!   text), the lookup of a member in a large object, searches in text, matches of text with a
//!   pattern, and the compilation of a computed pattern.
//! * *Bytes* pay for copies of values, text that is built, and computed patterns of LIKE. A computed
//!   number or boolean and the member names of a new object cost no bytes.
//!
//! Both counters are renewed for every document, and once more before the rows of the groups are
//! built. The binder has a budget of its own, for all constants of a statement or of an inner stage.

use std::cell::Cell;

use perihelion_model::json::Value;

use crate::error::{Evaluated, EvaluationError};

/// Steps per document. Ten joins over arrays of four elements visit a million rows.
/// All steps together take about a second, if the expressions per row are short.
const STEPS_MAX: u64 = 10_000_000;

/// Bytes of copies and text per document: 32 documents of the largest size.
const BYTES_MAX: u64 = 64 * 1024 * 1024;

/// The size of a value without its text and children.
const VALUE_BYTES: u64 = size_of::<Value>() as u64;

/// The steps and bytes that are left until the next [`Budget::renew`].
#[derive(Debug)]
pub(crate) struct Budget {
    steps_left: Cell<u64>,
    bytes_left: Cell<u64>,
}

impl Budget {
    pub(crate) fn new() -> Self {
        Budget { steps_left: Cell::new(STEPS_MAX), bytes_left: Cell::new(BYTES_MAX) }
    }

    /// A budget of at most this many steps and bytes, and at most what one document may take.
    pub(crate) fn with_limits(steps: u64, bytes: u64) -> Self {
        Budget { steps_left: Cell::new(steps.min(STEPS_MAX)), bytes_left: Cell::new(bytes.min(BYTES_MAX)) }
    }

    pub(crate) fn steps_left(&self) -> u64 {
        self.steps_left.get()
    }

    pub(crate) fn bytes_left(&self) -> u64 {
        self.bytes_left.get()
    }

    /// Resets both counters, for the next document or for the rows of the groups.
    pub(crate) fn renew(&self) {
        self.steps_left.set(STEPS_MAX);
        self.bytes_left.set(BYTES_MAX);
    }

    pub(crate) fn spend_steps(&self, steps: u64) -> Evaluated<()> {
        spend(&self.steps_left, steps)
    }

    pub(crate) fn spend_bytes(&self, bytes: usize) -> Evaluated<()> {
        spend(&self.bytes_left, bytes as u64)
    }

    /// Charges for a copy of the value.
    pub(crate) fn spend_value(&self, value: &Value) -> Evaluated<()> {
        spend(&self.bytes_left, size_in_memory(value))
    }
}

/// Takes the amount from the counter. If the counter is smaller than the amount, the
/// function returns an error and the counter does not change.
fn spend(left: &Cell<u64>, amount: u64) -> Evaluated<()> {
    left.set(left.get().checked_sub(amount).ok_or(EvaluationError::TooMuchWork)?);
    Ok(())
}

/// The approximate bytes of a value in memory, with its text and children.
pub(crate) fn size_in_memory(value: &Value) -> u64 {
    let contents = match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(text) => text.len() as u64,
        Value::Array(items) => items.iter().map(size_in_memory).sum(),
        Value::Object(object) => {
            object.iter().map(|(name, member)| VALUE_BYTES + name.len() as u64 + size_in_memory(member)).sum()
        }
    };
    VALUE_BYTES + contents
}
