//! Measurements at scale: many processes and physical partitions under load, in virtual time.
//!
//! A *cell* is a number of worker processes, a number of physical partitions and a load. The
//! workers run duroxide's runtime. Client processes stand for API servers: they run no workflows,
//! but start them at a given rate, whether or not the workers keep up. Each partition has 10,000
//! request units a second, and the engine throttles as over a socket. Requests and answers take
//! up to [`LATENCY_MAX_MS`] each. The processors of the machines are not simulated: a process has
//! as many dispatchers as its share of the load needs.

pub mod cell;
pub mod crowd;
pub mod fan_out;
pub mod idle;
pub mod membership;
pub mod page;
pub mod programs;
pub mod table;

use std::sync::Arc;
use std::time::Duration;

use crate::fault_plan::{FaultPlan, RandomFaults};
use crate::process_run::Role;
use crate::scale::programs::{Load, WorkerSettings, client_program, worker_program};
use crate::traffic::{Traffic, Window};
use crate::world::{World, WorldOptions};

/// The request units per second of a physical partition: the most that the service gives.
pub const PARTITION_UNITS: u32 = 10_000;

/// The longest delay of a request or an answer, in milliseconds. A whole round trip takes this
/// long on average.
pub const LATENCY_MAX_MS: u64 = 4;

/// The wait after the start of the processes. By then each process has read the heartbeats of all
/// others.
const SETTLE: Duration = Duration::from_secs(35);

/// The first worker creates the container. The others start after this time.
const FIRST_ALONE: Duration = Duration::from_secs(2);

/// The time that clients have to open their providers before the load begins.
const CLIENTS_OPEN: Duration = Duration::from_secs(2);

/// How long after the end of a measured window its starts may still be picked up.
const PICK_UP_LIMIT: Duration = Duration::from_secs(10);

/// The time from a kill to the restart, longer than any measurement: killed processes are not
/// restarted here.
const NO_RESTART: Duration = Duration::from_secs(365 * 24 * 3600);

/// The size of a world: its worker processes and physical partitions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// The worker processes (N).
    pub processes: u32,
    /// The physical partitions (P).
    pub partitions: u32,
    /// The request units per second of each partition.
    pub partition_units: u32,
}

impl Size {
    /// A size with [`PARTITION_UNITS`] for each partition.
    pub fn new(processes: u32, partitions: u32) -> Self {
        Size { processes, partitions, partition_units: PARTITION_UNITS }
    }

    /// The options of a world of this size, with the limit of its request units.
    pub fn world(self, traffic: &Arc<Traffic>) -> WorldOptions {
        WorldOptions {
            partitions: self.partitions,
            throughput: Some(self.partition_units.saturating_mul(self.partitions)),
            traffic: Some(Arc::clone(traffic)),
            ..WorldOptions::default()
        }
    }

    /// The request units per second of the container.
    pub fn provisioned_units(self) -> f64 {
        f64::from(self.partition_units) * f64::from(self.partitions)
    }
}

/// Starts the workers, and waits until all know each other. Returns their hosts.
fn open_workers(
    world: &mut World,
    seed: u64,
    size: Size,
    settings: &WorkerSettings,
    traffic: &Arc<Traffic>,
) -> Vec<usize> {
    world.network().set_plan(FaultPlan::Random(Box::new(RandomFaults::latency_only(seed, LATENCY_MAX_MS))));
    let mut hosts = Vec::new();
    for number in 0..size.processes {
        let program = worker_program(settings.clone(), number, Arc::clone(traffic));
        hosts.push(world.add_host(Role::Worker, 0, NO_RESTART, program));
        if number == 0 {
            world.run(FIRST_ALONE, |_| false);
        }
    }
    world.run(SETTLE, |_| false);
    hosts
}

/// Starts the clients, and waits until they have opened their providers. Returns their load,
/// which is zero at first, and their hosts.
fn open_clients(world: &mut World, seed: u64, processes: u32) -> (Load, Vec<usize>) {
    let (load, clients) = (Load::new(), client_count(processes));
    let programs = (0..clients).map(|number| client_program(&load, number, clients, seed));
    let hosts = programs.map(|program| world.add_host(Role::User, 0, NO_RESTART, program)).collect();
    world.run(CLIENTS_OPEN, |_| false);
    (load, hosts)
}

/// The number of client processes: one for eight workers.
fn client_count(processes: u32) -> u32 {
    processes.div_ceil(8)
}

/// Measures a window of this length. After it, waits until the starts of the window are picked up;
/// the load goes on meanwhile.
fn measure(world: &mut World, traffic: &Traffic, length: Duration) -> Window {
    let do_nothing = || {};
    measure_with(world, traffic, length, do_nothing)
}

/// Measures as [`measure`] does, and calls `at_end` at the end of the window, before it waits.
fn measure_with(world: &mut World, traffic: &Traffic, length: Duration, at_end: impl FnOnce()) -> Window {
    traffic.begin_window(world.elapsed());
    world.run(length, |_| false);
    let counted = traffic.stop_window(world.elapsed());
    at_end();
    if traffic.starts_waiting() > 0 {
        world.run(PICK_UP_LIMIT, |_| traffic.starts_waiting() == 0);
    }
    traffic.end_window(counted)
}
