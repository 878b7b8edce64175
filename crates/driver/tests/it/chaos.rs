//! A randomized test in one process: workers for every kind of operation, three
//! regions, random faults, and a checker for each guarantee.
//!
//! A run is determined by its seed. It uses one thread and tokio's paused clock, so
//! a failure can be replayed:
//! `CHAOS_SEEDS=17..18 cargo test -p perihelion-driver --test it chaos`. A run has
//! three phases. In the first phase there are faults. In the second phase, the
//! aftermath, the driver recovers from the faults: breakers close, and avoided regions
//! are used again. In the third phase the driver has recovered: an operation may fail
//! only because of the state of the data.

mod checks;
mod events;
mod fault_transport;
mod run_record;
mod setup;
mod workers;

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use perihelion_testkit::regions::REGIONS;

use self::checks::History;
use self::events::{Events, Mode};
use self::run_record::{AFTERMATH, RECOVERED, RunRecord, STOP};
use self::setup::{PARTITIONS, Setup, Writers};

/// The most faults of each class that one operation of a gentle run gets.
const FAULTS_PER_OPERATION_MAX: u32 = 1;

/// The length of the aftermath. It is longer than the time for which a breaker stays open, a
/// region is avoided or a request is delayed, and longer than the pause between two reads of the
/// account.
const AFTERMATH_TIME: Duration = Duration::from_secs(14);

/// The length of the third phase.
const RECOVERED_TIME: Duration = Duration::from_secs(3);

/// How long workers may take to stop. Faults have ended by then and no operation has a
/// longer timeout, so a worker that still runs after this time hangs.
const STOP_TIME: Duration = Duration::from_secs(70);

/// The most problems that are printed for a run that fails.
const PROBLEMS_SHOWN_MAX: usize = 6;

/// The parameters of a run.
#[derive(Debug, Clone, Copy)]
struct RunParameters {
    seed: u64,
    mode: Mode,
    writers: Writers,
}

/// Executes one run, and returns its history and the problems that were found.
async fn execute_run(parameters: RunParameters) -> (History, Vec<String>) {
    fastrand::seed(parameters.seed);
    let mut rng = fastrand::Rng::with_seed(parameters.seed);
    let is_gentle = parameters.mode == Mode::Gentle;
    let setup = Setup::new(parameters.writers, is_gentle.then_some(FAULTS_PER_OPERATION_MAX)).await;
    let run_record = Arc::new(RunRecord::default());
    let mut workers = workers::start(&setup, &run_record, &mut rng, !is_gentle);
    let mut events = Events {
        setup: &setup,
        run_record: &run_record,
        rng: rng.fork(),
        mode: parameters.mode,
        ranges: vec!["0".to_owned()],
        write_region: 0,
        last_write_outage: None,
        offline: BTreeSet::new(),
        log: Vec::new(),
    };
    events.execute_all().await;
    events.end_faults().await;
    run_record.phase.store(AFTERMATH, Ordering::SeqCst);
    tokio::time::sleep(AFTERMATH_TIME).await;
    run_record.phase.store(RECOVERED, Ordering::SeqCst);
    tokio::time::sleep(RECOVERED_TIME).await;
    run_record.phase.store(STOP, Ordering::SeqCst);
    let stopped = tokio::time::timeout(STOP_TIME, async {
        while let Some(worker) = workers.join_next().await {
            worker.unwrap();
        }
    });
    let has_stopped = stopped.await.is_ok();
    setup.wait_for_replication().await;
    let log = std::mem::take(&mut events.log);
    let history = collect_history(&setup, &run_record, is_gentle).await;
    let mut problems = Vec::new();
    for (document, problem) in run_record.take_problems() {
        // A late write may overwrite newer values. Then a reader may see an older value.
        if !history.has_late_write(&document) {
            problems.push(format!("{document}: {problem}"));
        }
    }
    if !has_stopped {
        problems.push("workers hang after the faults have stopped".to_owned());
    }
    for (guarantee, check) in checks::ALL {
        let mut found = Vec::new();
        check(&history, &mut found);
        problems.extend(found.into_iter().map(|problem| format!("{guarantee}: {problem}")));
    }
    if !problems.is_empty() {
        problems.truncate(PROBLEMS_SHOWN_MAX);
        problems.push(format!("events:\n  {}", log.join("\n  ")));
    }
    drop(workers);
    (history, problems)
}

