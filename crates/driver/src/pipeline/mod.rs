//! The operation pipeline: the loop of an operation from its first attempt to
//! its answer.
//!
//! Each turn takes one snapshot of the topology, resolves a route, makes an
//! attempt (or a hedged pair), judges its ending, applies the effects and acts
//! on the verdict. The stages are in files of their own; this one is their
//! table of contents. What always holds: an operation ends by its deadline,
//! and a write that may have been applied never ends as a plain failure.

mod apply;
mod attempt;
mod backoff;
mod build;
mod evaluate;
mod finish;
mod hedge;
mod judge;
mod read_back;
mod run;
mod send;
mod state;
mod throttle;
mod turn;
pub(crate) mod verdict;

pub(crate) use attempt::{Leg, Sending, attempt, status_of};
pub(crate) use build::Resolved;
pub(crate) use run::run;
pub(crate) use turn::Task;
