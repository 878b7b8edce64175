//! A seeded fuzzer for everything that reads bytes from outside.
//!
//! An input is a valid example that was changed at random. It depends only on the seed and its
//! number, so a failure is repeated with `cargo xtask fuzz --target NAME --seed S --from N
//! --inputs 1`. Each target runs its input and checks what always holds, such as that a printed
//! value parses to itself. What holds for all targets: no panic, no input takes longer than
//! [`SLOW`], and the memory of the process stays below [`MEMORY_MAX`].
//!
//! There is no feedback from coverage. It would need a nightly compiler; this fuzzer runs in
//! every test run, and finds what examples and a dictionary of each language lead to.

mod mutate;
mod run;
mod targets;

pub use run::{Failure, MEMORY_MAX, Plan, SLOW, fuzz};
pub use targets::Target;
