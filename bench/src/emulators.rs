//! Compares our server with `@vercel/cosmosdb-server` in one run. The servers (*targets*)
//! take turns. The report also has the ratios, and says whether the project's goals are met.

mod disk;
mod phases;
mod plan;
mod report;
mod workloads;

use std::fs;
use std::path::PathBuf;

use anyhow::Context;

use crate::output;
use crate::targets::{Launcher, Target, Vercel, server_program};
use phases::Footprints;
pub use phases::{QUEUE_KEY, load_queue};
use plan::Plan;
use report::Report;

/// A part of the run.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// Start-up time and idle memory.
    Footprint,
    /// Point reads, creates and batches.
    Points,
    /// The ordered query, and memory with the large queue loaded.
    Queries,
}

#[derive(clap::Args)]
pub struct Options {
    /// Shorter windows, fewer repeats, and queues of 20,000 documents instead of 100,000.
    #[arg(long)]
    quick: bool,
    /// Which servers to run.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Target::Vercel, Target::Durable, Target::Memory])]
    targets: Vec<Target>,
    /// Which parts of the comparison to run.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Part::Footprint, Part::Points, Part::Queries])]
    only: Vec<Part>,
    /// Our server's program; built from this checkout with the profile `dist` when not given.
    #[arg(long)]
    binary: Option<PathBuf>,
    /// How often each workload is measured on each target.
    #[arg(long)]
    repeats: Option<usize>,
    /// Documents in the queues of the ordered query, multiples of 400
    /// [default: 100000,10000, or 20000,4000 with --quick].
    #[arg(long, value_delimiter = ',')]
    documents: Vec<u64>,
    /// Let the peer keep connections open, which its command line cannot do.
    #[arg(long)]
    peer_keep_alive: bool,
    /// Directory for data and logs of the servers, on the disk to be measured.
    #[arg(long)]
    scratch: Option<PathBuf>,
    /// Writes all figures to this file as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
}

pub async fn run(options: Options) -> anyhow::Result<()> {
    let plan = Plan::new(&options);
    let launcher = prepare(&options, &plan).await?;
    let disk = disk::measure_disk(&launcher.scratch)?;
    let mut footprints = Footprints::new();
    let mut rows = Vec::new();
    if options.only.contains(&Part::Footprint) {
        eprintln!("start-up and idle memory");
        footprints = phases::measure_footprint(&launcher, &plan).await?;
    }
    if options.only.contains(&Part::Points) {
        eprintln!("point operations");
        rows.extend(phases::measure_points(&launcher, &plan).await?);
    }
    if options.only.contains(&Part::Queries) {
        eprintln!("ordered queries");
        rows.extend(phases::measure_queries(&launcher, &plan, &mut footprints).await?);
    }
    let binary_bytes = launcher.ours.as_deref().map(fs::metadata).transpose()?.map(|file| file.len());
    let report = Report { plan, rows, footprints, binary_bytes, disk };
    println!("{report}");
    output::write_json(options.json.as_deref(), || report.json())?;
    fs::remove_dir_all(&launcher.scratch).context("removing the servers' data")
}

/// Installs the peer and builds our server, if the plan needs them.
async fn prepare(options: &Options, plan: &Plan) -> anyhow::Result<Launcher> {
    let scratch = output::scratch_directory(options.scratch.as_deref())?;
    let vercel = if plan.targets.contains(&Target::Vercel) {
        Some(Vercel::install(options.peer_keep_alive).await?)
    } else {
        None
    };
    let ours = match plan.targets.iter().any(|target| *target != Target::Vercel) {
        true => Some(server_program(options.binary.as_deref()).await?),
        false => None,
    };
    Ok(Launcher { scratch, vercel, ours, ours_arguments: &[] })
}
