//! A randomized test in process: workers of every kind, three regions, random
//! faults, and a checker for each guarantee.
//!
//! A run is determined by its seed. It uses one thread and tokio's paused clock, so
//! a failure can be replayed:
//! `CHAOS_SEEDS=17..18 cargo test -p perihelion-driver --test it chaos`. A run has
//! three phases: faults; an aftermath in which their traces disappear (open
//! breakers, avoided regions); and a time in which every operation must succeed.

mod checks;
mod events;
mod ledger;
mod stage;
mod tap;
mod workers;

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use perihelion_testkit::regions::REGIONS;

use self::checks::History;
use self::events::{Events, Mode};
use self::ledger::{AFTERMATH, LIVE, Ledger, STOP};
use self::stage::{PARTITIONS, Stage};

/// The faults of each class that one operation of a gentle run meets.
const RATION: u32 = 1;

/// Longer than a breaker stays open, than a region is avoided, than a late request
/// takes to arrive, and than the pause between reads of the account.
const AFTERMATH_TIME: Duration = Duration::from_secs(14);
const LIVE_TIME: Duration = Duration::from_secs(3);

/// No operation has a longer timeout. A worker that still runs then hangs.
const STOP_TIME: Duration = Duration::from_secs(70);

/// Problems shown of a run that fails.
const SHOWN_MAX: usize = 6;

/// The parameters of a run.
#[derive(Debug, Clone, Copy)]
struct Draw {
    seed: u64,
    mode: Mode,
    is_multi_write: bool,
}

/// Plays one run, and returns its history and the problems found.
async fn play(draw: Draw) -> (History, Vec<String>) {
    fastrand::seed(draw.seed);
    let mut rng = fastrand::Rng::with_seed(draw.seed);
    let is_gentle = draw.mode == Mode::Gentle;
    let stage = Stage::new(draw.is_multi_write, is_gentle.then_some(RATION)).await;
    let ledger = Arc::new(Ledger::default());
    let mut workers = workers::start(&stage, &ledger, &mut rng, !is_gentle);
    let mut events = Events {
        stage: &stage,
        ledger: &ledger,
        rng: rng.fork(),
        mode: draw.mode,
        ranges: vec!["0".to_owned()],
        write_region: 0,
        write_outage: None,
        offline: BTreeSet::new(),
        log: Vec::new(),
    };
    events.play().await;
    events.end().await;
    ledger.phase.store(AFTERMATH, Ordering::SeqCst);
    tokio::time::sleep(AFTERMATH_TIME).await;
    ledger.phase.store(LIVE, Ordering::SeqCst);
    tokio::time::sleep(LIVE_TIME).await;
    ledger.phase.store(STOP, Ordering::SeqCst);
    let stopped = tokio::time::timeout(STOP_TIME, async {
        while let Some(worker) = workers.join_next().await {
            worker.unwrap();
        }
    });
    let has_stopped = stopped.await.is_ok();
    stage.settle().await;
    let log = std::mem::take(&mut events.log);
    let history = history(&stage, &ledger, is_gentle).await;
    let about = ledger.take_problems().into_iter().filter(|(document, _)| !history.has_late_write(document));
    let mut problems: Vec<String> =
        about.map(|(document, problem)| format!("{document}: {problem}")).collect();
    if !has_stopped {
        problems.push("workers hang after the faults have stopped".to_owned());
    }
    for (sentence, check) in checks::ALL {
        let mut found = Vec::new();
        check(&history, &mut found);
        problems.extend(found.into_iter().map(|problem| format!("{sentence}: {problem}")));
    }
    if !problems.is_empty() {
        problems.truncate(SHOWN_MAX);
        problems.push(format!("events:\n  {}", log.join("\n  ")));
    }
    drop(workers);
    (history, problems)
}

async fn history(stage: &Stage, ledger: &Ledger, is_gentle: bool) -> History {
    let mut regions = Vec::new();
    for region in REGIONS {
        let mut partitions = Vec::new();
        for partition in PARTITIONS {
            partitions.push((partition, stage.look(region, partition).await));
        }
        regions.push(partitions);
    }
    let mut exchanges: HashMap<u32, Vec<_>> = HashMap::new();
    for exchange in stage.tap.exchanges() {
        if let Some(id) = exchange.operation {
            exchanges.entry(id).or_default().push(exchange);
        }
    }
    History {
        is_multi_write: stage.is_multi_write,
        is_gentle,
        records: ledger.records(),
        exchanges,
        floors: ledger.floors(),
        regions,
    }
}

/// One run in a runtime of its own.
fn run(draw: Draw) -> (History, Vec<String>) {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(play(draw))
}

/// The seeds to play: those of CI, or those of `CHAOS_SEEDS`.
fn seeds(usual: Range<u64>) -> Range<u64> {
    let Ok(text) = std::env::var("CHAOS_SEEDS") else { return usual };
    let (first, end) = text.split_once("..").expect("CHAOS_SEEDS is written as 0..100");
    first.parse().unwrap()..end.parse().unwrap()
}

fn check(mode: Mode, is_multi_write: bool, usual: Range<u64>) {
    let (mut failed, mut operations) = (Vec::new(), 0);
    for seed in seeds(usual) {
        let (history, problems) = run(Draw { seed, mode, is_multi_write });
        operations += history.records.len();
        if !problems.is_empty() {
            eprintln!("seed {seed} ({mode:?}, multi-write {is_multi_write}):\n  {}\n", problems.join("\n  "));
            failed.push(seed);
        }
    }
    println!("{operations} operations");
    assert!(
        failed.is_empty(),
        "{mode:?}, multi-write {is_multi_write}: {} seeds fail: {failed:?}",
        failed.len()
    );
}

/// Seeds of each kind of run in CI.
const USUAL: Range<u64> = 0..30;

#[test]
fn gentle_faults_with_one_write_region_fail_no_operation() {
    check(Mode::Gentle, false, USUAL);
}

#[test]
fn gentle_faults_with_many_write_regions_fail_no_operation() {
    check(Mode::Gentle, true, USUAL);
}

#[test]
fn long_outages_with_one_write_region_break_no_guarantee() {
    check(Mode::Rough, false, USUAL);
}

#[test]
fn long_outages_with_many_write_regions_break_no_guarantee() {
    check(Mode::Rough, true, USUAL);
}

#[test]
fn a_seed_replays_the_same_run() {
    for (mode, is_multi_write) in [(Mode::Gentle, false), (Mode::Rough, true)] {
        let draw = Draw { seed: 1, mode, is_multi_write };
        let (first, second) = (checks::digest(&run(draw).0), checks::digest(&run(draw).0));
        assert!(first.lines().count() > 200, "a run is more than {} operations", first.lines().count());
        let differs = first.lines().zip(second.lines()).position(|(first, second)| first != second);
        assert_eq!(differs, None, "{draw:?} differs between two runs from this line on");
    }
}
