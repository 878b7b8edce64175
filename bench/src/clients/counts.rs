//! Counts allocations, with a build that has a counting allocator, and instructions, with
//! callgrind. The instructions per read are the difference between a long and a short run,
//! divided by the difference of their reads. Program start, handshake and warm-up are in both runs
//! and cancel out, except that they differ by some million instructions from run to run. So the
//! long run has many more reads, the programs take turns, and the median of several rounds counts.
//! The server runs outside valgrind.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, ensure};
use perihelion_bench_client::Operation;
use tokio::process::Command;

use super::programs::{Built, Program, Run};
use super::{Environment, Plan};
use crate::setup::{create_container, load_readable};
use crate::statistics::median;

/// The operations before allocations are counted: enough for pools, caches and buffers to
/// reach their final size.
const WARM_UP: &str = "500";
/// The operations whose allocations are counted: so many that background work (pings,
/// refreshes) is less than one allocation per operation.
const COUNTED_OPERATIONS: &str = "4000";
/// The operations before instructions are counted. Few, because valgrind is fifty times
/// slower.
const CALLGRIND_WARM_UP: &str = "50";
/// The most tries of a run under callgrind. Seeding random numbers takes seconds under
/// valgrind, so on a busy machine the handshake may exceed the client's connection timeout.
const CALLGRIND_TRIES: usize = 3;
/// How often the instructions of each program are counted.
const CALLGRIND_ROUNDS: usize = 3;
/// The reads of the long run, as a multiple of those of the short run.
const LONG_RUN: u64 = 6;
const CONTAINER: &str = "counted";

/// Allocations per operation.
#[derive(Clone, Copy)]
pub struct Allocations {
    pub count: f64,
    pub bytes: f64,
}

/// Allocations by the name of the operation and the client.
pub type AllocationTable = BTreeMap<(&'static str, Program), Allocations>;

/// A run with one operation at a time.
fn counted_run<'a>(
    plan: &Plan,
    operation: Operation,
    warm_up: &'a str,
    measured: &'a str,
    number: u64,
) -> Run<'a> {
    Run { operation, container: CONTAINER, concurrency: 1, workers: plan.workers, warm_up, measured, number }
}

/// The allocations of each operation with each client.
pub async fn count_allocations(
    environment: &Environment,
    plan: &Plan,
    built: &BTreeMap<Program, Built>,
) -> anyhow::Result<AllocationTable> {
    eprintln!("counting allocations");
    create_container(&environment.server, CONTAINER).await?;
    load_readable(&environment.server, CONTAINER).await?;
    let mut table = AllocationTable::new();
    for (number, (program, built)) in built.iter().enumerate() {
        for (name, operation) in [("point read", Operation::Read), ("create", Operation::Create)] {
            let run = counted_run(plan, operation, WARM_UP, COUNTED_OPERATIONS, number as u64);
            let figures = run.execute(Command::new(&built.counting), environment).await?;
            let (count, bytes) = (figures.get("allocations")?, figures.get("allocatedBytes")?);
            table.insert((name, *program), Allocations { count, bytes });
        }
    }
    Ok(table)
}

/// Instructions per point read.
#[derive(Default)]
pub struct Instructions {
    pub by_client: BTreeMap<Program, f64>,
    /// Our client with the fault layer compiled in and idle.
    pub with_faults: Option<f64>,
}

/// The instructions per point read of each client, and of ours with the fault layer.
pub async fn count_instructions(
    environment: &Environment,
    plan: &Plan,
    built: &BTreeMap<Program, Built>,
) -> anyhow::Result<Instructions> {
    let mut rounds_by_client: BTreeMap<Program, Vec<f64>> = BTreeMap::new();
    let mut with_faults = Vec::new();
    for round in 1..=CALLGRIND_ROUNDS {
        eprintln!("counting instructions: round {round} of {CALLGRIND_ROUNDS}");
        for (program, built) in built {
            let counted = instructions_per_read(environment, plan, &built.plain).await?;
            rounds_by_client.entry(*program).or_default().push(counted);
            if let Some(program) = &built.with_faults {
                with_faults.push(instructions_per_read(environment, plan, program).await?);
            }
        }
    }
    let by_client =
        rounds_by_client.into_iter().map(|(program, counted)| (program, median(&counted))).collect();
    let with_faults = (!with_faults.is_empty()).then(|| median(&with_faults));
    Ok(Instructions { by_client, with_faults })
}

/// The instructions per point read of a program.
async fn instructions_per_read(
    environment: &Environment,
    plan: &Plan,
    program: &Path,
) -> anyhow::Result<f64> {
    let (short, long) = (plan.instruction_reads, LONG_RUN * plan.instruction_reads);
    let in_short = instructions_of_run(environment, plan, program, short).await?;
    let in_long = instructions_of_run(environment, plan, program, long).await?;
    ensure!(in_long > in_short, "{} took fewer instructions for more reads", program.display());
    Ok((in_long - in_short) as f64 / (long - short) as f64)
}

/// The instructions of a run with this many reads. A run that fails is tried again.
async fn instructions_of_run(
    environment: &Environment,
    plan: &Plan,
    program: &Path,
    reads: u64,
) -> anyhow::Result<u64> {
    let mut tries_left = CALLGRIND_TRIES;
    loop {
        tries_left -= 1;
        match try_under_callgrind(environment, plan, program, reads).await {
            Err(error) if tries_left > 0 => eprintln!("  trying again, because: {error:#}"),
            result => return result,
        }
    }
}

async fn try_under_callgrind(
    environment: &Environment,
    plan: &Plan,
    program: &Path,
    reads: u64,
) -> anyhow::Result<u64> {
    let out = environment.scratch.join("callgrind.out");
    let mut command = Command::new("valgrind");
    command.arg("--tool=callgrind").arg(format!("--callgrind-out-file={}", out.display())).arg(program);
    let measured = reads.to_string();
    let run = counted_run(plan, Operation::Read, CALLGRIND_WARM_UP, &measured, 1);
    run.execute(command, environment)
        .await
        .context("is valgrind installed? --skip-instructions does without")?;
    let text = fs::read_to_string(&out).with_context(|| format!("reading {}", out.display()))?;
    fs::remove_file(&out)?;
    parse_total(&text).context("no total in callgrind's file")
}

/// The instructions of all threads, from the line `totals: 123` at the end of callgrind's
/// file.
fn parse_total(text: &str) -> Option<u64> {
    text.lines().rev().find_map(|line| line.strip_prefix("totals: "))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_of_a_callgrind_file_is_its_last_line() {
        let text = "version: 1\nevents: Ir\nsummary: 12\n\nfn=(1) main\n3 4\n\ntotals: 4711\n";
        assert_eq!(parse_total(text), Some(4711));
        assert_eq!(parse_total("events: Ir\n"), None);
    }
}
