//! Random runs: everything is drawn from a seed, which replays it exactly.
//!
//! A run has two phases. In the storm requests fail, are late and overtake each
//! other, and processes are killed; what was promised must hold, but nothing need
//! get done. Then all is calm, and everything must end. A gentle storm stays
//! within what a lock bears, so that an activity runs again only for a kill; a
//! rough one does not, and then only completions are counted.
//!
//! `SIMULATION_SEEDS=17..18 cargo test -p perihelion-simulation --test it seeds_draw`
//! plays a seed again; with `SIMULATION_LOG=duroxide_cdb=debug` it tells more.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use duroxide_cdb::CommitTier;

use crate::audit::{Strictness, audit};
use crate::fault::Fault;
use crate::fences;
use crate::ledger::Ledger;
use crate::network::Role;
use crate::process::{Settings, Slot, User, worker};
use crate::scenarios::{Endings, FAN_OUT, SMALL, STAGED, Scenario, ended};
use crate::weather::{Plan, Storm};
use crate::world::{self, Program, World};

/// Seeds of CI, in two parts for two cores.
const FIRST_HALF: Range<u64> = 0..250;
const SECOND_HALF: Range<u64> = 250..500;

/// After the storm everything ends within this: locks run out, the reconciler
/// comes round twice, and a queue of work is done.
const CALM: Duration = Duration::from_secs(300);

/// Failing seeds shown in full.
const SHOWN_MAX: usize = 3;

/// Kills of one run: attempts before a message is poison are above it.
const KILLS_MAX: u32 = 20;

/// Attempts in a rough run, in which locks also run out while the network does
/// not answer.
const ATTEMPTS_ROUGH: u32 = 1000;

/// What is drawn for a run.
#[derive(Debug)]
struct Draw {
    is_rough: bool,
    partitions: u32,
    /// How far each worker's dates are ahead, in milliseconds.
    ahead_ms: Vec<i64>,
    /// How each worker is set up.
    settings: Vec<Settings>,
    storm: Storm,
    storm_time: Duration,
    /// Between two kills that no request is the cause of.
    kill_every: Option<Duration>,
    away: Duration,
    scenarios: Vec<(Scenario, Duration)>,
    rng: fastrand::Rng,
}

fn draw(seed: u64) -> Draw {
    let mut rng = fastrand::Rng::with_seed(seed);
    let is_rough = rng.u8(..3) == 0;
    let workers = rng.usize(1..=3);
    let skew = [0, 0, 800, 60_000][rng.usize(..4)];
    let mut scenarios: Vec<(Scenario, Duration)> = Vec::new();
    for _ in 0..rng.usize(2..=5) {
        let scenario = match rng.u8(..60) {
            0 => STAGED,
            1..=3 => FAN_OUT,
            _ => SMALL[rng.usize(..SMALL.len())],
        };
        scenarios.push((scenario, Duration::from_millis(rng.u64(..6000))));
    }
    let mut faults: Vec<Fault> = Fault::ALL.into_iter().filter(|_| rng.bool()).collect();
    // Two in a row are longer than what is left of a lock.
    faults.retain(|fault| is_rough || *fault != Fault::Outage);
    let storm = Storm {
        faults,
        rate: 10f64.powf(-0.7 - 1.8 * rng.f64()) * if is_rough { 1.0 } else { 0.3 },
        again: if is_rough { rng.f64() * 0.95 } else { 0.0 },
        is_again: false,
        latency_ms: [0, 2, 10, 40][rng.usize(..4)],
        straggle: if is_rough { (0.02 * rng.f64(), rng.u64(100..20_000)) } else { (0.0, 0) },
        rng: rng.fork(),
    };
    Draw {
        is_rough,
        partitions: if rng.u8(..4) == 0 { 3 } else { 1 },
        ahead_ms: (0..workers).map(|_| rng.i64(-skew..=skew)).collect(),
        settings: (0..workers).map(|_| settings(&mut rng, is_rough)).collect(),
        storm,
        storm_time: Duration::from_secs(rng.u64(5..40)),
        kill_every: rng.bool().then(|| Duration::from_millis(rng.u64(500..15_000))),
        away: Duration::from_millis(rng.u64(0..4000)),
        scenarios,
        rng,
    }
}

/// Most have the default tier, and those of one container may differ.
fn settings(rng: &mut fastrand::Rng, is_rough: bool) -> Settings {
    Settings {
        tier: [CommitTier::Durable, CommitTier::Optimistic, CommitTier::Cached, CommitTier::Cached]
            [rng.usize(..4)],
        dispatchers: rng.usize(1..=3),
        workers: rng.usize(1..=3),
        attempts_max: if is_rough { ATTEMPTS_ROUGH } else { KILLS_MAX + 10 },
    }
}

/// How a run went.
#[derive(Debug, PartialEq)]
struct Outcome {
    problems: Vec<String>,
    hash: u64,
    requests: u64,
    struck: u64,
    kills: u32,
    took: Duration,
}

fn run(seed: u64) -> Outcome {
    let draw = draw(seed);
    world::play(seed, draw.partitions, move |world| play(world, draw))
}

