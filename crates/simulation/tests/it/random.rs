//! Fault runs: everything is drawn from a seed, so the same seed repeats a run exactly in a new
//! process (`fault_run`). The checkers must find no violation, and must find each planted bug.
//!
//! `SIMULATION_SEEDS=17..18 cargo test -p perihelion-simulation --test it random_faults`
//! repeats seed 17 in full size, and `cargo xtask sim faults --seed 1700 --quick` a seed of the
//! smaller runs. `SIMULATION_LOG=duroxide_cdb=debug` prints what the provider logs.
//! `SIMULATION_STORY=1` prints all requests of a failing run.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::{Duration, Instant};

use perihelion_simulation::checkers;
use perihelion_simulation::fault_run::draw::Size;
use perihelion_simulation::fault_run::run;
use perihelion_simulation::planted::Bug;

/// The seeds that run by default: 2,000 in four tests, so that two cores share them. Each test takes
/// 60 to 90 seconds with the development profile. `cargo xtask sim faults` runs ten times as many
/// in the same time, optimised.
const FULL_SEEDS: [Range<u64>; 2] = [0..250, 250..500];
const QUICK_SEEDS: [Range<u64>; 2] = [500..1250, 1250..2000];

/// A planted bug must be found within this many seeds.
const PLANTED_SEEDS_MAX: u64 = 40;

/// The most failing seeds whose violations are printed.
const SHOWN_SEEDS_MAX: usize = 3;

/// The seeds of `SIMULATION_SEEDS`, or `default` if the variable is not set.
fn seeds_or(default: Range<u64>) -> Range<u64> {
    let Ok(text) = std::env::var("SIMULATION_SEEDS") else { return default };
    let (first, end) = text.split_once("..").expect("SIMULATION_SEEDS is written as 0..100");
    first.parse().expect("a number")..end.parse().expect("a number")
}

#[test]
fn workflows_survive_random_faults() {
    check(seeds_or(FULL_SEEDS[0].clone()), Size::Full);
}

#[test]
fn workflows_survive_more_random_faults() {
    check_unless_seeds_are_set(FULL_SEEDS[1].clone(), Size::Full);
}

#[test]
fn workflows_survive_faults_of_smaller_runs() {
    check_unless_seeds_are_set(QUICK_SEEDS[0].clone(), Size::Quick);
}

#[test]
fn workflows_survive_faults_of_more_smaller_runs() {
    check_unless_seeds_are_set(QUICK_SEEDS[1].clone(), Size::Quick);
}

/// Does nothing if `SIMULATION_SEEDS` is set: then `workflows_survive_random_faults` runs all
/// of its seeds.
fn check_unless_seeds_are_set(seeds: Range<u64>, size: Size) {
    if std::env::var_os("SIMULATION_SEEDS").is_none() {
        check(seeds, size);
    }
}

/// Runs each seed and prints the sums. Panics if a run has violations.
fn check(seeds: Range<u64>, size: Size) {
    let began = Instant::now();
    let (mut failed, mut faults) = (Vec::new(), BTreeMap::<&str, u64>::new());
    let (mut requests, mut workflow_time) = (0, Duration::ZERO);
    for seed in seeds.clone() {
        let outcome = run(seed, size, None);
        requests += outcome.requests;
        workflow_time += outcome.workflow_time;
        outcome.faults.into_iter().for_each(|(name, count)| *faults.entry(name).or_default() += count);
        if !outcome.violations.is_empty() {
            if failed.len() < SHOWN_SEEDS_MAX {
                eprintln!("seed {seed}: {:#?}", outcome.violations);
            }
            failed.push(seed);
        }
    }
    println!(
        "{seeds:?}: {requests} requests, {:.1} workflow-hours, {:?}\n{faults:#?}",
        workflow_time.as_secs_f64() / 3600.0,
        began.elapsed()
    );
    assert!(
        failed.is_empty(),
        "{} seeds of size {size:?} fail: {failed:?}; cargo xtask sim faults --seed {} (with --quick for the \
         size Quick) repeats the first",
        failed.len(),
        failed[0]
    );
}

