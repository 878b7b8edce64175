//! Contention: several processes on one container work on the same instances.
//! In some tests one process is cut off for longer than its locks and then goes on. In one
//! test all processes run turns of the same workflows. In one test a workflow kills every
//! process that runs it.
//!
//! The tests check the final state (`audit`) and every single write (`fences`). Most such
//! races end well by luck, so the final state alone proves little.

use std::time::Duration;

use duroxide_cdb::CommitTier;

use crate::single_faults::user_program;
use perihelion_simulation::activity_log::ActivityLog;
use perihelion_simulation::fault::Fault;
use perihelion_simulation::fault_plan::{FaultPlan, RandomFaults};
use perihelion_simulation::fences;
use perihelion_simulation::process::{Handoff, Settings, worker_program};
use perihelion_simulation::process_run::Role;
use perihelion_simulation::scenarios::{CROWDED, DEADLY, Scenario, WIDE_FAN, by_name};
use perihelion_simulation::stored::BUNDLE_PREFIX;
use perihelion_simulation::world;

/// The limit of a run's virtual time: enough for a few locks to expire one after the other,
/// and for a run of the reconciler.
const TIME_LIMIT: Duration = Duration::from_secs(240);

/// The time from the kill of a process to its restart.
const RESTART_AFTER: Duration = Duration::from_millis(300);

/// How long a process is cut off: longer than a lock, and short enough that another
/// process still works on the instance.
const CUT_OFF: Duration = Duration::from_secs(7);

/// How long a process is cut off in the test of bundles: long enough for the reconciler of
/// another process to finish the work of the process.
const CUT_OFF_LONG: Duration = Duration::from_secs(16);

/// The longest delay of a request or answer in the crowded scenario, in milliseconds. It is
/// long enough for several turns of one instance to be under way at once.
const LATENCY_MAX_MS: u64 = 40;

/// The number of seeds of the crowded scenario. In each run dozens of turns are concurrent.
const CROWDED_SEEDS: u64 = 12;

/// The number of attempts after which a turn counts as poison, in the test of poison.
const ATTEMPTS_MAX: u32 = 3;

/// One run: the scenario, its processes and its faults.
struct Case {
    scenario: Scenario,
    processes: usize,
    settings: Settings,
    /// Decides all random choices except those of the fault plan.
    seed: u64,
    plan: FaultPlan,
    /// An activity may run once for each time it was scheduled, once more for each kill, and this
    /// many times more.
    extra_runs_max: u32,
    /// The run is stopped when there were more kills than this.
    kills_max: u32,
}

impl Case {
    fn of(scenario: Scenario, plan: FaultPlan) -> Self {
        let settings = Settings::default();
        Case { scenario, processes: 2, settings, seed: 1, plan, extra_runs_max: 0, kills_max: 0 }
    }
}

struct Outcome {
    /// The sender's role of each request that can fail.
    request_roles: Vec<Role>,
    /// Numbers of the requests that unpack a bundle.
    unpacking_requests: Vec<u64>,
    kills: u32,
    problems: Vec<String>,
}

fn run(case: Case) -> Outcome {
    let Case { scenario, processes, settings, seed, plan, extra_runs_max, kills_max } = case;
    world::simulate(seed, 1, move |world| {
        let activity_log = ActivityLog::default();
        for _ in 0..processes {
            world.add_host(
                Role::Worker,
                0,
                RESTART_AFTER,
                worker_program(settings.clone(), activity_log.clone(), &Handoff::empty()),
            );
        }
        let (roles, result) = (Handoff::empty(), Handoff::empty());
        world.add_host(
            Role::User,
            0,
            RESTART_AFTER,
            user_program(scenario, plan, extra_runs_max, &activity_log, &roles, &result),
        );
        world.run(TIME_LIMIT, |world| result.has_value() || world.network().kills() > kills_max);
        let network = world.network();
        let hangs = || vec![format!("the run hangs; activities ran: {:?}", activity_log.runs())];
        let mut problems = result.take().unwrap_or_else(hangs);
        problems.extend(fences::check(&network.served_in_order()));
        let unpacking_requests = network.batches_of(BUNDLE_PREFIX);
        let request_roles = roles.take().unwrap_or_default();
        Outcome { request_roles, unpacking_requests, kills: network.kills(), problems }
    })
}

