//! Several processes on one container that meet in the same instances: one is
//! cut off for longer than its locks and then goes on with what it believes, all
//! take turns on one workflow, or one after the other is ended by it.
//!
//! What must hold is what always must (`audit`), and that nobody ever wrote past
//! another (`fences`): most such races end well by chance.

use std::time::Duration;

use duroxide_cdb::CommitTier;

use crate::fault::Fault;
use crate::fences;
use crate::ledger::Ledger;
use crate::network::Role;
use crate::process::{Settings, Slot, worker};
use crate::scenarios::{CROWDED, DEADLY, Scenario, WIDE_FAN, by_name};
use crate::systematic::user;
use crate::weather::{Plan, Storm};
use crate::world;

/// A run that takes longer hangs: locks run out one after the other, and a
/// reconciler comes round.
const TIME: Duration = Duration::from_secs(240);

/// A process that ends is back after this.
const AWAY: Duration = Duration::from_millis(300);

/// Cut off for longer than a lock, and back while another is at it.
const STUCK: Duration = Duration::from_secs(7);

/// Cut off until a reconciler elsewhere has gone on with what was begun, and the
/// work is done.
const STUCK_LONG: Duration = Duration::from_secs(16);

/// How long requests of a crowd take at most: several turns of one instance are
/// under way at once.
const LATENCY_MS: u64 = 40;

/// Runs of a crowd. Each has dozens of turns that meet.
const CROWDS: u64 = 12;

/// Attempts before a message is poison.
const ATTEMPTS_MAX: u32 = 3;

/// What was run, and by whom.
struct Contest {
    scenario: Scenario,
    processes: usize,
    settings: Settings,
    /// Seeds differ in what else is drawn.
    seed: u64,
    plan: Plan,
    /// How often an activity may run again, kills aside.
    again: u32,
    kills_max: u32,
}

impl Contest {
    fn of(scenario: Scenario, plan: Plan) -> Self {
        let settings = Settings::default();
        Contest { scenario, processes: 2, settings, seed: 1, plan, again: 0, kills_max: 0 }
    }
}

struct Outcome {
    /// Who sent each of the requests that can be struck.
    requests: Vec<Role>,
    /// Requests that take a bundle apart.
    unpacking: Vec<u64>,
    kills: u32,
    problems: Vec<String>,
}

fn run(contest: Contest) -> Outcome {
    let Contest { scenario, processes, settings, seed, plan, again, kills_max } = contest;
    world::play(seed, 1, move |world| {
        let ledger = Ledger::default();
        for _ in 0..processes {
            world.add(Role::Worker, 0, AWAY, worker(settings.clone(), ledger.clone(), &Slot::empty()));
        }
        let (counted, result) = (Slot::empty(), Slot::empty());
        world.add(Role::User, 0, AWAY, user(scenario, plan, again, &ledger, &counted, &result));
        world.run(TIME, |world| result.is_full() || world.network().kills() > kills_max);
        let network = world.network();
        let hangs = || vec![format!("it hangs; the ledger has {:?}", ledger.runs())];
        let mut problems = result.take().unwrap_or_else(hangs);
        problems.extend(fences::check(&network.served_in_order()));
        let unpacking = network.batches_of("w:");
        let requests = counted.take().unwrap_or_default();
        Outcome { requests, unpacking, kills: network.kills(), problems }
    })
}

/// Cuts one process off with each of those of its requests that are chosen.
fn cut_off(scenario: Scenario, time: Duration, is_chosen: impl Fn(&Outcome, u64) -> bool) {
    let calm = run(Contest::of(scenario, Plan::Calm));
    assert_eq!(calm.problems, [""; 0], "{scenario:?} without faults");
    let (mut runs, mut failed) = (0, Vec::new());
    for (index, role) in (0..).zip(&calm.requests) {
        if *role != Role::Worker || !is_chosen(&calm, index) {
            continue;
        }
        runs += 1;
        let plan = Plan::strike(Some((index, Fault::Stuck(time))));
        let outcome = run(Contest { again: 1, ..Contest::of(scenario, plan) });
        if !outcome.problems.is_empty() {
            failed.push(format!("request {index}:\n  {}", outcome.problems.join("\n  ")));
        }
    }
    assert!(runs > 0, "{scenario:?}: nobody was cut off");
    assert!(failed.is_empty(), "{scenario:?}: {} of {runs} runs fail: {}", failed.len(), failed.join("\n"));
}

#[test]
fn a_process_that_is_cut_off_in_a_chain_does_no_harm_when_it_is_back() {
    cut_off(by_name("chain"), STUCK, |_, _| true);
}

#[test]
fn a_process_that_is_cut_off_from_a_slow_activity_does_not_complete_it_for_another() {
    cut_off(by_name("slow"), STUCK, |_, _| true);
}

#[test]
fn a_process_that_is_cut_off_from_a_queue_does_no_harm_when_it_is_back() {
    cut_off(by_name("inbox"), STUCK, |_, _| true);
}

/// Another's reconciler goes on where it was cut off, and it does so too.
#[test]
fn a_bundle_that_two_processes_unpack_is_unpacked_once() {
    cut_off(WIDE_FAN, STUCK_LONG, |calm, index| {
        calm.unpacking.contains(&index) || calm.unpacking.contains(&(index + 1))
    });
}

/// Turns of one instance in several processes: those that lose leave nothing.
#[test]
fn turns_of_several_processes_that_meet_are_committed_one_by_one() {
    let mut failed = Vec::new();
    for seed in 0..CROWDS {
        let processes = 2 + usize::from(seed % 3 == 0);
        let tier = if seed % 4 == 3 { CommitTier::Optimistic } else { CommitTier::Cached };
        let settings = Settings { tier, dispatchers: 2, workers: 1, ..Settings::default() };
        let plan = Plan::Storm(Box::new(Storm::slow(seed, LATENCY_MS)));
        let outcome = run(Contest { processes, settings, seed, ..Contest::of(CROWDED, plan) });
        if !outcome.problems.is_empty() {
            failed.push(format!("seed {seed}:\n  {}", outcome.problems.join("\n  ")));
        }
    }
    assert!(failed.is_empty(), "{} of {CROWDS} seeds fail: {}", failed.len(), failed.join("\n"));
}

/// The count of attempts survives the processes that are ended by them. The
/// first attempt of each is not written down when nobody was there before.
#[test]
fn a_turn_that_ends_every_process_is_given_up() {
    for processes in [1, 2] {
        for tier in [CommitTier::Durable, CommitTier::Optimistic, CommitTier::Cached] {
            let settings = Settings { tier, attempts_max: ATTEMPTS_MAX, ..Settings::default() };
            let unwritten = if tier == CommitTier::Durable { 0 } else { processes };
            let kills_max = ATTEMPTS_MAX + unwritten as u32;
            let calm = Contest::of(DEADLY, Plan::Calm);
            let outcome = run(Contest { processes, settings, kills_max, ..calm });
            let (kills, problems) = (outcome.kills, outcome.problems);
            println!("{tier:?}, {processes} processes: {kills} ended");
            assert_eq!(problems, [""; 0], "{tier:?}, {processes} processes, {kills} of which ended");
            assert!((ATTEMPTS_MAX..=kills_max).contains(&kills), "{tier:?}, {processes}: {kills} ended");
        }
    }
}
