//! `cargo xtask sim`: builds the program `sim` of `crates/simulation` with optimisation and
//! starts it with the arguments unchanged. Succeeds if the program succeeds.

use std::process::ExitCode;

use crate::checkout::Checkout;

/// The arguments of cargo, before those of the program.
const RUN: [&str; 8] = ["run", "--release", "--locked", "-p", "perihelion-simulation", "--bin", "sim", "--"];

pub(crate) fn run(checkout: &Checkout, words: &[String]) -> ExitCode {
    let words = words.iter().map(String::as_str);
    checkout.run_cargo(&RUN.into_iter().chain(words).collect::<Vec<_>>())
}
