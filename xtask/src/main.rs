//! `cargo xtask`: runs all tests and checks of the repository.
//!
//! A test run consists of parts, and a part of steps. A step is one command. A command that
//! runs tests (nextest, cargo or a suite) prints a closing line with counts. This program reads
//! the closing lines and adds up the counts. It has no dependencies, so that it builds in a second
//! on a clean clone.
//!
//! Invariants of `cargo xtask test`: a part that fails does not stop the parts after it, a
//! runner without its closing line counts as failed, and the last line on standard output is
//! `N passed, N failed, N skipped`.

mod args;
mod bench;
mod checkout;
#[cfg(test)]
mod documented;
mod house;
mod modules;
mod outcome;
mod package;
mod part;
mod parts;
mod process;
mod report;
mod runners;
mod sim;
mod version_before;

use std::process::ExitCode;

use crate::args::Invocation;
use crate::checkout::Checkout;
use crate::part::{Part, Scope};

/// The exit code of wrong usage. The exit code of a failed check is 1.
const EXIT_USAGE: u8 = 2;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match args::parse(&words) {
        Ok(Invocation::Help) => {
            print!("{}", args::HELP);
            ExitCode::SUCCESS
        }
        Ok(Invocation::Test { parts, scope }) => test(&parts, scope),
        Ok(Invocation::Modules { name }) => modules::run(&Checkout::of_this_program(), name.as_deref()),
        Ok(Invocation::Bench { words }) => bench::run(&Checkout::of_this_program(), &words),
        Ok(Invocation::Sim { words }) => sim::run(&Checkout::of_this_program(), &words),
        Ok(Invocation::Fuzz { words }) => sim::run_fuzz(&Checkout::of_this_program(), &words),
        Err(wrong) => {
            eprintln!("{wrong}\n\n{}", args::HELP);
            ExitCode::from(EXIT_USAGE)
        }
    }
}

fn test(parts: &[Part], scope: Scope) -> ExitCode {
    let checkout = Checkout::of_this_program();
    let outcomes = parts::run_all(parts, scope, &checkout);
    print!("{}", report::closing_report(&outcomes));
    if outcomes.iter().all(outcome::PartOutcome::is_good) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
