//! A crowd: the cost of an idle process in a container with very many ended and sleeping instances,
//! compared with an empty container.

mod copies;

use std::sync::Arc;
use std::time::Duration;

use copies::{Copies, copy_program};

use crate::process::Handoff;
use crate::process_run::Role;
use crate::scale::programs::{WorkerSettings, Workload, worker_program};
use crate::scale::{NO_RESTART, Size, measure, open_clients, open_workers};
use crate::traffic::{Kind, Traffic, Window};
use crate::world::{self, World, WorldOptions};

/// Starts per second while the container is filled.
const FILL_STARTS_PER_SECOND: f64 = 2_000.0;

/// The most workflows of each kind that really run. Their documents are copied for the others.
const REAL_MAX: u64 = 50;

/// The most virtual time for the copies.
const COPIED_WITHIN: Duration = Duration::from_secs(3600);

/// The processes that fill the container.
const FILLERS: u32 = 4;

/// The time after the filling processes were killed at which the idle process starts: their
/// heartbeats have expired by then.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(60);

/// The time from the start of the idle process to the measurement.
const SETTLE: Duration = Duration::from_secs(30);

/// The longest wait for the last workflows of the filling.
const FILL_REST: Duration = Duration::from_secs(30);

/// The most that an idle process may cost with the crowd, as a multiple of its cost without.
pub const RATIO_MAX: f64 = 1.05;

/// The measurements of both containers.
#[derive(Debug, Clone)]
pub struct CrowdOutcome {
    /// How many ended instances [`run`] was asked for.
    pub wanted_ended: u64,
    /// How many sleeping instances [`run`] was asked for.
    pub wanted_sleeping: u64,
    /// How many ended instances the container had.
    pub ended: u64,
    /// How many sleeping instances the container had, each with a pending timer.
    pub sleeping: u64,
    /// The requests of an idle process in an empty container.
    pub empty: Window,
    /// The requests of an idle process in a container with the crowd.
    pub crowded: Window,
    /// The real time that both runs took.
    pub real_time: Duration,
}

impl CrowdOutcome {
    /// Requests and request units with the crowd, each as a multiple of those without.
    pub fn ratios(&self) -> (f64, f64) {
        let (empty, crowded) = (self.empty.sum(&Kind::ALL), self.crowded.sum(&Kind::ALL));
        let requests = crowded.requests as f64 / (empty.requests as f64).max(1.0);
        (requests, crowded.request_units / empty.request_units.max(f64::MIN_POSITIVE))
    }

    /// Whether the whole crowd was there, and an idle process costs at most [`RATIO_MAX`] times as
    /// much with it.
    pub fn is_good(&self) -> bool {
        let is_whole = self.ended >= self.wanted_ended && self.sleeping >= self.wanted_sleeping;
        let (requests, units) = self.ratios();
        is_whole && requests <= RATIO_MAX && units <= RATIO_MAX
    }
}

/// Fills a container with at least these numbers of ended and sleeping instances, and measures one
/// idle process for `length`, with and without the crowd.
pub fn run(ended: u64, sleeping: u64, partitions: u32, length: Duration, seed: u64) -> CrowdOutcome {
    let begun = std::time::Instant::now();
    let (_, _, empty) = idle_with(0, 0, partitions, length, seed);
    let (wanted_ended, wanted_sleeping) = (ended, sleeping);
    let (ended, sleeping, crowded) = idle_with(ended, sleeping, partitions, length, seed);
    let real_time = begun.elapsed();
    CrowdOutcome { wanted_ended, wanted_sleeping, ended, sleeping, empty, crowded, real_time }
}

/// Fills a container and measures one idle process in it. Returns the number of ended instances,
/// the number of sleeping instances, and the requests of the idle process.
fn idle_with(ended: u64, sleeping: u64, partitions: u32, length: Duration, seed: u64) -> (u64, u64, Window) {
    let traffic = Arc::new(Traffic::default());
    let size = Size::new(FILLERS, partitions);
    // No limit of request units: filling the container is not measured.
    let options = WorldOptions { throughput: None, ..size.world(&traffic) };
    world::simulate_with(seed, options, |world| {
        let settings = WorkerSettings::for_load(FILL_STARTS_PER_SECOND / f64::from(FILLERS));
        let mut hosts = open_workers(world, seed, size, &settings, &traffic);
        let (load, clients) = open_clients(world, seed, FILLERS);
        hosts.extend(clients);
        let mut counts = [0, 0];
        let kinds = [(ended, Workload::Smallest), (sleeping, Workload::Sleeping)];
        for (count, (wanted, workload)) in counts.iter_mut().zip(kinds) {
            let wanted = wanted.min(REAL_MAX);
            traffic.begin_window(world.elapsed());
            if wanted > 0 {
                load.set(FILL_STARTS_PER_SECOND, workload);
                let time_limit = Duration::from_secs_f64(2.0 * wanted as f64 / FILL_STARTS_PER_SECOND + 60.0);
                world.run(time_limit, |_| traffic.starts() >= wanted);
                load.set(0.0, workload);
                world.run(FILL_REST, |_| traffic.starts_waiting() == 0);
                // The first turn of each workflow has run. Now the workflows end, or store their timers.
                world.run(Duration::from_secs(2), |_| false);
            }
            *count = traffic.stop_window(world.elapsed()).starts;
        }
        for host in hosts {
            world.kill(host);
        }
        let [real_ended, real_sleeping] = counts;
        let copies = vec![
            Copies {
                orchestration: "Smallest",
                status: "Completed",
                count: ended.saturating_sub(real_ended),
            },
            Copies {
                orchestration: "Sleep",
                status: "Running",
                count: sleeping.saturating_sub(real_sleeping),
            },
        ];
        let copied = copy(world, copies);
        counts.iter_mut().zip(copied).for_each(|(count, copied)| *count += copied);
        world.run(FORGOTTEN_AFTER, |_| false);
        (counts[0], counts[1], measure_idle(world, &traffic, length))
    })
}

/// Makes the copies. Returns how many were made of each kind.
fn copy(world: &mut World, copies: Vec<Copies>) -> Vec<u64> {
    if copies.iter().all(|copies| copies.count == 0) {
        return Vec::new();
    }
    let copied = Handoff::empty();
    let host = world.add_host(Role::User, 0, NO_RESTART, copy_program(copies, &copied));
    world.run(COPIED_WITHIN, |_| copied.has_value());
    world.kill(host);
    match copied.take() {
        Some(Ok(counts)) => counts,
        Some(Err(error)) => {
            eprintln!("the crowd was not copied: {error}");
            Vec::new()
        }
        None => {
            eprintln!("the crowd was not copied within {COPIED_WITHIN:?}");
            Vec::new()
        }
    }
}

/// Starts one process and measures it.
fn measure_idle(world: &mut World, traffic: &Arc<Traffic>, length: Duration) -> Window {
    let program = worker_program(WorkerSettings::for_load(0.0), 0, Arc::clone(traffic));
    world.add_host(Role::Worker, 0, NO_RESTART, program);
    world.run(SETTLE, |_| false);
    measure(world, traffic, length)
}
