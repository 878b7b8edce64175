//! An event from another process must soon reach an instance that is always busy. The
//! process that runs the instance has the instance's state in memory, but it has to poll the
//! container to find the event.

use std::sync::Arc;
use std::time::Duration;

use perihelion_simulation::activity_log::ActivityLog;
use perihelion_simulation::fault_plan::{FaultPlan, RandomFaults};
use perihelion_simulation::process::{Handoff, Settings, User, worker_program};
use perihelion_simulation::process_run::Role;
use perihelion_simulation::world::{self, Program};

/// The time from the start of the workflow to the event. By then polls have become rare.
const BUSY_FOR: Duration = Duration::from_secs(4);

/// The limit from the event to the end of the workflow: polls are at most 1.95 seconds apart, and
/// a few turns may pass until a turn uses the poll's result.
const HANDLED_WITHIN: Duration = Duration::from_millis(2500);

/// The longest delay of a request or answer, in milliseconds. Short enough that turns follow
/// each other without a gap, and long enough that there are not too many turns.
const LATENCY_MAX_MS: u64 = 30;

/// The time between two reads of the user, who waits until the workflow has ended.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The limit of a run's virtual time.
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// Runs a busy workflow and returns the time from the event to the end of the workflow.
/// `None` if the workflow does not end within the limit. `dispatchers` is the number of turns
/// that a process runs at the same time.
fn event_latency(seed: u64, dispatchers: usize, processes: usize) -> Option<Duration> {
    world::simulate(seed, 1, |world| {
        let activity_log = ActivityLog::default();
        for _ in 0..processes {
            let settings = Settings { dispatchers, activity_workers: 3, ..Settings::default() };
            world.add_host(
                Role::Worker,
                0,
                Duration::ZERO,
                worker_program(settings, activity_log.clone(), &Handoff::empty()),
            );
        }
        let delays = RandomFaults::latency_only(seed, LATENCY_MAX_MS);
        world.network().set_plan(FaultPlan::Random(Box::new(delays)));
        let latency = Handoff::empty();
        world.add_host(Role::User, 0, Duration::ZERO, user_program(&latency));
        world.run(TIME_LIMIT, |_| latency.has_value());
        latency.take()
    })
}

/// The user's program: starts a busy workflow, raises the event that stops it, and waits for
/// its end. `latency` gets the time from the event to the end.
fn user_program(latency: &Handoff<Duration>) -> Program {
    let latency = latency.clone();
    Arc::new(move |connection| {
        let latency = latency.clone();
        Box::pin(async move {
            let user = User::open(connection).await;
            user.client.start_orchestration("busy", "Busy", "busy").await.expect("a started workflow");
            tokio::time::sleep(BUSY_FOR).await;
            user.client.raise_event("busy", "stop", "enough").await.expect("a raised event");
            let raised_at = tokio::time::Instant::now();
            while user.state("busy").await["status"] != "Completed" {
                tokio::time::sleep(POLL_INTERVAL).await;
            }
            latency.put(raised_at.elapsed());
        })
    })
}

#[test]
fn a_busy_instance_soon_handles_an_event_of_another_process() {
    for (dispatchers, processes) in [(1, 1), (2, 1), (2, 2)] {
        for seed in 0..2 {
            let latency = event_latency(seed, dispatchers, processes);
            let run = format!("{dispatchers} dispatchers, {processes} processes, seed {seed}: {latency:?}");
            println!("{run}");
            assert!(latency.is_some_and(|after| after <= HANDLED_WITHIN), "{run}");
        }
    }
}
