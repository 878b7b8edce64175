//! Compares our provider of durable workflows with its peers: duroxide's SQLite provider on a
//! file, duroxide-pg on a PostgreSQL that the run starts, the published duroxide-cdb 0.1.10
//! on our server, and the ceiling, a trivial provider in memory. A provider with its storage
//! is a *place*. The places take turns. Every measurement is a separate process
//! (`bench/providers/`) on empty storage.

mod counts;
mod environment;
mod goals;
mod places;
mod plan;
mod postgres;
mod report;
mod rounds;

use std::fs;
use std::path::PathBuf;

use anyhow::Context;

use crate::output;
use crate::targets::{Launcher, server_program};
use environment::{Environment, gather_programs};
use places::{Needs, Place};
use plan::{Part, Plan};
use postgres::Postgres;
use report::Report;

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
    /// Run every workload on every place, even where there is no goal.
    #[arg(long)]
    everywhere: bool,
    /// Worker threads of every program's runtime.
    #[arg(long, default_value_t = 2)]
    workers: usize,
    /// Our server's program; built from this checkout with the profile `dist` when not given.
    #[arg(long)]
    binary: Option<PathBuf>,
    /// A directory with the programs of bench/providers, already built; built in
    /// release mode when not given.
    #[arg(long)]
    programs: Option<PathBuf>,
    /// Directory for the data of the run; bench/.run when not given.
    #[arg(long)]
    scratch: Option<PathBuf>,
    /// Writes all figures to this file as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
}

pub async fn run(options: Options) -> anyhow::Result<()> {
    let plan = Plan::new(&options);
    let environment = prepare(&options, &plan).await?;
    let rows = rounds::run(&environment, &plan).await;
    let counts = counts::all(&environment, &plan).await;
    if let Some(postgres) = environment.postgres {
        postgres.stop().await?;
    }
    let report = Report { plan, rows, counts };
    println!("{report}");
    output::write_json(options.json.as_deref(), || report.json())?;
    fs::remove_dir_all(&environment.launcher.scratch).context("removing the files of the run")
}

/// Builds and starts what the places of the plan need.
async fn prepare(options: &Options, plan: &Plan) -> anyhow::Result<Environment> {
    let scratch = output::scratch_directory(options.scratch.as_deref())?;
    let places = plan.places();
    let programs = gather_programs(&places, options.programs.as_deref(), &scratch).await?;
    let is_needed = |wanted: &[Needs]| places.iter().any(|place| wanted.contains(&place.needs()));
    let ours = match is_needed(&[Needs::Durable, Needs::Memory]) {
        true => Some(server_program(options.binary.as_deref()).await?),
        false => None,
    };
    let postgres = if is_needed(&[Needs::Postgres]) { Some(Postgres::start().await?) } else { None };
    let launcher = Launcher { scratch, vercel: None, ours, ours_arguments: &["--management"] };
    Ok(Environment { launcher, postgres, programs, workers: plan.workers })
}
