//! `sim faults`: runs in which everything is drawn from a seed, with all faults. The checkers
//! must find no violation. With `--planted`, a checker must find each planted bug.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use perihelion_simulation::checkers::Violation;
use perihelion_simulation::fault_run::draw::{self, Size};
use perihelion_simulation::fault_run::{self, Outcome};
use perihelion_simulation::planted::Bug;

/// The most failing seeds whose violations are printed.
const SHOWN_SEEDS_MAX: usize = 5;

/// The most violations of one seed that are printed.
const SHOWN_VIOLATIONS_MAX: usize = 8;

/// How often the progress is printed.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(10);

/// A planted bug must be found within this many seeds.
const PLANTED_SEEDS_MAX: u64 = 200;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// The number of seeds
    #[arg(long, value_name = "N", default_value_t = 2000, value_parser = clap::value_parser!(u64).range(1..))]
    seeds: u64,
    /// The first seed
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    first: u64,
    /// Run this seed only, and print what it draws
    #[arg(long, value_name = "SEED", conflicts_with_all = ["seeds", "first"])]
    seed: Option<u64>,
    /// Smaller runs: up to three processes and 20 seconds of faults
    #[arg(long)]
    quick: bool,
    /// Run the planted bugs instead: each one must be found by its checker
    #[arg(long, conflicts_with = "seed")]
    planted: bool,
    /// Seeds that run at the same time, each on a thread of its own [default: the number of cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=64))]
    jobs: Option<u64>,
}

pub(crate) fn run(options: Options) -> ExitCode {
    // duroxide logs to standard output unless the program has set a subscriber. With
    // `SIMULATION_LOG` each run sets its own.
    let _ = tracing_subscriber::fmt().with_max_level(tracing_subscriber::filter::LevelFilter::OFF).try_init();
    let size = if options.quick { Size::Quick } else { Size::Full };
    if options.planted {
        return run_planted(size);
    }
    if let Some(seed) = options.seed {
        println!("{:#?}", draw::draw(seed, size, None));
        return report(&run_seeds(seed, 1, 1, size), size);
    }
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
    report(&run_seeds(options.first, options.seeds, options.jobs.unwrap_or(cores), size), size)
}

/// The sums over all seeds.
#[derive(Default)]
struct Sums {
    seeds: u64,
    elapsed: Duration,
    requests: u64,
    workflows: u64,
    virtual_time: Duration,
    workflow_time: Duration,
    faults: BTreeMap<&'static str, u64>,
    /// The violations of each seed that has any.
    failed: BTreeMap<u64, Vec<Violation>>,
}

impl Sums {
    fn add(&mut self, seed: u64, outcome: Outcome) {
        self.seeds += 1;
        self.requests += outcome.requests;
        self.workflows += outcome.workflows;
        self.virtual_time += outcome.virtual_time;
        self.workflow_time += outcome.workflow_time;
        for (name, count) in outcome.faults {
            *self.faults.entry(name).or_default() += count;
        }
        if !outcome.violations.is_empty() {
            self.failed.insert(seed, outcome.violations);
        }
    }
}

/// Runs the seeds, `jobs` at a time.
fn run_seeds(first: u64, count: u64, jobs: u64, size: Size) -> Sums {
    let (began, next) = (Instant::now(), AtomicU64::new(0));
    let sums = Mutex::new((Sums::default(), Instant::now()));
    std::thread::scope(|scope| {
        for _ in 0..jobs.min(count) {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= count {
                        return;
                    }
                    let seed = first.saturating_add(number);
                    let outcome = fault_run::run(seed, size, None);
                    let mut guard = sums.lock().unwrap_or_else(PoisonError::into_inner);
                    let (sums, shown_at) = &mut *guard;
                    if !outcome.violations.is_empty() && sums.failed.len() < SHOWN_SEEDS_MAX {
                        show(seed, &outcome.violations);
                    }
                    sums.add(seed, outcome);
                    if shown_at.elapsed() >= PROGRESS_INTERVAL {
                        *shown_at = Instant::now();
                        eprintln!("{} seeds of {count}, {} with violations", sums.seeds, sums.failed.len());
                    }
                }
            });
        }
    });
    let (mut sums, _) = sums.into_inner().unwrap_or_else(PoisonError::into_inner);
    sums.elapsed = began.elapsed();
    sums
}

fn show(seed: u64, violations: &[Violation]) {
    eprintln!("seed {seed}: {} violations", violations.len());
    for violation in violations.iter().take(SHOWN_VIOLATIONS_MAX) {
        eprintln!("  {}: {}", violation.checker, violation.text);
    }
}

/// Prints the tables. Fails if a seed has violations.
fn report(sums: &Sums, size: Size) -> ExitCode {
    let hours = |time: Duration| time.as_secs_f64() / 3600.0;
    println!("| what | count |\n|---|---|");
    println!("| seeds ({size:?}) | {} |", sums.seeds);
    println!("| seeds per second | {:.1} |", sums.seeds as f64 / sums.elapsed.as_secs_f64().max(0.001));
    println!("| workflows | {} |", sums.workflows);
    println!("| simulated hours | {:.1} |", hours(sums.virtual_time));
    println!("| simulated workflow-hours | {:.1} |", hours(sums.workflow_time));
    println!("| requests | {} |", sums.requests);
    println!("| seeds with violations | {} |", sums.failed.len());
    println!("\n| fault | injected |\n|---|---|");
    for (name, count) in &sums.faults {
        println!("| {name} | {count} |");
    }
    let Some(first) = sums.failed.keys().next() else { return ExitCode::SUCCESS };
    let mut by_checker = BTreeMap::<&str, Vec<u64>>::new();
    for (seed, violations) in &sums.failed {
        for violation in violations {
            let seeds = by_checker.entry(violation.checker).or_default();
            if seeds.last() != Some(seed) {
                seeds.push(*seed);
            }
        }
    }
    println!("\n| checker | seeds with violations |\n|---|---|");
    for (checker, seeds) in by_checker {
        println!("| {checker} | {seeds:?} |");
    }
    let quick = if size == Size::Quick { " --quick" } else { "" };
    println!("\n`--seed {first}{quick}` repeats the first seed with violations.");
    ExitCode::FAILURE
}

/// Plants each bug and runs seeds until its checker finds it.
fn run_planted(size: Size) -> ExitCode {
    println!("| planted bug | checker | found after seeds |\n|---|---|---|");
    let mut missed = 0;
    for bug in Bug::ALL {
        let is_found = |seed: &u64| {
            let violations = fault_run::run(*seed, size, Some(bug)).violations;
            violations.iter().any(|violation| violation.checker == bug.found_by())
        };
        let after = match (0..PLANTED_SEEDS_MAX).find(is_found) {
            Some(seed) => (seed + 1).to_string(),
            None => {
                missed += 1;
                format!("not in {PLANTED_SEEDS_MAX}")
            }
        };
        println!("| {} | {} | {after} |", bug.description(), bug.found_by());
    }
    if missed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
