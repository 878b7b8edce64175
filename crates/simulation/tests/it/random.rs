//! Random runs: everything is drawn from a seed, so the same seed repeats a run exactly.
//!
//! A run has two phases. In the first phase requests fail, are late and overtake each
//! other, and processes are killed. No work has to be finished in this phase. In the second
//! phase nothing fails, and all workflows must end.
//!
//! A run is gentle or rough. In a gentle run no fault of a worker lasts longer than a lock,
//! so an activity runs again only after a kill. In a rough run locks expire, and an activity
//! may run any number of times.
//!
//! `SIMULATION_SEEDS=17..18 cargo test -p perihelion-simulation --test it random_faults`
//! repeats seed 17. `SIMULATION_LOG=duroxide_cdb=debug` prints what the provider logs.
//! `SIMULATION_STORY=1` prints all requests of a failing run.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use duroxide_cdb::CommitTier;

use crate::activity_log::ActivityLog;
use crate::audit::{Strictness, audit};
use crate::fault::Fault;
use crate::fault_plan::{FaultPlan, RandomFaults};
use crate::fences;
use crate::network::Role;
use crate::process::{Handoff, Settings, User, worker_program};
use crate::scenarios::{Endings, FAN_OUT, SMALL, STAGED, Scenario, wait_until_ended};
use crate::world::{self, Program, World};

/// The seeds that run by default, in two tests for two cores.
const FIRST_HALF: Range<u64> = 0..250;
const SECOND_HALF: Range<u64> = 250..500;

/// The limit of the second phase, in which all workflows must end: enough for locks to expire,
/// the reconciler to run twice, and the queues to be emptied.
const CALM_TIME_LIMIT: Duration = Duration::from_secs(300);

/// The most failing seeds whose problems are printed.
const SHOWN_SEEDS_MAX: usize = 3;

/// After this many kills no new kill is drawn; kills that are under way still happen. Fewer
/// than the attempts after which a turn or an activity is poison.
const KILLS_MAX: u32 = 20;

/// The attempts after which a turn or an activity is poison in a rough run. Many, because in
/// a rough run locks also expire during outages.
const ROUGH_ATTEMPTS_MAX: u32 = 1000;

/// The settings of a run, drawn from its seed.
#[derive(Debug)]
struct RandomRun {
    is_rough: bool,
    /// The number of physical partitions of the container.
    partitions: u32,
    /// How far each worker's clock is ahead of the server's, in milliseconds.
    clock_skew_ms: Vec<i64>,
    /// Each worker's settings.
    settings: Vec<Settings>,
    faults: RandomFaults,
    /// The limit of the first phase.
    fault_time_limit: Duration,
    /// The mean time between kills that no request causes; `None` if there are none.
    kill_interval: Option<Duration>,
    /// The time from the kill of a process to its restart.
    restart_after: Duration,
    /// Each scenario with its delay after the start of the user.
    scenarios: Vec<(Scenario, Duration)>,
    /// Draws the kills that no request causes.
    rng: fastrand::Rng,
}

/// Draws the settings of the run with this seed.
fn draw(seed: u64) -> RandomRun {
    let mut rng = fastrand::Rng::with_seed(seed);
    let is_rough = rng.u8(..3) == 0;
    let workers = rng.usize(1..=3);
    let skew_max_ms = [0, 0, 800, 60_000][rng.usize(..4)];
    let mut scenarios: Vec<(Scenario, Duration)> = Vec::new();
    for _ in 0..rng.usize(2..=5) {
        let scenario = match rng.u8(..60) {
            0 => STAGED,
            1..=3 => FAN_OUT,
            _ => SMALL[rng.usize(..SMALL.len())],
        };
        scenarios.push((scenario, Duration::from_millis(rng.u64(..6000))));
    }
    let mut faults: Vec<Fault> = Fault::RANDOM.into_iter().filter(|_| rng.bool()).collect();
    // Not in a gentle run: two outages in a row can outlast a lock.
    faults.retain(|fault| is_rough || *fault != Fault::Outage);
    let faults = RandomFaults {
        faults,
        fault_rate: 10f64.powf(-0.7 - 1.8 * rng.f64()) * if is_rough { 1.0 } else { 0.3 },
        repeat_rate: if is_rough { rng.f64() * 0.95 } else { 0.0 },
        has_worker_failed: false,
        latency_max_ms: [0, 2, 10, 40][rng.usize(..4)],
        slow_tail: if is_rough { (0.02 * rng.f64(), rng.u64(100..20_000)) } else { (0.0, 0) },
        rng: rng.fork(),
    };
    RandomRun {
        is_rough,
        partitions: if rng.u8(..4) == 0 { 3 } else { 1 },
        clock_skew_ms: (0..workers).map(|_| rng.i64(-skew_max_ms..=skew_max_ms)).collect(),
        settings: (0..workers).map(|_| draw_settings(&mut rng, is_rough)).collect(),
        faults,
        fault_time_limit: Duration::from_secs(rng.u64(5..40)),
        kill_interval: rng.bool().then(|| Duration::from_millis(rng.u64(500..15_000))),
        restart_after: Duration::from_millis(rng.u64(0..4000)),
        scenarios,
        rng,
    }
}

