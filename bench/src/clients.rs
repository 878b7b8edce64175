//! Compares our client with the official SDK, `azure_data_cosmos`, and both with the floor:
//! raw hyper with a signature. All run the same workload on the same server, and take turns.
//! Each client is a separate program (`bench/clients/`), so that dependencies, build cost and
//! binary size can be compared, too.

mod bulk;
mod costs;
mod counts;
mod programs;
mod report;
mod rounds;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::output;
use crate::setup;
use crate::targets::{Launcher, Server, Target, certificate_authority, server_program};
use programs::{Built, Program};
use report::Report;

/// The arguments of the server: as many streams on a connection as the service allows.
const SERVER_ARGUMENTS: &[&str] = &["--streams-per-connection", "20"];

#[derive(clap::Args)]
pub struct Options {
    /// Shorter windows, fewer repeats, fewer documents in the bulk.
    #[arg(long)]
    quick: bool,
    /// How often each workload is measured on each client.
    #[arg(long)]
    repeats: Option<usize>,
    /// Skip the clean builds, which take minutes.
    #[arg(long)]
    skip_build_cost: bool,
    /// Skip counting instructions, which needs valgrind.
    #[arg(long)]
    skip_instructions: bool,
    /// Which clients to run.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Program::ALL)]
    clients: Vec<Program>,
    /// Concurrent operations.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 64, 512])]
    concurrency: Vec<u64>,
    /// Worker threads of every client's runtime.
    #[arg(long, default_value_t = 2)]
    workers: usize,
    /// Skip the comparison of our bulk mode with single creates.
    #[arg(long)]
    skip_bulk: bool,
    /// Our server's program; built from this checkout with the profile `dist` when not given.
    #[arg(long)]
    binary: Option<PathBuf>,
    /// Writes all figures to this file as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
}

/// The plan of a run, fixed before it starts.
struct Plan {
    clients: Vec<Program>,
    concurrency: Vec<u64>,
    workers: usize,
    repeats: usize,
    /// The durations of the warm-up and of the measurement, as a client program takes them.
    warm_up: String,
    measured: String,
    /// The number of documents that a bulk creates.
    bulk_documents: u64,
    /// The number of reads in the shorter of the two runs under callgrind.
    instruction_reads: u64,
}

impl Plan {
    fn new(options: &Options) -> Self {
        let is_quick = options.quick;
        let mut clients = options.clients.clone();
        clients.sort_unstable();
        clients.dedup();
        Self {
            clients,
            concurrency: options.concurrency.clone(),
            workers: options.workers,
            repeats: options.repeats.unwrap_or(if is_quick { 3 } else { 5 }),
            warm_up: if is_quick { "300ms" } else { "700ms" }.into(),
            measured: if is_quick { "1000ms" } else { "3000ms" }.into(),
            bulk_documents: if is_quick { 20_000 } else { 100_000 },
            instruction_reads: 1_000,
        }
    }
}

/// The server that all clients use, and the files of the run.
struct Environment {
    server: Server,
    /// The CA that signs the server's certificate.
    ca: PathBuf,
    /// The directory for client programs and the output of valgrind.
    scratch: PathBuf,
}

pub async fn run(options: Options) -> anyhow::Result<()> {
    let plan = Plan::new(&options);
    let scratch = output::scratch_directory(None)?;
    let built = Built::all(&plan.clients, &scratch).await?;
    let environment = start_server(&options, &scratch).await?;
    let mut report = Report::new(plan);
    report.rows = rounds::run(&environment, &report.plan, &built).await?;
    if !options.skip_bulk {
        report.bulk = bulk::run(&environment, &report.plan, &built).await?;
    }
    report.allocations = counts::count_allocations(&environment, &report.plan, &built).await?;
    if !options.skip_instructions {
        report.instructions = counts::count_instructions(&environment, &report.plan, &built).await?;
    }
    environment.server.stop().await?;
    report.costs = costs::all(&report.plan.clients, &built, &scratch, !options.skip_build_cost).await?;
    println!("{report}");
    output::write_json(options.json.as_deref(), || report.json())?;
    fs::remove_dir_all(&scratch).context("removing the files of the run")
}

/// Starts our server in memory and creates the database.
async fn start_server(options: &Options, scratch: &Path) -> anyhow::Result<Environment> {
    let binary = server_program(options.binary.as_deref()).await?;
    let ours = Some(binary.clone());
    let launcher =
        Launcher { scratch: scratch.to_owned(), vercel: None, ours, ours_arguments: SERVER_ARGUMENTS };
    let server = launcher.start(Target::Memory).await?;
    setup::create_database(&server).await?;
    let ca = certificate_authority(&binary, None).await?;
    Ok(Environment { server, ca, scratch: scratch.to_owned() })
}
