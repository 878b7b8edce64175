//! An idle cell: the requests of processes without work, and how fast they pick up a start that
//! comes now and then.

use std::sync::Arc;
use std::time::Duration;

use crate::scale::programs::{WorkerSettings, Workload};
use crate::scale::{Size, measure, open_clients, open_workers};
use crate::traffic::{Kind, Traffic, Window};
use crate::world;

/// Starts per second of the measurement of pick-ups. Starts are so rare that the container is
/// idle before most of them.
const STARTS_PER_SECOND: f64 = 0.25;

/// The time until all processes count as idle. A process counts as busy for half a minute after
/// its start. After that, the others have to read that it is no longer busy: in its heartbeat or,
/// with many processes, in the roster (the list of live processes).
const UNTIL_IDLE: Duration = Duration::from_secs(75);

/// The limit of the 99th percentile of pick-ups.
pub const PICK_UP_P99_MAX: Duration = Duration::from_millis(2500);

/// The limit of the requests per second is a sum: this for each partition, and
/// [`REQUESTS_PER_PROCESS_MAX`] for each process.
pub const REQUESTS_PER_PARTITION_MAX: f64 = 0.6;
/// See [`REQUESTS_PER_PARTITION_MAX`].
pub const REQUESTS_PER_PROCESS_MAX: f64 = 0.3;

/// The measurements of an idle cell.
#[derive(Debug, Clone)]
pub struct IdleOutcome {
    /// The processes and partitions.
    pub size: Size,
    /// The requests without any work.
    pub quiet: Window,
    /// The pick-ups, with a start now and then.
    pub trickle: Window,
    /// The real time that the run took.
    pub real_time: Duration,
}

impl IdleOutcome {
    /// Requests per second without work.
    pub fn requests_per_second(&self) -> f64 {
        self.quiet.per_second(self.quiet.sum(&Kind::ALL).requests as f64)
    }

    /// The most requests per second for this size.
    pub fn requests_per_second_max(&self) -> f64 {
        REQUESTS_PER_PARTITION_MAX * f64::from(self.size.partitions)
            + REQUESTS_PER_PROCESS_MAX * f64::from(self.size.processes)
    }

    /// The limits that the cell does not keep, in words. Empty if it keeps all.
    pub fn failures(&self) -> Vec<String> {
        let mut failures = Vec::new();
        if self.requests_per_second() > self.requests_per_second_max() {
            failures.push(format!("{:.1} requests/s", self.requests_per_second()));
        }
        match self.trickle.pick_up(0.99) {
            Some(pick_up) if pick_up < PICK_UP_P99_MAX => {}
            Some(pick_up) => failures.push(format!("pick-up p99 {} ms", pick_up.as_millis())),
            None => failures.push("pick-up p99 too late".to_owned()),
        }
        failures
    }
}

/// Runs an idle cell: without work for `quiet`, then with a start now and then for `trickle`.
pub fn run(size: Size, quiet: Duration, trickle: Duration, seed: u64) -> IdleOutcome {
    let begun = std::time::Instant::now();
    let traffic = Arc::new(Traffic::default());
    let (quiet, trickle) = world::simulate_with(seed, size.world(&traffic), |world| {
        open_workers(world, seed, size, &WorkerSettings::for_load(0.0), &traffic);
        world.run(UNTIL_IDLE, |_| false);
        let quiet = measure(world, &traffic, quiet);
        let (load, _) = open_clients(world, seed, size.processes);
        load.set(STARTS_PER_SECOND, Workload::Smallest);
        (quiet, measure(world, &traffic, trickle))
    });
    IdleOutcome { size, quiet, trickle, real_time: begun.elapsed() }
}