fn play(world: &mut World, draw: Draw) -> Outcome {
    let Draw { storm, settings, storm_time, away, scenarios, mut rng, .. } = draw;
    let ledger = Ledger::default();
    for (ahead_ms, settings) in draw.ahead_ms.iter().zip(settings) {
        world.add(Role::Worker, *ahead_ms, away, worker(settings, ledger.clone(), &Slot::empty()));
    }
    let result = Slot::empty();
    let strictness = if draw.is_rough { Strictness::Completions } else { Strictness::Runs };
    world.add(Role::User, 0, away, user(scenarios, &ledger, strictness, &result));
    world.network().plan(Plan::Storm(Box::new(storm)));
    let mut next_kill = draw.kill_every;
    world.run(storm_time, |world| {
        if let (Some(at), Some(every)) = (next_kill, draw.kill_every)
            && world.elapsed() >= at
        {
            next_kill = Some(at + every.mul_f64(0.5 + rng.f64()));
            world.kill(rng.usize(..draw.ahead_ms.len()));
        }
        if world.network().kills() >= KILLS_MAX {
            world.network().spare();
            next_kill = None;
        }
        result.is_full()
    });
    world.network().plan(Plan::Calm);
    world.run(CALM, |_| result.is_full());
    let network = world.network();
    let mut problems =
        result.take().unwrap_or_else(|| vec![format!("it hangs; the ledger has {:?}", ledger.runs())]);
    problems.extend(fences::check(&network.served_in_order()));
    if !problems.is_empty() && std::env::var_os("SIMULATION_STORY").is_some() {
        eprintln!("{}", network.story(Some(0), usize::MAX / 8));
    }
    Outcome {
        problems,
        hash: network.hash(),
        requests: network.requests(),
        struck: network.struck(),
        kills: network.kills(),
        took: world.elapsed(),
    }
}

/// Plays all scenarios beside each other.
fn user(
    scenarios: Vec<(Scenario, Duration)>,
    ledger: &Ledger,
    strictness: Strictness,
    result: &Slot<Vec<String>>,
) -> Program {
    let (ledger, result) = (ledger.clone(), result.clone());
    Arc::new(move |site| {
        let (scenarios, ledger, result) = (scenarios.clone(), ledger.clone(), result.clone());
        Box::pin(async move {
            let user = Arc::new(User::open(site).await);
            let mut playing = tokio::task::JoinSet::new();
            for (place, (scenario, after)) in scenarios.into_iter().enumerate() {
                let user = Arc::clone(&user);
                playing.spawn(async move {
                    tokio::time::sleep(after).await;
                    (scenario.play)(&user, format!("{}{place}", scenario.name)).await
                });
            }
            let (mut endings, mut problems) = (Endings::new(), Vec::new());
            while let Some(played) = playing.join_next().await {
                match played {
                    Ok(Ok(more)) => endings.extend(more),
                    Ok(Err(problem)) => problems.push(problem),
                    Err(error) => problems.push(error.to_string()),
                }
            }
            ended(&user, &endings).await;
            let kills = user.site.tap.network.kills();
            problems.extend(audit(&user, &ledger, &endings, strictness.allowing(kills)).await);
            result.put(problems);
        })
    })
}

/// The seeds to play: those of CI, or those that are asked for.
fn seeds(usual: Range<u64>) -> Range<u64> {
    let Ok(text) = std::env::var("SIMULATION_SEEDS") else { return usual };
    let (first, end) = text.split_once("..").expect("SIMULATION_SEEDS is written as 0..100");
    first.parse().expect("a number")..end.parse().expect("a number")
}

#[test]
fn workflows_survive_what_seeds_draw() {
    check(seeds(FIRST_HALF));
}

/// With `SIMULATION_SEEDS` the other one plays all of them.
#[test]
fn workflows_survive_what_more_seeds_draw() {
    if std::env::var_os("SIMULATION_SEEDS").is_none() {
        check(SECOND_HALF);
    }
}

fn check(seeds: Range<u64>) {
    let began = Instant::now();
    let (mut failed, mut requests, mut struck, mut kills, mut took) = (Vec::new(), 0, 0, 0, Duration::ZERO);
    for seed in seeds.clone() {
        let outcome = run(seed);
        (requests, struck) = (requests + outcome.requests, struck + outcome.struck);
        (kills, took) = (kills + outcome.kills, took + outcome.took);
        if !outcome.problems.is_empty() {
            if failed.len() < SHOWN_MAX {
                eprintln!("seed {seed}: {:?}\n  {}\n", draw(seed), outcome.problems.join("\n  "));
            }
            failed.push(seed);
        }
    }
    println!(
        "{:?}: {requests} requests, {struck} struck, {kills} kills, {} virtual hours, {:?}",
        seeds,
        took.as_secs() / 3600,
        began.elapsed()
    );
    assert!(
        failed.is_empty(),
        "{} seeds fail: {failed:?}; SIMULATION_SEEDS={}..{} plays the first again",
        failed.len(),
        failed[0],
        failed[0] + 1
    );
}

#[test]
fn a_seed_is_one_run() {
    for seed in [3, 11, 42] {
        let (first, second) = (run(seed), run(seed));
        assert!(first.requests > 100, "a run is more than {} requests", first.requests);
        assert_eq!(first, second, "seed {seed}");
        assert_ne!(first.hash, run(seed + 100).hash, "another seed is another run");
    }
}
