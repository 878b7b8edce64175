//! `fuzz`: runs the fuzzer by hand (`cargo xtask fuzz`).

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use perihelion_fuzz::{Plan, Target, fuzz};

/// Gives changed examples to everything that reads bytes from outside, and looks for panics,
/// hangs, high use of memory, and answers that contradict each other.
#[derive(Parser)]
struct Options {
    /// The targets: sql, json, binary-json, tokens, patch, transaction, merge, requests, files. All
    /// of them when none is named.
    #[arg(long, value_delimiter = ',', value_parser = parse_target)]
    target: Vec<Target>,
    /// The number of inputs for each target.
    #[arg(long, default_value_t = 100_000)]
    inputs: u64,
    /// The number of the first input, to repeat one that failed.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// The seed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The most seconds for each target.
    #[arg(long)]
    seconds: Option<u64>,
}

fn parse_target(name: &str) -> Result<Target, String> {
    let names = || Target::ALL.map(Target::name).join(", ");
    Target::named(name).ok_or_else(|| format!("there is no target {name}; the targets are {}", names()))
}

fn main() -> ExitCode {
    let Options { target, inputs, from, seed, seconds } = Options::parse();
    let targets = if target.is_empty() { Target::ALL.to_vec() } else { target };
    let mut has_failed = false;
    for target in targets {
        let (began_at, time) = (Instant::now(), seconds.map(Duration::from_secs));
        match fuzz(Plan { target, seed, from, inputs, time }) {
            Ok(count) => {
                println!("{}: {count} inputs in {:.1?}, no failure", target.name(), began_at.elapsed())
            }
            Err(failure) => {
                println!("{failure}");
                has_failed = true;
            }
        }
    }
    if has_failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
