//! `cargo xtask sim`: builds the program `sim` of `crates/simulation` with optimisation and
//! starts it with the arguments unchanged. Succeeds if the program succeeds.

use std::process::ExitCode;

use crate::checkout::Checkout;

pub(crate) fn run(checkout: &Checkout, words: &[String]) -> ExitCode {
    let mut command = checkout.cargo();
    command.args(["run", "--release", "--locked", "-p", "perihelion-simulation", "--bin", "sim", "--"]);
    command.args(words);
    match command.status() {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("cannot start cargo: {error}");
            ExitCode::FAILURE
        }
    }
}
