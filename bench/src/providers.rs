//! Our provider of durable workflows against its peers: duroxide's SQLite file
//! provider, duroxide-pg on a PostgreSQL of the run's own, the published
//! duroxide-cdb 0.1.10 on the same server as ours, and the ceiling, a trivial
//! provider in memory. One run, the places taking turns; every measurement is a
//! process of its own on empty storage (`bench/providers/`).

mod counts;
mod goals;
mod places;
mod plan;
mod postgres;
mod report;
mod rounds;
mod stage;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::targets::{Launcher, build};
use places::{Needs, Place};
use plan::{Part, Plan};
use postgres::Postgres;
use report::Report;
use stage::{Stage, gather_programs};

#[derive(clap::Args)]
pub struct Options {
    /// Shorter windows and fewer repeats.
    #[arg(long)]
    quick: bool,
    /// How often each workload is measured on each place.
    #[arg(long)]
    repeats: Option<usize>,
    /// Which places to run.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Place::ALL)]
    places: Vec<Place>,
    /// Which parts to run.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Part::ALL)]
    only: Vec<Part>,
    /// Every workload on every place, also where no goal asks for it.
    #[arg(long)]
    everywhere: bool,
    /// Worker threads of every program's runtime.
    #[arg(long, default_value_t = 2)]
    workers: usize,
    /// Our server's program; built from this checkout in release mode when not given.
    #[arg(long)]
    binary: Option<PathBuf>,
    /// A directory with the programs of bench/providers, built before; built in
    /// release mode when not given.
    #[arg(long)]
    programs: Option<PathBuf>,
    /// Where data is kept meanwhile; under bench/.run when not given.
    #[arg(long)]
    scratch: Option<PathBuf>,
    /// Writes all figures to this file as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
}

pub async fn run(options: Options) -> anyhow::Result<()> {
    let plan = Plan::new(&options);
    let stage = prepare(&options, &plan).await?;
    let rows = rounds::run(&stage, &plan).await;
    let counts = counts::all(&stage, &plan).await;
    if let Some(postgres) = stage.postgres {
        postgres.stop().await?;
    }
    let report = Report { plan, rows, counts };
    println!("{report}");
    if let Some(path) = &options.json {
        fs::write(path, format!("{:#}\n", report.json()))
            .with_context(|| format!("writing {}", path.display()))?;
    }
    fs::remove_dir_all(&stage.launcher.scratch).context("removing what the run left")
}

/// Builds and starts what the plan's places need, and nothing else.
async fn prepare(options: &Options, plan: &Plan) -> anyhow::Result<Stage> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let scratch = options.scratch.clone().unwrap_or_else(|| here.join(".run"));
    let scratch = scratch.join(std::process::id().to_string());
    fs::create_dir_all(&scratch).with_context(|| format!("creating {}", scratch.display()))?;
    let places = plan.places();
    let programs = gather_programs(&places, options.programs.as_deref(), &scratch).await?;
    let is_needed = |wanted: &[Needs]| places.iter().any(|place| wanted.contains(&place.needs()));
    let server = if !is_needed(&[Needs::Durable, Needs::Memory]) {
        None
    } else if let Some(binary) = &options.binary {
        Some(binary.clone())
    } else {
        Some(build(&here.join("..")).await?)
    };
    let postgres = if is_needed(&[Needs::Postgres]) { Some(Postgres::start().await?) } else { None };
    let launcher = Launcher { scratch, vercel: None, ours: server, management: true };
    Ok(Stage { launcher, postgres, programs, workers: plan.workers })
}
