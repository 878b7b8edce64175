//! Small measurements at scale, with their limits. `cargo xtask sim scale` runs the large ones.
//!
//! A *cell* is a number of worker processes, a number of physical partitions and a load. The load
//! is a share of the request units that the container has.

use std::time::Duration;

use perihelion_simulation::scale::cell::{self, Cell, CellOutcome};
use perihelion_simulation::scale::programs::Workload;
use perihelion_simulation::scale::{Size, crowd, fan_out, idle, page};
use perihelion_simulation::traffic::{Kind, Window};

/// The virtual time that a cell is measured for.
const LENGTH: Duration = Duration::from_secs(6);

/// The approximate request units of the smallest workflow when another process starts it.
const WORKFLOW_UNITS: f64 = 66.0;

/// The seed of every run.
const SEED: u64 = 1;

/// One worker process and one physical partition.
fn smallest_size() -> Size {
    let (processes, partitions) = (1, 1);
    Size::new(processes, partitions)
}

/// Runs a cell, and prints its outcome.
fn run(size: Size, load: f64, workload: Workload) -> CellOutcome {
    let outcome = cell::run(Cell { size, load, workload, workflow_units: WORKFLOW_UNITS }, LENGTH, SEED);
    println!("{}", perihelion_simulation::scale::table::cell_row(&outcome));
    outcome
}

#[test]
fn one_process_keeps_all_limits() {
    let load = 0.2;
    let outcome = run(smallest_size(), load, Workload::Smallest);
    assert_eq!(outcome.failures(), [""; 0]);
    let window = &outcome.window;
    for kind in [Kind::Membership, Kind::Start, Kind::Work] {
        assert!(window.of(kind).request_units > 0.0, "{kind:?} costs nothing");
    }
    let polls = window.sum(&[Kind::SlicePoll, Kind::RangePoll]);
    assert!(polls.request_units > 0.0, "polls cost nothing");
    assert_eq!(window.starts_waiting, 0, "some starts were not picked up");
    assert_eq!(window.pick_ups.len() as u64, window.starts);
    let units = window.sum(&[Kind::Start, Kind::Work]).request_units / window.completions as f64;
    assert!((units - WORKFLOW_UNITS).abs() < 6.0, "a workflow costs {units:.1} RU");
}

/// Pick-ups of several processes are measured by `cargo xtask sim scale` only.
#[test]
fn two_processes_lose_few_commits_and_poll_little() {
    let (processes, partitions, load) = (2, 2, 0.1);
    let outcome = run(Size::new(processes, partitions), load, Workload::Mix);
    let overhead_share = outcome.overhead_share_of_spent();
    assert!(overhead_share <= cell::OVERHEAD_SHARE_MAX, "{overhead_share}");
    assert!(outcome.lost_share() <= cell::LOST_SHARE_MAX, "{}", outcome.lost_share());
    assert!(outcome.throughput_share() >= 0.85, "{}", outcome.throughput_share());
}

/// When the load rises, processes that were idle do not ask each other for help at once. Help makes
/// slices shared, and that costs: the first turn of an instance in a shared slice needs a durable
/// lock.
#[test]
fn a_sudden_load_costs_no_more_than_a_steady_one() {
    let (processes, partitions, load) = (2, 2, 0.2);
    let outcome = run(Size::new(processes, partitions), load, Workload::Smallest);
    assert_eq!(outcome.failures(), [""; 0]);
    let window = &outcome.window;
    let units = window.sum(&[Kind::Start, Kind::Work]).request_units / window.completions as f64;
    assert!((units - WORKFLOW_UNITS).abs() < 4.0, "a workflow costs {units:.1} RU");
}

/// The limits can fail: with more load than the partition has request units, requests are
/// throttled and workflows wait.
#[test]
fn an_overloaded_cell_is_throttled_and_breaks_its_limits() {
    let (partition_units, load) = (1_000, 1.8);
    let outcome = run(Size { partition_units, ..smallest_size() }, load, Workload::Smallest);
    let all = outcome.window.sum(&Kind::ALL);
    assert!(all.throttles > 0, "nothing was throttled");
    let provisioned = outcome.cell.size.provisioned_units();
    // A request is refused when the units of its second are spent. Those that are under way by
    // then are served.
    let spent_max = 1.6 * provisioned * LENGTH.as_secs_f64();
    assert!(all.request_units <= spent_max, "{} RU", all.request_units);
    let failures = outcome.failures().join("; ");
    assert!(failures.contains("pick-up p99") && failures.contains("throughput"), "{failures}");
}

