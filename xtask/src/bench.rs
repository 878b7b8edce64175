//! `cargo xtask bench`: hands over to the bench's own program, which decides
//! what its words mean. Its exit code is ours.

use std::process::ExitCode;

use crate::checkout::Checkout;

/// What the bench does when nothing is asked for.
const DEFAULT_WORDS: &str = "emulators";

pub(crate) fn run(checkout: &Checkout, words: &[String]) -> ExitCode {
    let mut command = checkout.cargo();
    command.args(["run", "--release", "--locked", "--manifest-path", "bench/Cargo.toml", "--"]);
    if words.is_empty() {
        command.arg(DEFAULT_WORDS);
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
