//! Compares distributed transactions of our server with the same writes as one batch for each
//! partition. The ratio is the price of atomicity over several partitions. Both ways of writing
//! take turns on the same servers. The goal is at least half as many operations per second.
//!
//! It also compares transactions of our client on our engine with those of the official SDK on the
//! emulator inside it, all in one process. The goal is at least as many operations per second.

mod client;
mod emulator;
mod keys;
mod measure;
mod report;

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::ValueEnum;
use serde_json::{Value, json};

use crate::output;
use crate::targets::{Launcher, Target, server_program};
use client::Shape;
use report::Report;

/// More arguments of the servers. Every partition key of the benchmark is in a physical
/// partition of its own, and the counters are read.
const SERVER_ARGUMENTS: &[&str] = &["--partitions", "16", "--management"];

/// The physical partitions of `SERVER_ARGUMENTS`.
const PARTITIONS_MAX: u64 = 16;

/// The peer that transactions are compared with.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Peer {
    /// The same writes as one batch for each partition.
    Batches,
    /// Transactions of the official SDK on the emulator inside it.
    Emulator,
}

#[derive(clap::Args)]
pub struct Options {
    /// Shorter windows and fewer repeats.
    #[arg(long)]
    quick: bool,
    /// What transactions are compared with: by default both, and with --quick batches only,
    /// because the SDK takes minutes to build.
    #[arg(long, value_enum, value_delimiter = ',')]
    against: Vec<Peer>,
    /// Which servers to run: durable, memory.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Target::Durable, Target::Memory])]
    targets: Vec<Target>,
    /// Operations of a transaction.
    #[arg(long, value_delimiter = ',', default_values_t = [2, 5, 20])]
    operations: Vec<u64>,
    /// Partitions that the operations are spread over, at most 16. A transaction of two operations
    /// is in at most two of them.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 4, 16])]
    partitions: Vec<u64>,
    /// Clients: connections with one request at a time.
    #[arg(long, default_value_t = 16)]
    clients: u64,
    /// How often each row is measured on each target.
    #[arg(long)]
    repeats: Option<usize>,
    /// Our server's program; built from this checkout with the profile `dist` when not given.
    #[arg(long)]
    binary: Option<PathBuf>,
    /// Directory for data and logs of the servers, on the disk to be measured.
    #[arg(long)]
    scratch: Option<PathBuf>,
    /// Writes all figures to this file as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
}

/// The plan of a run, fixed before the run starts.
struct Plan {
    against: Vec<Peer>,
    targets: Vec<Target>,
    /// The numbers of operations as they were given, for the program with the emulator.
    operations: Vec<u64>,
    /// The numbers of partitions as they were given, for the program with the emulator.
    partitions: Vec<u64>,
    shapes: Vec<Shape>,
    clients: u64,
    repeats: usize,
    warm_up: Duration,
    window: Duration,
    /// The times of the comparison with the emulator. They are shorter, because in one process
    /// there is less noise, and because there are more rows.
    emulator_warm_up: Duration,
    emulator_window: Duration,
}

impl Plan {
    fn new(options: &Options) -> anyhow::Result<Self> {
        ensure!(
            !options.targets.contains(&Target::Vercel),
            "@vercel/cosmosdb-server has no distributed transactions: use --targets durable,memory"
        );
        let is_each_from_1_to =
            |numbers: &[u64], most| numbers.iter().all(|number| (1..=most).contains(number));
        ensure!(is_each_from_1_to(&options.operations, 100), "--operations: a transaction has 1 to 100");
        ensure!(
            is_each_from_1_to(&options.partitions, PARTITIONS_MAX),
            "--partitions: 1 to {PARTITIONS_MAX}"
        );
        ensure!((1..=1024).contains(&options.clients), "--clients: 1 to 1024");
        let shape =
            |operations: &u64, partitions: &u64| Shape { operations: *operations, partitions: *partitions };
        let shapes = options.operations.iter().flat_map(|operations| {
            options.partitions.iter().map(move |partitions| shape(operations, partitions))
        });
        let millis = |quick, long| Duration::from_millis(if options.quick { quick } else { long });
        let against = match (&options.against[..], options.quick) {
            ([], true) => vec![Peer::Batches],
            ([], false) => vec![Peer::Batches, Peer::Emulator],
            (given, _) => given.to_vec(),
        };
        Ok(Plan {
            against,
            targets: options.targets.clone(),
            operations: options.operations.clone(),
            partitions: options.partitions.clone(),
            shapes: shapes.collect(),
            clients: options.clients,
            repeats: options.repeats.unwrap_or(if options.quick { 3 } else { 5 }),
            warm_up: millis(200, 500),
            window: millis(1_000, 3_000),
            emulator_warm_up: millis(100, 200),
            emulator_window: millis(500, 1_000),
        })
    }
}

pub async fn run(options: Options) -> anyhow::Result<()> {
    let plan = Plan::new(&options)?;
    let mut figures = json!({});
    // The comparison with the emulator comes first: its program has to be built, and a build that
    // fails is then noticed before anything is measured.
    if plan.against.contains(&Peer::Emulator) {
        let report = emulator::run(&plan).await?;
        println!("{report}");
        figures["emulator"] = report.json();
    }
    if plan.against.contains(&Peer::Batches) {
        figures["batches"] = against_batches(&options, plan).await?;
    }
    output::write_json(options.json.as_deref(), || figures)
}

/// Measures and prints the comparison with batches. Returns the figures.
async fn against_batches(options: &Options, plan: Plan) -> anyhow::Result<Value> {
    let launcher = Launcher {
        scratch: output::scratch_directory(options.scratch.as_deref())?,
        vercel: None,
        ours: Some(server_program(options.binary.as_deref()).await?),
        ours_arguments: SERVER_ARGUMENTS,
    };
    let rows = measure::all(&launcher, &plan).await?;
    let report = Report { plan, rows };
    println!("{report}");
    fs::remove_dir_all(&launcher.scratch).context("removing the servers' data")?;
    Ok(report.json())
}
