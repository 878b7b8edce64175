//! `sim scale`: the measurements of `perihelion_simulation::scale`, as tables.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use perihelion_simulation::scale::cell::{self, Cell};
use perihelion_simulation::scale::programs::Workload;
use perihelion_simulation::scale::{Size, crowd, fan_out, idle, membership, page, table};

/// The numbers of processes and of partitions in the whole table.
const SIDES: [u32; 4] = [1, 4, 16, 64];

/// The numbers of processes and of partitions with `--quick`.
const QUICK_SIDES: [u32; 2] = [1, 4];

/// The loads of the table, in percent of the container's request units.
const LOADS: [u8; 2] = [20, 80];

/// The most processes or partitions of one size.
const SIDE_MAX: u32 = 1000;

/// The physical partitions of the container with `--crowd`.
const CROWD_PARTITIONS: u32 = 4;

/// The page that `--write` writes.
const PAGE: &str = "docs/provider-scale.md";

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Sizes as NxP (processes x partitions), separated by commas, such as 4x16,64x64
    /// [default: all of 1, 4, 16 and 64]
    #[arg(long, value_name = "SIZES", value_delimiter = ',', value_parser = parse_size)]
    cells: Vec<Size>,
    /// The loads in percent of the container's request units, separated by commas
    #[arg(long, value_name = "PERCENT", value_delimiter = ',', default_values_t = LOADS)]
    #[arg(value_parser = clap::value_parser!(u8).range(1..=100))]
    loads: Vec<u8>,
    /// Virtual seconds that a cell under load is measured for
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
    /// Virtual seconds that an idle cell is measured for; the pick-ups of an idle cell are
    /// measured for four times as long
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3600))]
    idle_seconds: u64,
    /// The seed of all random choices
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Worlds that run at the same time, each on one thread
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=64))]
    jobs: u8,
    /// Only 1 and 4 processes and partitions; a cell under load is measured for 2 virtual seconds,
    /// an idle cell for 20
    #[arg(long, conflicts_with = "cells")]
    quick: bool,
    /// Start a mix of workflows instead of the smallest one
    #[arg(long)]
    mix: bool,
    /// The request units of one workflow, from which the rate of starts follows
    /// [default: measured first, with one process and one partition]
    #[arg(long, value_name = "RU", value_parser = parse_units)]
    units: Option<f64>,
    /// Only the cells under load
    #[arg(long, conflicts_with = "idle")]
    busy: bool,
    /// Only the idle cells
    #[arg(long)]
    idle: bool,
    /// Instead of the cells: membership and polls of 400 and 1,000 processes, 70 partitions
    #[arg(long)]
    membership: bool,
    /// Instead of the cells: one instance's activities over 16 processes
    #[arg(long)]
    fanout: bool,
    /// The number of activities of --fanout
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    activities: u64,
    /// Instead of the cells: an idle process beside many ended and sleeping instances
    #[arg(long)]
    crowd: bool,
    /// The ended instances of --crowd (1000000 for docs/provider-scale.md)
    #[arg(long, value_name = "N", default_value_t = 50_000, value_parser = clap::value_parser!(u64).range(0..=10_000_000))]
    ended: u64,
    /// The sleeping instances of --crowd, each with a timer (100000 for docs/provider-scale.md)
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(0..=10_000_000))]
    sleeping: u64,
    /// Write the tables to docs/provider-scale.md too. Needs the current directory to be the
    /// root of the repository (cargo xtask sim runs there)
    #[arg(long)]
    write: bool,
}

/// Parses `4x16`.
fn parse_size(text: &str) -> Result<Size, String> {
    let sides = text.split_once('x').and_then(|(n, p)| Some((n.parse().ok()?, p.parse().ok()?)));
    match sides {
        Some((processes @ 1..=SIDE_MAX, partitions @ 1..=SIDE_MAX)) => Ok(Size::new(processes, partitions)),
        _ => Err(format!("`{text}` is not a size: write processes x partitions, such as 4x16")),
    }
}

/// Parses request units of a workflow.
fn parse_units(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(units) if (1.0..=1e6).contains(&units) => Ok(units),
        _ => Err(format!("`{text}` is not a number of request units from 1 to 1000000")),
    }
}

/// A part of the report, and whether its limits are kept.
struct Section {
    /// The heading by which `--write` finds the section in the page.
    title: &'static str,
    text: String,
    is_good: bool,
}

