//! The operation pipeline: the loop of an operation from its first attempt to
//! its answer.
//!
//! Each pass takes one snapshot of the topology, resolves a route, makes an
//! attempt (or a hedged pair), judges its ending, applies the effects and acts
//! on the verdict. `run` is the loop, each stage has a file of its own, and
//! `retry` has the rules. What always holds: an operation ends by its deadline,
//! and a write that may have been applied never ends as a plain failure.

mod apply;
mod attempt;
mod build;
mod continuation;
mod deliver;
mod finish;
mod hedge;
mod judge;
mod metadata_requests;
mod prepare;
mod progress;
mod read_back;
mod retry;
mod run;
mod send;
mod state;

pub(crate) use prepare::Call;
pub(crate) use run::run;
