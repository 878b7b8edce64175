//! What to do after an attempt has ended. Pure: no clock, no randomness, no I/O.

mod backoff;
mod classify;
mod effects;
mod evaluate;
pub(super) mod throttle;
mod verdict;

pub(super) use effects::Effects;
pub(super) use evaluate::{evaluate, may_have_applied};
pub(super) use verdict::{Budgets, Effect, Ending, Limits, Nature, Regions, Verdict};