/// Draws the settings of one worker. On average half of the workers have the default tier
/// (`Cached`). The tiers of the workers of one container may differ.
fn draw_settings(rng: &mut fastrand::Rng, is_rough: bool) -> Settings {
    Settings {
        tier: [CommitTier::Durable, CommitTier::Optimistic, CommitTier::Cached, CommitTier::Cached]
            [rng.usize(..4)],
        dispatchers: rng.usize(1..=3),
        workers: rng.usize(1..=3),
        attempts_max: if is_rough { ROUGH_ATTEMPTS_MAX } else { KILLS_MAX + 10 },
    }
}

/// The result of a run.
#[derive(Debug, PartialEq)]
struct Outcome {
    problems: Vec<String>,
    /// The hash of all requests and answers.
    hash: u64,
    requests: u64,
    faults: u64,
    kills: u32,
    /// The virtual time of the run.
    virtual_time: Duration,
}

fn run(seed: u64) -> Outcome {
    let draw = draw(seed);
    world::simulate(seed, draw.partitions, move |world| simulate(world, draw))
}

fn simulate(world: &mut World, draw: RandomRun) -> Outcome {
    let RandomRun { faults, settings, fault_time_limit, restart_after, scenarios, mut rng, .. } = draw;
    let activity_log = ActivityLog::default();
    for (clock_skew_ms, settings) in draw.clock_skew_ms.iter().zip(settings) {
        world.add_host(
            Role::Worker,
            *clock_skew_ms,
            restart_after,
            worker_program(settings, activity_log.clone(), &Handoff::empty()),
        );
    }
    let result = Handoff::empty();
    let strictness = if draw.is_rough { Strictness::AtLeastOnce } else { Strictness::OncePlusKills };
    world.add_host(Role::User, 0, restart_after, user_program(scenarios, &activity_log, strictness, &result));
    world.network().set_plan(FaultPlan::Random(Box::new(faults)));
    let mut next_kill_at = draw.kill_interval;
    world.run(fault_time_limit, |world| {
        if let (Some(kill_at), Some(interval)) = (next_kill_at, draw.kill_interval)
            && world.elapsed() >= kill_at
        {
            next_kill_at = Some(kill_at + interval.mul_f64(0.5 + rng.f64()));
            world.kill(rng.usize(..draw.clock_skew_ms.len()));
        }
        if world.network().kills() >= KILLS_MAX {
            world.network().stop_kills();
            next_kill_at = None;
        }
        result.has_value()
    });
    world.network().set_plan(FaultPlan::None);
    world.run(CALM_TIME_LIMIT, |_| result.has_value());
    let network = world.network();
    let mut problems = result
        .take()
        .unwrap_or_else(|| vec![format!("the run hangs; activities ran: {:?}", activity_log.runs())]);
    problems.extend(fences::check(&network.served_in_order()));
    if !problems.is_empty() && std::env::var_os("SIMULATION_STORY").is_some() {
        eprintln!("{}", network.log_around(Some(0), usize::MAX / 8));
    }
    Outcome {
        problems,
        hash: network.hash(),
        requests: network.request_count(),
        faults: network.faults(),
        kills: network.kills(),
        virtual_time: world.elapsed(),
    }
}

