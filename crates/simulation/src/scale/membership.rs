//! Membership and polls of very many processes: the request units of the hottest logical
//! partition.

use std::sync::Arc;
use std::time::Duration;

use crate::scale::programs::{WorkerSettings, Workload};
use crate::scale::{Size, measure, open_clients, open_workers};
use crate::traffic::{Kind, Traffic, Window};
use crate::world::{self, WorldOptions};

/// The most request units per second of a logical partition.
pub const HOTTEST_UNITS_MAX: f64 = 1_000.0;

/// The step of the world. With so many processes, the default step would make a run too slow.
const STEP: Duration = Duration::from_millis(5);

/// The time with work before the measurement with work.
const WARM_UP: Duration = Duration::from_secs(5);

/// The measurements without work, or with one start a second for each partition, so that polls
/// find rows.
#[derive(Debug, Clone)]
pub struct MembershipOutcome {
    /// The processes and partitions.
    pub size: Size,
    /// Starts per second; zero without work.
    pub starts_per_second: f64,
    /// The counts of the measured time.
    pub window: Window,
    /// The real time of the whole run.
    pub real_time: Duration,
}

impl MembershipOutcome {
    /// Request units per second of the hottest logical partition.
    pub fn hottest_units(&self) -> f64 {
        self.window.per_second(self.window.hottest_partition_units)
    }

    /// Request units per second of polls, of the reconciler's queries for unfinished documents, and of
    /// membership.
    pub fn overhead_units(&self) -> f64 {
        self.window.per_second(self.window.sum(&Kind::OVERHEAD).request_units)
    }

    /// Whether the limit is kept.
    pub fn is_good(&self) -> bool {
        self.hottest_units() < HOTTEST_UNITS_MAX
    }
}

/// Runs processes without work, then with a little work, and measures both for `length`.
pub fn run(size: Size, length: Duration, seed: u64) -> [MembershipOutcome; 2] {
    let begun = std::time::Instant::now();
    let traffic = Arc::new(Traffic::with_logical_partitions());
    let options = WorldOptions { step: STEP, ..size.world(&traffic) };
    let trickle = f64::from(size.partitions);
    let (quiet, busy) = world::simulate_with(seed, options, |world| {
        open_workers(world, seed, size, &WorkerSettings::for_load(0.0), &traffic);
        let quiet = measure(world, &traffic, length);
        let (load, _) = open_clients(world, seed, size.processes);
        load.set(trickle, Workload::Smallest);
        world.run(WARM_UP, |_| false);
        (quiet, measure(world, &traffic, length))
    });
    let real_time = begun.elapsed();
    [(0.0, quiet), (trickle, busy)].map(|(starts_per_second, window)| MembershipOutcome {
        size,
        starts_per_second,
        window,
        real_time,
    })
}
