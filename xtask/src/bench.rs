//! `cargo xtask bench`: starts the program of `bench/` with the arguments unchanged, or with
//! the default benchmark if there are no arguments. Succeeds if the program succeeds.

use std::process::ExitCode;

use crate::checkout::Checkout;

/// The arguments of cargo, before those of the program.
const RUN: [&str; 6] = ["run", "--release", "--locked", "--manifest-path", "bench/Cargo.toml", "--"];

/// The benchmark that runs without arguments.
const DEFAULT_BENCHMARK: &str = "emulators";

pub(crate) fn run(checkout: &Checkout, words: &[String]) -> ExitCode {
    let default = words.is_empty().then_some(DEFAULT_BENCHMARK);
    let words = words.iter().map(String::as_str).chain(default);
    checkout.run_cargo(&RUN.into_iter().chain(words).collect::<Vec<_>>())
}
