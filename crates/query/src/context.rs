//! The evaluation context: the time for the date functions, and the budget.
//! Operators, functions and selects all receive it, so it depends on none of them.

mod budget;

use std::borrow::Cow;

use perihelion_model::json::Value;

pub(crate) use budget::Budget;

use crate::error::Evaluated;
use crate::parameters::Now;

/// The inputs of an evaluation other than the row.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) now: Now,
    pub(crate) budget: Budget,
}

impl Context {
    pub(crate) fn new(now: Now) -> Self {
        Context { now, budget: Budget::new() }
    }

    /// Turns a borrowed value into an owned one and charges the copy to the
    /// budget. A value that is owned already costs nothing.
    pub(crate) fn own(&self, value: Cow<'_, Value>) -> Evaluated<Value> {
        if let Cow::Borrowed(value) = &value {
            self.budget.spend_value(value)?;
        }
        Ok(value.into_owned())
    }
}