pub(crate) fn run(options: Options) -> ExitCode {
    if options.write && !PathBuf::from("docs").is_dir() {
        eprintln!("there is no directory docs here: run `cargo xtask sim scale --write`");
        return ExitCode::FAILURE;
    }
    let mut sections = Vec::new();
    if options.membership {
        sections.push(membership_section(&options));
    }
    if options.fanout {
        sections.push(fan_out_section(&options));
    }
    if options.crowd {
        sections.push(crowd_section(&options));
    }
    if sections.is_empty() {
        if !options.idle {
            sections.push(cells_section(&options));
        }
        if !options.busy {
            sections.push(idle_section(&options));
        }
    }
    let mut page = String::new();
    for section in &sections {
        page += &format!("## {}\n\n{}\n", section.title, section.text);
    }
    print!("{page}");
    if options.write
        && let Err(error) = write_sections(&sections)
    {
        eprintln!("cannot write {PAGE}: {error}");
        return ExitCode::FAILURE;
    }
    if sections.iter().all(|section| section.is_good) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn sizes(options: &Options) -> Vec<Size> {
    if !options.cells.is_empty() {
        return options.cells.clone();
    }
    let sides: &[u32] = if options.quick { &QUICK_SIDES } else { &SIDES };
    let sizes = sides
        .iter()
        .flat_map(|&processes| sides.iter().map(move |&partitions| Size::new(processes, partitions)));
    sizes.collect()
}

fn cells_section(options: &Options) -> Section {
    let workload = if options.mix { Workload::Mix } else { Workload::Smallest };
    let workflow_units = options.units.unwrap_or_else(|| cell::workflow_units(workload, options.seed));
    let length = Duration::from_secs(if options.quick { 2 } else { options.seconds });
    let sizes = sizes(options);
    let cell =
        |size, percent: &u8| Cell { size, load: f64::from(*percent) / 100.0, workload, workflow_units };
    let cells: Vec<Cell> =
        sizes.iter().flat_map(|&size| options.loads.iter().map(move |load| cell(size, load))).collect();
    let outcomes = run_all(&cells, options.jobs, |cell| {
        let outcome = cell::run(*cell, length, options.seed);
        eprint!("{}", table::cell_row(&outcome));
        eprintln!(
            "  in {:.0} s; {} starts left out",
            outcome.real_time.as_secs_f64(),
            outcome.starts_left_out
        );
        outcome
    });
    Section {
        title: match workload {
            Workload::Mix => "A mix of workflows, started by other processes",
            Workload::Smallest | Workload::Sleeping => "The smallest workflow, started by other processes",
        },
        text: format!("A workflow costs {workflow_units:.1} RU. {}", table::cells(&outcomes)),
        is_good: outcomes.iter().all(|outcome| outcome.failures().is_empty()),
    }
}

fn idle_section(options: &Options) -> Section {
    let quiet = Duration::from_secs(if options.quick { 20 } else { options.idle_seconds });
    let outcomes = run_all(&sizes(options), options.jobs, |&size| {
        let outcome = idle::run(size, quiet, quiet * 4, options.seed);
        eprint!("{}", table::idle_row(&outcome));
        eprintln!("  in {:.0} s", outcome.real_time.as_secs_f64());
        outcome
    });
    Section {
        title: "Idle",
        text: table::idle_cells(&outcomes),
        is_good: outcomes.iter().all(|outcome| outcome.failures().is_empty()),
    }
}

fn membership_section(options: &Options) -> Section {
    let sizes = match options.cells.is_empty() {
        true => [400, 1000].map(|processes| Size::new(processes, 70)).to_vec(),
        false => options.cells.clone(),
    };
    let length = Duration::from_secs(options.idle_seconds.min(30));
    let outcomes: Vec<_> = run_all(&sizes, options.jobs, |&size| {
        let outcomes = membership::run(size, length, options.seed);
        eprintln!("{size:?}: in {:.0} s", outcomes[0].real_time.as_secs_f64());
        outcomes
    });
    let outcomes: Vec<_> = outcomes.into_iter().flatten().collect();
    Section {
        title: "Membership and polls of very many processes",
        text: table::membership(&outcomes),
        is_good: outcomes.iter().all(membership::MembershipOutcome::is_good),
    }
}

fn fan_out_section(options: &Options) -> Section {
    let size = options.cells.first().copied().unwrap_or(Size::new(16, 4));
    let outcome = fan_out::run(size, options.activities, options.seed);
    eprintln!("fan-out: in {:.0} s", outcome.real_time.as_secs_f64());
    Section { title: "A fan-out", text: table::fan_out(&outcome), is_good: outcome.is_good() }
}

fn crowd_section(options: &Options) -> Section {
    let length = Duration::from_secs(options.idle_seconds * 2);
    let outcome = crowd::run(options.ended, options.sleeping, CROWD_PARTITIONS, length, options.seed);
    eprintln!("crowd: in {:.0} s", outcome.real_time.as_secs_f64());
    Section { title: "A crowd", text: table::crowd(&outcome), is_good: outcome.is_good() }
}

/// Runs all cases, `jobs` at a time, and returns the results in the order of the cases.
fn run_all<C: Sync, R: Send>(cases: &[C], jobs: u8, run: impl Fn(&C) -> R + Sync) -> Vec<R> {
    let (next, results) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                while let index = next.fetch_add(1, Ordering::Relaxed)
                    && let Some(case) = cases.get(index)
                {
                    let result = run(case);
                    results.lock().expect("no run has panicked").push((index, result));
                }
            });
        }
    });
    let mut results = results.into_inner().expect("no run has panicked");
    results.sort_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}

/// The text before the first section of a new page.
const INTRODUCTION: &str = "\
# The provider at scale

Measured by `cargo xtask sim scale --write`: the whole stack (duroxide's runtime, the provider, the driver, the
engine) in one thread and virtual time. N is the number of worker processes, P the number of physical
partitions. Each partition has 10,000 RU/s. Separate client processes start workflows at a fixed rate. A
request and an answer take up to 4 ms each. Processors are not simulated: each process has as many
dispatchers as its share of the load needs.

";

/// Writes the sections into the page. Replaces measurements with the same titles, and keeps the rest
/// of the page.
fn write_sections(sections: &[Section]) -> std::io::Result<()> {
    let mut text = match std::fs::read_to_string(PAGE) {
        Ok(page) => page,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => INTRODUCTION.to_owned(),
        Err(error) => return Err(error),
    };
    for section in sections {
        text = page::with_section(&text, section.title, &section.text);
    }
    std::fs::write(PAGE, text)
}
