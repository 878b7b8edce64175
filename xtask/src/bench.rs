//! `cargo xtask bench`: starts the program of `bench/` with the arguments unchanged, or with
//! the default benchmark if there are no arguments. Succeeds if the program succeeds.

use std::process::ExitCode;

use crate::checkout::Checkout;

/// The benchmark that runs without arguments.
const DEFAULT_BENCHMARK: &str = "emulators";

pub(crate) fn run(checkout: &Checkout, words: &[String]) -> ExitCode {
    let mut command = checkout.cargo();
    command.args(["run", "--release", "--locked", "--manifest-path", "bench/Cargo.toml", "--"]);
    if words.is_empty() {
        command.arg(DEFAULT_BENCHMARK);
    }
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
