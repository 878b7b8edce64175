//! One cell (processes, partitions and a load), its measurements, and the limits that it must keep.

use std::sync::Arc;
use std::time::Duration;

use crate::scale::programs::{WorkerSettings, Workload};
use crate::scale::{Size, measure_with, open_clients, open_workers};
use crate::traffic::{Kind, Traffic, Window};
use crate::world;

/// The request units of the smallest workflow when the process that starts it also runs it.
/// A start by another process costs more; [`workflow_units`] measures that.
const SMALLEST_WORKFLOW_UNITS: f64 = 59.5;

/// The time under load before the measurement begins.
const WARM_UP: Duration = Duration::from_secs(4);

/// The largest share of request units that polls, the reconciler's queries for unfinished documents
/// and membership may use. With at most four processes for each partition it is a share of the
/// units spent, otherwise of the units provisioned.
pub const OVERHEAD_SHARE_MAX: f64 = 0.05;

/// The largest share of commits that may be lost.
pub const LOST_SHARE_MAX: f64 = 0.02;

/// The limit of the median of pick-ups under load. A pick-up is the time from the moment when a
/// start is stored until a worker runs the first turn of the workflow.
pub const PICK_UP_MEDIAN_MAX: Duration = Duration::from_millis(200);
/// The limit of the 99th percentile of pick-ups under load.
pub const PICK_UP_P99_MAX: Duration = Duration::from_millis(500);

/// The least share of the offered workflows that must be completed.
pub const THROUGHPUT_SHARE_MIN: f64 = 0.95;

/// A cell: processes and partitions, and the load on them.
#[derive(Debug, Clone, Copy)]
pub struct Cell {
    /// The processes and partitions.
    pub size: Size,
    /// The load as a share of the container's request units.
    pub load: f64,
    /// The workflows that the clients start.
    pub workload: Workload,
    /// The request units of one workflow of the workload.
    pub workflow_units: f64,
}

impl Cell {
    /// The number of starts per second.
    pub fn starts_per_second(&self) -> f64 {
        self.load * self.size.provisioned_units() / self.workflow_units
    }
}

/// The measurements of a cell.
#[derive(Debug, Clone)]
pub struct CellOutcome {
    /// The cell.
    pub cell: Cell,
    /// The counts of the measured time.
    pub window: Window,
    /// Starts that were due in the window.
    pub starts_due: u64,
    /// Starts that failed or were left out, in the whole run.
    pub starts_left_out: u64,
    /// The real time that the run took.
    pub real_time: Duration,
}

impl CellOutcome {
    /// The request units per second of polls, of the reconciler's queries for unfinished documents,
    /// and of membership.
    pub fn overhead_units(&self) -> f64 {
        self.window.per_second(self.window.sum(&Kind::OVERHEAD).request_units)
    }

    /// All request units per second.
    pub fn units(&self) -> f64 {
        self.window.per_second(self.window.sum(&Kind::ALL).request_units)
    }

    /// The overhead as a share of the request units spent.
    pub fn overhead_share_of_spent(&self) -> f64 {
        self.overhead_units() / self.units().max(f64::MIN_POSITIVE)
    }

    /// The overhead as a share of the request units provisioned.
    pub fn overhead_share_of_provisioned(&self) -> f64 {
        self.overhead_units() / self.cell.size.provisioned_units()
    }

    /// Lost commits as a share of all commits.
    pub fn lost_share(&self) -> f64 {
        self.window.lost_writes as f64 / (self.window.batches as f64).max(1.0)
    }

    /// Completed workflows as a share of the offered ones.
    pub fn throughput_share(&self) -> f64 {
        let due = self.starts_due as f64 * self.cell.workload.completions_per_start();
        self.window.completions as f64 / due.max(1.0)
    }

    /// The limits that the cell does not keep, in words. Empty if it keeps all.
    pub fn failures(&self) -> Vec<String> {
        let Size { processes, partitions, .. } = self.cell.size;
        let (share, of) = match processes <= 4 * partitions {
            true => (self.overhead_share_of_spent(), "spent"),
            false => (self.overhead_share_of_provisioned(), "provisioned"),
        };
        let mut failures = Vec::new();
        if share > OVERHEAD_SHARE_MAX {
            failures.push(format!("overhead {:.1} % of RU {of}", share * 100.0));
        }
        if self.lost_share() > LOST_SHARE_MAX {
            failures.push(format!("lost commits {:.1} %", self.lost_share() * 100.0));
        }
        for (quantile, name, limit) in [(0.5, "p50", PICK_UP_MEDIAN_MAX), (0.99, "p99", PICK_UP_P99_MAX)] {
            match self.window.pick_up(quantile) {
                Some(pick_up) if pick_up < limit => {}
                Some(pick_up) => failures.push(format!("pick-up {name} {} ms", pick_up.as_millis())),
                None => failures.push(format!("pick-up {name} too late")),
            }
        }
        if self.throughput_share() < THROUGHPUT_SHARE_MIN {
            failures.push(format!("throughput {:.0} %", self.throughput_share() * 100.0));
        }
        failures
    }
}

/// Runs a cell and measures it for `length` of virtual time.
pub fn run(cell: Cell, length: Duration, seed: u64) -> CellOutcome {
    let begun = std::time::Instant::now();
    let traffic = Arc::new(Traffic::default());
    let starts_per_second = cell.starts_per_second();
    let settings = WorkerSettings::for_load(starts_per_second / f64::from(cell.size.processes));
    let (window, starts_due, starts_left_out) =
        world::simulate_with(seed, cell.size.world(&traffic), |world| {
            open_workers(world, seed, cell.size, &settings, &traffic);
            let (load, _) = open_clients(world, seed, cell.size.processes);
            load.set(starts_per_second, cell.workload);
            world.run(WARM_UP, |_| false);
            let (due, mut due_at_end) = (load.due(), 0);
            let window = measure_with(world, &traffic, length, || due_at_end = load.due());
            (window, due_at_end - due, load.left_out())
        });
    CellOutcome { cell, window, starts_due, starts_left_out, real_time: begun.elapsed() }
}

/// Measures the request units of one workflow of a workload that another process starts: one
/// process, one partition and a low load. The overhead is left out.
pub fn workflow_units(workload: Workload, seed: u64) -> f64 {
    let size = Size::new(1, 1);
    let cell = Cell { size, load: 0.2, workload, workflow_units: SMALLEST_WORKFLOW_UNITS };
    let window = run(cell, Duration::from_secs(10), seed).window;
    let units = window.sum(&[Kind::Start, Kind::Work]).request_units;
    units * workload.completions_per_start() / (window.completions as f64).max(1.0)
}
