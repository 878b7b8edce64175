//! The evaluation context: the time for the date functions, random numbers, and the budget.
//! Operators, functions and selects all receive it, so it depends on none of them.

mod budget;

use std::borrow::Cow;
use std::cell::Cell;

use perihelion_model::json::Value;

pub(crate) use budget::{Budget, size_in_memory};

use crate::error::Evaluated;
use crate::parameters::Now;

/// The step of the generator SplitMix64.
const GOLDEN_GAMMA: u64 = 0x9E37_79B9_7F4A_7C15;

/// The output function of SplitMix64.
fn mixed(state: u64) -> u64 {
    let state = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let state = (state ^ (state >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    state ^ (state >> 31)
}

/// The inputs of an evaluation other than the row.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) now: Now,
    pub(crate) budget: Budget,
    /// The state of the random numbers.
    random: Cell<u64>,
}

impl Context {
    pub(crate) fn new(now: Now) -> Self {
        Context::with_budget(now, Budget::new())
    }

    pub(crate) fn with_budget(now: Now, budget: Budget) -> Self {
        Context { now, budget, random: Cell::new(now.ticks() as u64) }
    }

    /// The same context with other random numbers.
    pub(crate) fn with_seed(self, seed: u64) -> Self {
        self.random.set(self.random.get() ^ mixed(seed));
        self
    }

    /// The next random number: at least 0 and less than 1.
    pub(crate) fn random(&self) -> f64 {
        let state = self.random.get().wrapping_add(GOLDEN_GAMMA);
        self.random.set(state);
        // A double has 53 bits.
        (mixed(state) >> 11) as f64 / (1_u64 << 53) as f64
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
