//! `cargo xtask sim` and `cargo xtask fuzz`: build the programs `sim` of `crates/simulation` and
//! `fuzz` of `crates/fuzz` with optimisation, and start them with the arguments unchanged.
//! Succeed if the program succeeds.

use std::process::ExitCode;

use crate::checkout::Checkout;

/// The arguments of cargo, before those of the program.
const SIM: [&str; 8] =
    ["run", "--profile=dist", "--locked", "-p", "perihelion-simulation", "--bin", "sim", "--"];
const FUZZ: [&str; 8] = ["run", "--profile=dist", "--locked", "-p", "perihelion-fuzz", "--bin", "fuzz", "--"];

pub(crate) fn run(checkout: &Checkout, words: &[String]) -> ExitCode {
    start(checkout, SIM, words)
}

pub(crate) fn run_fuzz(checkout: &Checkout, words: &[String]) -> ExitCode {
    start(checkout, FUZZ, words)
}

fn start(checkout: &Checkout, program: [&str; 8], words: &[String]) -> ExitCode {
    let words = words.iter().map(String::as_str);
    checkout.run_cargo(&program.into_iter().chain(words).collect::<Vec<_>>())
}
