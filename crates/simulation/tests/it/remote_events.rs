//! An event from another process reaches an instance that is always busy. The
//! process that runs the instance has its state in memory, and still has to read the
//! partition to find the event.

use std::sync::Arc;
use std::time::Duration;

use crate::activity_log::ActivityLog;
use crate::fault_plan::{FaultPlan, RandomFaults};
use crate::network::Role;
use crate::process::{Settings, Slot, User, worker};
use crate::world::{self, Program};

/// The event is raised after this time: polls have become rare by then.
const BUSY_FOR: Duration = Duration::from_secs(4);

/// The event must be handled within this: a poll runs every 1.8 seconds, and a few
/// turns may pass until one reads its result.
const HANDLED_WITHIN: Duration = Duration::from_millis(2500);

/// The longest delay of a request or answer in milliseconds: turns follow each other without
/// a gap, and there are not too many.
const LATENCY_MS: u64 = 30;

/// How often the user checks whether the event was handled.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The time limit of a run.
const TIME: Duration = Duration::from_secs(60);

/// The time from raising an event to the end of the workflow that waits for it; `None` if it
/// does not end in time. `workers` is the number of processes.
fn event_latency(seed: u64, dispatchers: usize, workers: usize) -> Option<Duration> {
    world::simulate(seed, 1, |world| {
        let activity_log = ActivityLog::default();
        for _ in 0..workers {
            let settings = Settings { dispatchers, workers: 3, ..Settings::default() };
            world.add_host(
                Role::Worker,
                0,
                Duration::ZERO,
                worker(settings, activity_log.clone(), &Slot::empty()),
            );
        }
        world.network().plan(FaultPlan::Random(Box::new(RandomFaults::latency_only(seed, LATENCY_MS))));
        let latency = Slot::empty();
        world.add_host(Role::User, 0, Duration::ZERO, user(&latency));
        world.run(TIME, |_| latency.is_full());
        latency.take()
    })
}

/// Starts a busy workflow, raises the event that stops it, and waits for its end.
fn user(latency: &Slot<Duration>) -> Program {
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
fn a_busy_instance_handles_an_event_of_another_process() {
    for (dispatchers, workers) in [(1, 1), (2, 1), (2, 2)] {
        for seed in 0..2 {
            let latency = event_latency(seed, dispatchers, workers);
            let run = format!("{dispatchers} dispatchers, {workers} processes, seed {seed}: {latency:?}");
            println!("{run}");
            assert!(latency.is_some_and(|after| after <= HANDLED_WITHIN), "{run}");
        }
    }
}
