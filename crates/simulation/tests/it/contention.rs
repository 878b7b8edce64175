//! Contention: several processes on one container work on the same instances.
//! One process is cut off for longer than its locks and then goes on, all
//! processes take turns of one workflow, or a workflow ends each process in turn.
//!
//! Checked are the audit and every single write (`fences`): most such races end
//! well by luck, so the end alone proves little.

use std::time::Duration;

use duroxide_cdb::CommitTier;

use crate::activity_log::ActivityLog;
use crate::fault::Fault;
use crate::fault_plan::{FaultPlan, RandomFaults};
use crate::fences;
use crate::network::Role;
use crate::process::{Settings, Slot, worker};
use crate::scenarios::{CROWDED, DEADLY, Scenario, WIDE_FAN, by_name};
use crate::single_faults::user;
use crate::world;

/// A run that takes longer hangs: a few locks expire one after the other, and a
/// reconciler runs.
const TIME: Duration = Duration::from_secs(240);

/// A killed process is restarted after this time.
const RESTART_AFTER: Duration = Duration::from_millis(300);

/// Longer than a lock, and over while another process works on the instance.
const CUT_OFF: Duration = Duration::from_secs(7);

/// Long enough for the reconciler of another process to finish the work.
const CUT_OFF_LONG: Duration = Duration::from_secs(16);

/// The longest that a request of a crowd takes: several turns of one instance
/// are under way at once.
const LATENCY_MS: u64 = 40;

/// Runs of a crowd. In each, dozens of turns meet.
const CROWDS: u64 = 12;

/// Attempts before a message counts as poison.
const ATTEMPTS_MAX: u32 = 3;

/// One run: the scenario, its processes and its faults.
struct Case {
    scenario: Scenario,
    processes: usize,
    settings: Settings,
    /// Decides every other random choice.
    seed: u64,
    plan: FaultPlan,
    /// How often an activity may run again, kills aside.
    again: u32,
    kills_max: u32,
}

impl Case {
    fn of(scenario: Scenario, plan: FaultPlan) -> Self {
        let settings = Settings::default();
        Case { scenario, processes: 2, settings, seed: 1, plan, again: 0, kills_max: 0 }
    }
}

struct Outcome {
    /// The sender of each request that can fail.
    requests: Vec<Role>,
    /// Numbers of the requests that unpack a bundle.
    unpacking: Vec<u64>,
    kills: u32,
    problems: Vec<String>,
}

fn run(case: Case) -> Outcome {
    let Case { scenario, processes, settings, seed, plan, again, kills_max } = case;
    world::simulate(seed, 1, move |world| {
        let activity_log = ActivityLog::default();
        for _ in 0..processes {
            world.add_host(
                Role::Worker,
                0,
                RESTART_AFTER,
                worker(settings.clone(), activity_log.clone(), &Slot::empty()),
            );
        }
        let (counted, result) = (Slot::empty(), Slot::empty());
        world.add_host(
            Role::User,
            0,
            RESTART_AFTER,
            user(scenario, plan, again, &activity_log, &counted, &result),
        );
        world.run(TIME, |world| result.is_full() || world.network().kills() > kills_max);
        let network = world.network();
        let hangs = || vec![format!("it hangs; activities ran: {:?}", activity_log.runs())];
        let mut problems = result.take().unwrap_or_else(hangs);
        problems.extend(fences::check(&network.served_in_order()));
        let unpacking = network.batches_of("w:");
        let requests = counted.take().unwrap_or_default();
        Outcome { requests, unpacking, kills: network.kills(), problems }
    })
}

/// Cuts one process off at each of its requests that are chosen, one per run.
fn cut_off(scenario: Scenario, time: Duration, is_chosen: impl Fn(&Outcome, u64) -> bool) {
    let calm = run(Case::of(scenario, FaultPlan::None));
    assert_eq!(calm.problems, [""; 0], "{scenario:?} without faults");
    let (mut runs, mut failed) = (0, Vec::new());
    for (index, role) in (0..).zip(&calm.requests) {
        if *role != Role::Worker || !is_chosen(&calm, index) {
            continue;
        }
        runs += 1;
        let plan = FaultPlan::one(Some((index, Fault::CutOff(time))));
        let outcome = run(Case { again: 1, ..Case::of(scenario, plan) });
        if !outcome.problems.is_empty() {
            failed.push(format!("request {index}:\n  {}", outcome.problems.join("\n  ")));
        }
    }
    assert!(runs > 0, "{scenario:?}: no process was cut off");
    assert!(failed.is_empty(), "{scenario:?}: {} of {runs} runs fail: {}", failed.len(), failed.join("\n"));
}

#[test]
fn a_process_that_was_cut_off_in_a_chain_overwrites_nothing() {
    cut_off(by_name("chain"), CUT_OFF, |_, _| true);
}

#[test]
fn a_process_that_was_cut_off_cannot_complete_an_activity_of_another() {
    cut_off(by_name("slow"), CUT_OFF, |_, _| true);
}

#[test]
fn a_process_that_was_cut_off_from_a_queue_overwrites_nothing() {
    cut_off(by_name("inbox"), CUT_OFF, |_, _| true);
}

/// The process that was cut off and the reconciler of another one both unpack.
#[test]
fn a_bundle_that_two_processes_unpack_is_unpacked_once() {
    cut_off(WIDE_FAN, CUT_OFF_LONG, |calm, index| {
        calm.unpacking.contains(&index) || calm.unpacking.contains(&(index + 1))
    });
}

/// Of several turns of one instance, those that lose leave nothing behind.
#[test]
fn turns_of_several_processes_on_one_instance_are_committed_one_by_one() {
    let mut failed = Vec::new();
    for seed in 0..CROWDS {
        let processes = 2 + usize::from(seed % 3 == 0);
        let tier = if seed % 4 == 3 { CommitTier::Optimistic } else { CommitTier::Cached };
        let settings = Settings { tier, dispatchers: 2, workers: 1, ..Settings::default() };
        let plan = FaultPlan::Random(Box::new(RandomFaults::latency_only(seed, LATENCY_MS)));
        let outcome = run(Case { processes, settings, seed, ..Case::of(CROWDED, plan) });
        if !outcome.problems.is_empty() {
            failed.push(format!("seed {seed}:\n  {}", outcome.problems.join("\n  ")));
        }
    }
    assert!(failed.is_empty(), "{} of {CROWDS} seeds fail: {}", failed.len(), failed.join("\n"));
}

/// The count of attempts survives the processes that each attempt ends. A
/// process's first attempt is not stored when no other process was there before.
#[test]
fn a_turn_that_ends_every_process_becomes_poison() {
    for processes in [1, 2] {
        for tier in [CommitTier::Durable, CommitTier::Optimistic, CommitTier::Cached] {
            let settings = Settings { tier, attempts_max: ATTEMPTS_MAX, ..Settings::default() };
            let unwritten = if tier == CommitTier::Durable { 0 } else { processes };
            let kills_max = ATTEMPTS_MAX + unwritten as u32;
            let calm = Case::of(DEADLY, FaultPlan::None);
            let outcome = run(Case { processes, settings, kills_max, ..calm });
            let (kills, problems) = (outcome.kills, outcome.problems);
            println!("{tier:?}, {processes} processes: {kills} ended");
            assert_eq!(problems, [""; 0], "{tier:?}, {processes} processes, {kills} of which ended");
            assert!((ATTEMPTS_MAX..=kills_max).contains(&kills), "{tier:?}, {processes}: {kills} ended");
        }
    }
}