/// Checks runs in which a worker is cut off. Each chosen request of a worker has a run of its
/// own, in which the sender is cut off from that request on for this time.
fn check_cut_off(scenario: Scenario, time: Duration, is_chosen: impl Fn(&Outcome, u64) -> bool) {
    let without_faults = run(Case::of(scenario, FaultPlan::None));
    assert_eq!(without_faults.problems, [""; 0], "{scenario:?} without faults");
    let (mut runs, mut failed) = (0, Vec::new());
    for (index, role) in (0..).zip(&without_faults.request_roles) {
        if *role != Role::Worker || !is_chosen(&without_faults, index) {
            continue;
        }
        runs += 1;
        let plan = FaultPlan::one(Some((index, Fault::CutOff(time))));
        let outcome = run(Case { extra_runs_max: 1, ..Case::of(scenario, plan) });
        if !outcome.problems.is_empty() {
            failed.push(format!("request {index}:\n  {}", outcome.problems.join("\n  ")));
        }
    }
    assert!(runs > 0, "{scenario:?}: no process was cut off");
    assert!(failed.is_empty(), "{scenario:?}: {} of {runs} runs fail: {}", failed.len(), failed.join("\n"));
}

#[test]
fn a_process_that_was_cut_off_in_a_chain_overwrites_nothing() {
    check_cut_off(by_name("chain"), CUT_OFF, |_, _| true);
}

#[test]
fn a_process_that_was_cut_off_cannot_complete_an_activity_of_another_process() {
    check_cut_off(by_name("slow"), CUT_OFF, |_, _| true);
}

#[test]
fn a_process_that_was_cut_off_from_a_queue_overwrites_nothing() {
    check_cut_off(by_name("inbox"), CUT_OFF, |_, _| true);
}

/// The process that was cut off and the reconciler of another process both unpack the same
/// bundle. Each activity must still be created only once. The cut begins with a request that
/// unpacks the bundle, or with the request before it.
#[test]
fn two_processes_that_unpack_one_bundle_create_no_activity_twice() {
    check_cut_off(WIDE_FAN, CUT_OFF_LONG, |without_faults, index| {
        let unpacking_requests = &without_faults.unpacking_requests;
        unpacking_requests.contains(&index) || unpacking_requests.contains(&(index + 1))
    });
}

/// Several processes run a turn of the same instance at once, and one commits. The turns of
/// the others leave no document behind.
#[test]
fn turns_of_several_processes_on_one_instance_are_committed_one_by_one() {
    let mut failed = Vec::new();
    for seed in 0..CROWDED_SEEDS {
        let processes = 2 + usize::from(seed % 3 == 0);
        let tier = if seed % 4 == 3 { CommitTier::Optimistic } else { CommitTier::Cached };
        let settings = Settings { tier, dispatchers: 2, activity_workers: 1, ..Settings::default() };
        let plan = FaultPlan::Random(Box::new(RandomFaults::latency_only(seed, LATENCY_MAX_MS)));
        let outcome = run(Case { processes, settings, seed, ..Case::of(CROWDED, plan) });
        if !outcome.problems.is_empty() {
            failed.push(format!("seed {seed}:\n  {}", outcome.problems.join("\n  ")));
        }
    }
    assert!(failed.is_empty(), "{} of {CROWDED_SEEDS} seeds fail: {}", failed.len(), failed.join("\n"));
}

/// Every attempt at the turn kills the process that makes it. The stored count of attempts
/// survives the kill. In the tiers that do not write their locks, the first attempt of each
/// process may be missing in the count.
#[test]
fn a_turn_that_kills_every_process_becomes_poison() {
    for processes in [1, 2] {
        for tier in [CommitTier::Durable, CommitTier::Optimistic, CommitTier::Cached] {
            let settings = Settings { tier, attempts_max: ATTEMPTS_MAX, ..Settings::default() };
            let uncounted_max = if tier == CommitTier::Durable { 0 } else { processes };
            let kills_max = ATTEMPTS_MAX + uncounted_max as u32;
            let default = Case::of(DEADLY, FaultPlan::None);
            let outcome = run(Case { processes, settings, kills_max, ..default });
            let (kills, problems) = (outcome.kills, outcome.problems);
            println!("{tier:?}, {processes} processes: {kills} kills");
            assert_eq!(problems, [""; 0], "{tier:?}, {processes} processes, {kills} kills");
            assert!((ATTEMPTS_MAX..=kills_max).contains(&kills), "{tier:?}, {processes}: {kills} kills");
        }
    }
}