/// The user's program: begins each scenario after its delay, waits until all workflows have
/// ended, and audits. `result` gets the problems.
fn user_program(
    scenarios: Vec<(Scenario, Duration)>,
    activity_log: &ActivityLog,
    strictness: Strictness,
    result: &Handoff<Vec<String>>,
) -> Program {
    let (activity_log, result) = (activity_log.clone(), result.clone());
    Arc::new(move |connection| {
        let (scenarios, activity_log, result) = (scenarios.clone(), activity_log.clone(), result.clone());
        Box::pin(async move {
            let user = Arc::new(User::open(connection).await);
            let mut tasks = tokio::task::JoinSet::new();
            for (number, (scenario, after)) in scenarios.into_iter().enumerate() {
                let user = Arc::clone(&user);
                tasks.spawn(async move {
                    tokio::time::sleep(after).await;
                    (scenario.run)(&user, format!("{}{number}", scenario.name)).await
                });
            }
            let (mut endings, mut problems) = (Endings::new(), Vec::new());
            while let Some(finished) = tasks.join_next().await {
                match finished {
                    Ok(Ok(more)) => endings.extend(more),
                    Ok(Err(problem)) => problems.push(problem),
                    Err(error) => problems.push(error.to_string()),
                }
            }
            wait_until_ended(&user, &endings).await;
            let kills = user.connection.transport.network.kills();
            problems.extend(audit(&user, &activity_log, &endings, strictness.extra_runs_max(kills)).await);
            result.put(problems);
        })
    })
}

/// The seeds of `SIMULATION_SEEDS`, or `default` if the variable is not set.
fn seeds_or(default: Range<u64>) -> Range<u64> {
    let Ok(text) = std::env::var("SIMULATION_SEEDS") else { return default };
    let (first, end) = text.split_once("..").expect("SIMULATION_SEEDS is written as 0..100");
    first.parse().expect("a number")..end.parse().expect("a number")
}

#[test]
fn workflows_survive_random_faults() {
    check(seeds_or(FIRST_HALF));
}

/// Does nothing if `SIMULATION_SEEDS` is set: then `workflows_survive_random_faults` runs all
/// of its seeds.
#[test]
fn workflows_survive_more_random_faults() {
    if std::env::var_os("SIMULATION_SEEDS").is_none() {
        check(SECOND_HALF);
    }
}

/// Runs each seed and prints the sums. Panics if a run has problems.
fn check(seeds: Range<u64>) {
    let began = Instant::now();
    let (mut failed, mut requests, mut faults, mut kills) = (Vec::new(), 0, 0, 0);
    let mut virtual_time = Duration::ZERO;
    for seed in seeds.clone() {
        let outcome = run(seed);
        (requests, faults) = (requests + outcome.requests, faults + outcome.faults);
        (kills, virtual_time) = (kills + outcome.kills, virtual_time + outcome.virtual_time);
        if !outcome.problems.is_empty() {
            if failed.len() < SHOWN_SEEDS_MAX {
                eprintln!("seed {seed}: {:?}\n  {}\n", draw(seed), outcome.problems.join("\n  "));
            }
            failed.push(seed);
        }
    }
    println!(
        "{:?}: {requests} requests, {faults} faults, {kills} kills, {} virtual hours, {:?}",
        seeds,
        virtual_time.as_secs() / 3600,
        began.elapsed()
    );
    assert!(
        failed.is_empty(),
        "{} seeds fail: {failed:?}; SIMULATION_SEEDS={}..{} repeats the first",
        failed.len(),
        failed[0],
        failed[0] + 1
    );
}

#[test]
fn a_seed_repeats_a_run_exactly() {
    for seed in [3, 11, 42] {
        let (first, second) = (run(seed), run(seed));
        assert!(first.requests > 100, "a run of only {} requests", first.requests);
        assert_eq!(first, second, "seed {seed}");
        assert_ne!(first.hash, run(seed + 100).hash, "another seed is another run");
    }
}
