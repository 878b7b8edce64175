//! A seeded fuzzer for everything that reads bytes from outside.
//!
//! An input is a valid example that was changed at random. It depends only on the seed and its
//! number, so `cargo xtask fuzz --target NAME --seed S --from N --inputs 1` runs the input of a
//! failure again. (Up to 500 inputs of the target `requests` share one account. If the failure
//! needs what earlier inputs stored in the account, begin with an earlier number.) Each target runs its
//! input and checks properties that always hold, for example that a printed value parses to the same
//! value. For all targets, an input must not cause a panic or take longer than [`SLOW`], and the
//! memory of the process must stay below [`MEMORY_MAX`].
//!
//! Inputs come from examples and from a dictionary for each language. The fuzzer does not use code
//! coverage, which would need a nightly compiler. So the fuzzer can be part of every test run.

mod mutate;
mod run;
mod targets;

pub use run::{Failure, MEMORY_MAX, Plan, SLOW, fuzz};
pub use targets::Target;