#[test]
fn one_idle_process_keeps_all_limits() {
    let without_starts = Duration::from_secs(60);
    let with_rare_starts = Duration::from_secs(120);
    let outcome = idle::run(smallest_size(), without_starts, with_rare_starts, SEED);
    assert_eq!(outcome.failures(), [""; 0]);
    assert!(outcome.requests_per_second() > 0.1, "an idle process does not poll");
    assert!(outcome.trickle.starts > 10, "{} starts", outcome.trickle.starts);
}

#[test]
fn ended_and_sleeping_instances_cost_an_idle_process_nothing() {
    let (ended, sleeping, partitions) = (60, 30, 1);
    let outcome = crowd::run(ended, sleeping, partitions, Duration::from_secs(40), SEED);
    assert!(outcome.ended >= ended && outcome.sleeping >= sleeping, "{outcome:?}");
    assert!(outcome.is_good(), "{:?}", outcome.ratios());
    // A crowd with too few instances proves nothing.
    assert!(!crowd::CrowdOutcome { ended: ended - 1, ..outcome.clone() }.is_good());
    assert!(!crowd::CrowdOutcome { sleeping: sleeping - 1, ..outcome }.is_good());
}

#[test]
fn helpers_leave_the_turns_of_a_fan_out_to_one_process() {
    let (processes, partitions, activities) = (4, 1, 600);
    let outcome = fan_out::run(Size::new(processes, partitions), activities, SEED);
    println!("{}", perihelion_simulation::scale::table::fan_out(&outcome));
    assert!(outcome.took.is_some() && outcome.reruns() == 0);
    assert!(outcome.runs.iter().all(|runs| *runs > 0), "a process ran no activity: {:?}", outcome.runs);
    // A poll finds completions from all processes, and one turn takes all that the poll has found.
    assert!(outcome.turns <= 200, "{} turns for {activities} activities", outcome.turns);
}

/// Each helper begins at its own part of the backlog. When all helpers began with the oldest
/// activity, there were 3.3 lost writes for each activity; now there are 0.9.
#[test]
fn helpers_of_a_fan_out_lose_few_writes() {
    let (processes, partitions, activities) = (8, 1, 800);
    let outcome = fan_out::run(Size::new(processes, partitions), activities, SEED);
    println!("{}", perihelion_simulation::scale::table::fan_out(&outcome));
    assert!(outcome.took.is_some() && outcome.reruns() == 0);
    let lost = outcome.window.lost_writes as f64 / outcome.width as f64;
    assert!(lost <= 1.5, "{lost:.2} lost writes for each activity");
}

#[test]
fn every_activity_of_a_fan_out_runs_once() {
    let (processes, partitions, activities) = (2, 1, 60);
    let outcome = fan_out::run(Size::new(processes, partitions), activities, SEED);
    assert!(outcome.took.is_some(), "the fan-out did not end");
    assert_eq!(outcome.runs.iter().sum::<u64>(), activities, "{:?}", outcome.runs);
}

/// Story of two bugs: a new measurement was appended instead of replacing the old one, because its title
/// had another number. And a new measurement of idle processes deleted the text below the table, which
/// was written by hand.
#[test]
fn a_new_measurement_replaces_the_old_one_and_nothing_that_was_written_by_hand() {
    let old = "# Page\n\nBy hand.\n\n## Idle\n\nOld limits.\n\n| N |\n|--:|\n| 1 |\n\nBelow.\n\n### Real\n\n\
               | N |\n|--:|\n| 2 |\n\n## A crowd\n\nOld crowd.\n\nBelow.\n";
    let page = page::with_section(old, "Idle", "Limits.\n\n| N |\n|--:|\n| 3 |\n| 4 |\n");
    let page = page::with_section(&page, "A crowd", "Crowd.\n");
    let expected = old.replace("Old limits", "Limits").replace("| 1 |", "| 3 |\n| 4 |");
    assert_eq!(page, expected.replace("Old crowd", "Crowd"));
    let page = page::with_section("# Page\n", "Idle", "Limits.\n");
    assert_eq!(page, "# Page\n\n## Idle\n\nLimits.\n");
    assert_eq!(page::with_section(&page, "Idle", "Limits.\n"), page);
}

#[test]
fn starts_that_were_not_picked_up_count_as_the_latest() {
    let mut window = Window::default();
    window.pick_ups = [10, 20, 30].map(Duration::from_millis).to_vec();
    window.starts_waiting = 1;
    assert_eq!(window.pick_up(0.5), Some(Duration::from_millis(20)));
    assert_eq!(window.pick_up(0.75), Some(Duration::from_millis(30)));
    assert_eq!(window.pick_up(0.99), None);
    assert_eq!(Window::default().pick_up(0.5), None);
}