async fn collect_history(setup: &Setup, run_record: &RunRecord, is_gentle: bool) -> History {
    let mut regions = Vec::new();
    for region in REGIONS {
        let mut partitions = Vec::new();
        for partition in PARTITIONS {
            partitions.push((partition, setup.read_partition(region, partition).await));
        }
        regions.push(partitions);
    }
    let mut exchanges: HashMap<u32, Vec<_>> = HashMap::new();
    for exchange in setup.fault_transport.exchanges() {
        if let Some(id) = exchange.operation {
            exchanges.entry(id).or_default().push(exchange);
        }
    }
    History {
        is_multi_write: setup.is_multi_write,
        is_gentle,
        records: run_record.records(),
        exchanges,
        floors: run_record.floors(),
        regions,
    }
}

/// Executes one run in a runtime of its own.
fn run(parameters: RunParameters) -> (History, Vec<String>) {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(execute_run(parameters))
}

/// The seeds to run: the range in `CHAOS_SEEDS` if it is set, or else `usual`.
fn seeds(usual: Range<u64>) -> Range<u64> {
    let Ok(text) = std::env::var("CHAOS_SEEDS") else { return usual };
    let (first, end) = text.split_once("..").expect("CHAOS_SEEDS is written as 0..100");
    first.parse().unwrap()..end.parse().unwrap()
}

/// Executes one run per seed, and fails if any of them has a problem.
fn check_seeds(mode: Mode, writers: Writers, usual: Range<u64>) {
    let (mut failed_seeds, mut operations) = (Vec::new(), 0);
    for seed in seeds(usual) {
        let (history, problems) = run(RunParameters { seed, mode, writers });
        operations += history.records.len();
        if !problems.is_empty() {
            eprintln!("seed {seed} ({mode:?}, {writers:?}):\n  {}\n", problems.join("\n  "));
            failed_seeds.push(seed);
        }
    }
    println!("{operations} operations");
    assert!(
        failed_seeds.is_empty(),
        "{mode:?}, {writers:?}: {} seeds fail: {failed_seeds:?}",
        failed_seeds.len()
    );
}

/// The seeds of each kind of run, unless `CHAOS_SEEDS` is set.
const USUAL_SEEDS: Range<u64> = 0..30;

#[test]
fn gentle_faults_with_one_write_region_fail_no_operation() {
    check_seeds(Mode::Gentle, Writers::OneRegion, USUAL_SEEDS);
}

#[test]
fn gentle_faults_with_many_write_regions_fail_no_operation() {
    check_seeds(Mode::Gentle, Writers::AllRegions, USUAL_SEEDS);
}

#[test]
fn gentle_faults_while_partitions_move_one_by_one_fail_no_operation() {
    check_seeds(Mode::Gentle, Writers::OneRegionPerPartition, USUAL_SEEDS);
}

#[test]
fn long_outages_while_partitions_move_one_by_one_break_no_guarantee() {
    check_seeds(Mode::Rough, Writers::OneRegionPerPartition, USUAL_SEEDS);
}

#[test]
fn long_outages_with_one_write_region_break_no_guarantee() {
    check_seeds(Mode::Rough, Writers::OneRegion, USUAL_SEEDS);
}

#[test]
fn long_outages_with_many_write_regions_break_no_guarantee() {
    check_seeds(Mode::Rough, Writers::AllRegions, USUAL_SEEDS);
}

#[test]
fn a_seed_replays_the_same_run() {
    for (mode, writers) in [(Mode::Gentle, Writers::OneRegion), (Mode::Rough, Writers::AllRegions)] {
        let parameters = RunParameters { seed: 1, mode, writers };
        let (first, second) = (checks::digest(&run(parameters).0), checks::digest(&run(parameters).0));
        assert!(first.lines().count() > 200, "the run has only {} operations", first.lines().count());
        let difference = first.lines().zip(second.lines()).position(|(first, second)| first != second);
        assert_eq!(difference, None, "{parameters:?} differs between two runs from this line on");
        assert_eq!(first.lines().count(), second.lines().count(), "one run of {parameters:?} is longer");
    }
}
