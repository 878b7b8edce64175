//! Draws how the processes of a run differ, and the request units of the container. All of this is
//! drawn apart from the rest, so that a seed draws the same faults with and without it.
//!
//! - In a third of the runs the container has so few request units that the engine throttles.
//! - In a quarter of the runs with several processes, the processes have different registries, as in a
//!   rolling deployment: some of them lack orchestrations and activities.
//! - In a sixth of the runs with several processes, some processes are of an earlier layout version at
//!   first, and are replaced one after the other.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::fault_run::draw::{Draw, Incident};
use crate::scenarios::{STAGED, WIDE_FAN};
use crate::workflows::Registered;

/// Gives `draw` other random numbers than the rest of the run.
const SALT: u64 = 0x666c_6565_745f_6472;

/// The choices for the request units per second of a physical partition. A workflow takes about 60, and
/// each process a few for its polls.
const PARTITION_UNITS: [u32; 3] = [50, 100, 200];

/// The orchestrations that a process may lack.
const ORCHESTRATIONS: [&str; 15] = [
    "Chain", "Timer", "Retry", "Parent", "Child", "Detach", "Approval", "Inbox", "Eternal", "Race",
    "Session", "Fan", "Slow", "Family", "Stuck",
];

/// The activities that a process may lack.
const ACTIVITIES: [&str; 4] = ["Step", "Slow", "Flaky", "Endless"];

/// The most orchestrations and activities that a process lacks.
const ORCHESTRATIONS_MISSING_MAX: usize = 5;
const ACTIVITIES_MISSING_MAX: usize = 2;

/// The number of attempts after which work is poison in runs with different registries. Locks that
/// expire in episodes use up some attempts. A process that only meets work that it cannot run must not
/// use up the rest.
const ATTEMPTS_MAX: u32 = 60;

/// Draws the request units, the registries and the versions of a run. `draws_registries` is false for
/// most planted bugs, which are found without different registries.
pub fn draw(seed: u64, draws_registries: bool, draw: &mut Draw) {
    let mut rng = fastrand::Rng::with_seed(seed ^ SALT);
    let (mut units, mut registries, mut versions) = (rng.fork(), rng.fork(), rng.fork());
    // A turn that is staged takes tens of thousands of request units.
    let is_staged = draw.scenarios.iter().any(|(scenario, _)| scenario.name == STAGED.name);
    if units.u8(..3) == 0 && !is_staged {
        draw.throughput = Some(draw.partitions * PARTITION_UNITS[units.usize(..PARTITION_UNITS.len())]);
    }
    if draw.workers.len() < 2 {
        return;
    }
    if registries.u8(..4) == 0 && draws_registries {
        draw_registries(&mut registries, draw);
    }
    if versions.u8(..6) == 0 {
        draw_versions(&mut versions, draw);
    }
}

/// One process can run everything. Each of the others lacks something.
fn draw_registries(rng: &mut fastrand::Rng, draw: &mut Draw) {
    let complete = rng.usize(..draw.workers.len());
    for (number, worker) in draw.workers.iter_mut().enumerate() {
        worker.attempts_max = ATTEMPTS_MAX;
        if number == complete {
            continue;
        }
        let mut missing = BTreeSet::new();
        for _ in 0..rng.usize(1..=ORCHESTRATIONS_MISSING_MAX) {
            missing.insert(ORCHESTRATIONS[rng.usize(..ORCHESTRATIONS.len())]);
        }
        let mut missing_activities = BTreeSet::new();
        for _ in 0..rng.usize(0..=ACTIVITIES_MISSING_MAX) {
            missing_activities.insert(ACTIVITIES[rng.usize(..ACTIVITIES.len())]);
        }
        worker.registered = Registered::without(missing, missing_activities);
    }
}

/// The first workers begin with a process of the earlier version. Each is replaced at some time. Half of
/// these runs get a wide fan-out, whose turns may write the newer form of a state.
fn draw_versions(rng: &mut fastrand::Rng, draw: &mut Draw) {
    draw.old_workers = rng.usize(1..=draw.workers.len());
    for worker in 0..draw.old_workers {
        draw.incidents.push((draw.faults_until.mul_f64(rng.f64()), Incident::Upgrade(worker)));
    }
    draw.incidents.sort_by_key(|(at, _)| *at);
    if rng.bool() {
        draw.scenarios.push((WIDE_FAN, draw.faults_until.mul_f64(rng.f64() * 0.8)));
    }
}

/// The version of a worker's program: the earlier one until the upgrade, then the new one. The worker's
/// next process gets it.
#[derive(Debug, Clone, Default)]
pub struct Release {
    is_old: Arc<AtomicBool>,
    /// The names of all processes of the earlier version that have opened a provider. Shared by all
    /// workers of a run.
    old_processes: OldProcesses,
}

/// The names of processes of the earlier version.
pub type OldProcesses = Arc<Mutex<BTreeSet<String>>>;

impl Release {
    /// The release of a new worker.
    pub fn new(is_old: bool, old_processes: &OldProcesses) -> Self {
        Release { is_old: Arc::new(AtomicBool::new(is_old)), old_processes: Arc::clone(old_processes) }
    }

    /// Whether the worker's next process is of the earlier version.
    pub fn is_old(&self) -> bool {
        self.is_old.load(Ordering::SeqCst)
    }

    /// Makes the worker's next process one of the new version. Returns whether the worker was of the
    /// earlier version before.
    pub fn upgrade(&self) -> bool {
        self.is_old.swap(false, Ordering::SeqCst)
    }

    /// Records that this process of the earlier version has opened its provider.
    pub fn record_old(&self, process: &str) {
        self.old_processes.lock().unwrap_or_else(PoisonError::into_inner).insert(process.to_owned());
    }
}