/// The environment variable with the seed that the child process runs.
const CHILD_SEED: &str = "SIMULATION_CHILD_SEED";

/// Runs a seed in a new process, and returns its outcome as text.
fn outcome_in_new_process(seed: u64) -> String {
    let output = std::process::Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "random::child_process_prints_an_outcome", "--ignored", "--nocapture"])
        .env(CHILD_SEED, seed.to_string())
        .output()
        .expect("a child process");
    assert!(output.status.success(), "seed {seed}: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text.lines().find(|line| line.contains("Outcome {"));
    line.unwrap_or_else(|| panic!("no outcome in {text}")).to_owned()
}

#[test]
#[ignore = "the child process of another test"]
fn child_process_prints_an_outcome() {
    let seed = std::env::var(CHILD_SEED).expect("the parent sets the seed");
    let outcome = run(seed.parse().expect("a seed"), Size::Full, None);
    assert!(outcome.requests > 100, "a run of only {} requests", outcome.requests);
    println!("{outcome:?}");
}

/// Each run has a new process. When several branches of tokio's `select!` are ready, their order
/// is random, with a seed that depends on how many runtimes the process has had before. So a
/// seed repeats a run exactly as the first run of a process, as `sim faults --seed` makes it.
#[test]
fn a_seed_repeats_a_run_exactly_in_a_new_process() {
    let outcomes = [3, 11, 42].map(|seed| {
        let first = outcome_in_new_process(seed);
        assert_eq!(first, outcome_in_new_process(seed), "seed {seed}");
        first
    });
    assert_ne!(outcomes[0], outcomes[1], "another seed is another run");
}

/// Plants a bug and runs quick seeds until the bug's checker finds it. Without a planted bug, runs
/// of the same size have no violations: `workflows_survive_faults_of_smaller_runs` proves it.
fn check_planted(bug: Bug) {
    let is_found = |seed: u64| {
        let violations = run(seed, Size::Quick, Some(bug)).violations;
        violations.iter().any(|violation| violation.checker == bug.found_by())
    };
    assert!((0..PLANTED_SEEDS_MAX).any(is_found), "{} does not find {bug:?}", bug.found_by());
}

/// Makes a test for each planted bug, and the list `COVERED`.
macro_rules! planted {
    ($($test:ident: $bug:ident,)*) => {
        const COVERED: &[Bug] = &[$(Bug::$bug),*];
        $(#[test]
        fn $test() {
            check_planted(Bug::$bug);
        })*
    };
}

planted! {
    a_lost_message_is_found: LostMessage,
    a_completion_that_is_counted_twice_is_found: CompletionCountedTwice,
    a_process_that_takes_held_locks_is_found: DatesAhead,
    a_run_without_a_lock_is_found: RunWithoutLock,
    a_commit_without_a_condition_is_found: UnfencedCommit,
    a_write_of_an_activity_without_a_condition_is_found: UnfencedActivity,
    an_outbox_that_stays_is_found: OutboxKept,
    a_message_that_stays_is_found: MessageKept,
    a_resurrected_instance_is_found: StateResurrected,
    a_tree_that_is_deleted_in_part_is_found: TombstoneLost,
    a_write_of_a_session_without_a_condition_is_found: UnfencedSession,
    a_patch_of_a_message_without_its_fence_is_found: UnfencedMessage,
    a_delete_without_its_fence_is_found: UnfencedDelete,
    a_lock_that_stays_in_memory_is_found: TurnKept,
    an_old_process_that_is_overlooked_is_found: OldProcessOverlooked,
}

#[test]
fn every_checker_and_every_planted_bug_has_its_test() {
    assert_eq!(Bug::ALL, *COVERED);
    for (checker, _) in checkers::ALL {
        assert!(Bug::ALL.iter().any(|bug| bug.found_by() == checker), "no bug is planted for {checker}");
    }
}
