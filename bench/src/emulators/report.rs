//! The report of a run: the figures as a table with ratios and goals, and as JSON. A figure is
//! the median over the repeats. A ratio is the median of the ratios within each repeat. A
//! slow minute of the machine affects all targets of a repeat alike, so it cancels out in a
//! ratio.

use std::fmt;

use serde_json::{Value, json};

use super::disk::DiskSpeed;
use super::phases::{Cell, Footprints, Row};
use super::plan::Plan;
use crate::goal::Bound;
use crate::statistics::{median, spread, verdict};
use crate::targets::{Target, VERCEL_VERSION};

pub struct Report {
    pub plan: Plan,
    pub rows: Vec<Row>,
    pub footprints: Footprints,
    pub binary_bytes: Option<u64>,
    pub disk: DiskSpeed,
}

/// A goal of the project: the least ratio of a target's rate to the peer's.
struct Goal {
    workload: &'static str,
    clients: u64,
    target: Target,
    ratio: f64,
}

const GOALS: [Goal; 6] = [
    Goal { workload: "point read", clients: 16, target: Target::Durable, ratio: 8.0 },
    Goal { workload: "point read", clients: 16, target: Target::Memory, ratio: 8.0 },
    Goal { workload: "create", clients: 16, target: Target::Durable, ratio: 3.0 },
    Goal { workload: "create", clients: 16, target: Target::Memory, ratio: 8.0 },
    Goal { workload: "batch of 10 creates", clients: 16, target: Target::Durable, ratio: 5.0 },
    Goal { workload: "ordered query, 100000 docs", clients: 1, target: Target::Durable, ratio: 100.0 },
];
/// The most that the 99th percentile of a durable create may take, as a multiple of the 99th
/// percentile of a bare append with its flush.
const GOAL_COMMIT_P99: f64 = 3.0;
/// The most that the slowest durable create may take, as a multiple of the same.
const GOAL_COMMIT_MAX: f64 = 10.0;
const GOAL_START_UP_MS: f64 = 100.0;
const GOAL_IDLE_MB: f64 = 40.0;

impl Report {
    /// Our rate divided by the peer's in the same repeat. If the peer has another number of
    /// repeats, the median of its rates is used. If the peer is not in the row, its rates come
    /// from another row with the same subject.
    fn ratios(&self, row: &Row, target: Target) -> Option<Vec<f64>> {
        let ours = row.cells.get(&target)?;
        let peer = row.cells.get(&Target::Vercel).or_else(|| self.peer_of_same_subject(row))?;
        let of_repeat = |repeat: usize| match peer.rates.get(repeat) {
            Some(rate) if peer.rates.len() == ours.rates.len() => *rate,
            _ => median(&peer.rates),
        };
        Some(ours.rates.iter().enumerate().map(|(repeat, rate)| rate / of_repeat(repeat)).collect())
    }

    /// The peer's figures from a row with the same subject.
    fn peer_of_same_subject(&self, row: &Row) -> Option<&Cell> {
        self.rows
            .iter()
            .filter(|other| other.subject == row.subject)
            .find_map(|other| other.cells.get(&Target::Vercel))
    }

    /// The targets of the plan that are our server.
    fn ours(&self) -> impl Iterator<Item = Target> {
        self.plan.targets.iter().copied().filter(|target| *target != Target::Vercel)
    }

    fn write_throughput(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "1 KB documents; per second, p50 / p99 / max in ms, CPU us per operation of the server (of the client)"
        )?;
        write!(f, "{:<28} {:>7}", "workload", "clients")?;
        for target in &self.plan.targets {
            write!(f, " | {:>9} {:>21} {:>14}", target.name(), "p50 / p99 / max", "CPU")?;
        }
        for target in self.ours() {
            write!(f, " | {:>22}", format!("{} / vercel", target.name()))?;
        }
        writeln!(f)?;
        for row in &self.rows {
            self.write_throughput_row(f, row)?;
        }
        Ok(())
    }

    fn write_throughput_row(&self, f: &mut fmt::Formatter<'_>, row: &Row) -> fmt::Result {
        write!(f, "{:<28} {:>7}", row.workload, row.clients)?;
        for target in &self.plan.targets {
            match row.cells.get(target) {
                Some(cell) => write!(f, " | {}", Columns(cell))?,
                None => write!(f, " | {:>46}", "-")?,
            }
        }
        for target in self.ours() {
            match self.ratios(row, target) {
                Some(ratios) => write!(f, " | {:>22}", spread(&ratios))?,
                None => write!(f, " | {:>22}", "-")?,
            }
        }
        writeln!(f)?;
        match &row.note {
            Some(note) => writeln!(f, "  ({note})"),
            None => Ok(()),
        }
    }

    fn write_goals(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\ngoals")?;
        for goal in &GOALS {
            let ratio = self
                .rows
                .iter()
                .find(|row| row.workload == goal.workload && row.clients == goal.clients)
                .and_then(|row| self.ratios(row, goal.target))
                .map(|ratios| median(&ratios));
            let name = format!("{}, {} clients, {}", goal.workload, goal.clients, goal.target.name());
            match ratio {
                Some(ratio) => {
                    let verdict = verdict(ratio >= goal.ratio);
                    writeln!(f, "  {name:<50} {ratio:>9.1}x  goal {:>5.0}x  {verdict}", goal.ratio)?;
                }
                None => writeln!(f, "  {name:<50} {:>9}   goal {:>5.0}x  not measured", "-", goal.ratio)?,
            }
        }
        self.write_commit_goals(f)
    }

    /// The times of durable creates beside the disk's own.
    fn write_commit_goals(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_create = |row: &&Row| row.workload == "create" && row.clients == 16;
        let row = self.rows.iter().find(is_create);
        let Some(cell) = row.and_then(|row| row.cells.get(&Target::Durable)) else { return Ok(()) };
        let longest = cell.max_ms.iter().copied().fold(0.0, f64::max);
        let goals = [
            ("p99 of a durable create, 16 clients, over an append's", median(&cell.p99_ms), GOAL_COMMIT_P99),
            ("the slowest durable create over an append's p99", longest, GOAL_COMMIT_MAX),
        ];
        for (name, time_ms, bound) in goals {
            let goal = crate::goal::Goal {
                name: name.to_owned(),
                value: Some(time_ms / self.disk.p99_ms),
                bound: Bound::AtMost(bound),
            };
            writeln!(f, "  {goal}")?;
        }
        Ok(())
    }

    fn write_footprint(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let documents = self.plan.queues.iter().map(|queue| queue.size).max().unwrap_or(0);
        writeln!(f, "\nfootprint")?;
        for (target, footprint) in &self.footprints {
            write!(f, "  {:<8}", target.name())?;
            let compared = |value: f64, goal: f64| match target {
                Target::Vercel => String::new(),
                Target::Durable | Target::Memory => format!(" (goal < {goal:.0}: {})", verdict(value < goal)),
            };
            if !footprint.start_up_ms.is_empty() {
                let (start_up, idle) = (median(&footprint.start_up_ms), median(&footprint.idle_mb));
                write!(f, " first answer after {start_up:>6.1} ms{};", compared(start_up, GOAL_START_UP_MS))?;
                write!(f, " {idle:>5.1} MB idle{};", compared(idle, GOAL_IDLE_MB))?;
            }
            if let (Some(loaded), Some(seconds)) = (footprint.loaded_mb, footprint.load_seconds) {
                write!(f, " {loaded:>6.1} MB with {documents} documents (loaded in {seconds:.1} s)")?;
            }
            writeln!(f)?;
        }
        if let Some(bytes) = self.binary_bytes {
            writeln!(f, "  our binary: {:.1} MB", bytes as f64 / 1e6)?;
        }
        let DiskSpeed { p50_ms, p99_ms } = self.disk;
        writeln!(f, "  disk: 4 KiB append and fdatasync p50 {p50_ms:.2} ms, p99 {p99_ms:.2} ms")
    }

    pub fn json(&self) -> Value {
        let rows: Vec<Value> = self.rows.iter().map(|row| self.row_json(row)).collect();
        let footprints: serde_json::Map<String, Value> = self
            .footprints
            .iter()
            .map(|(target, footprint)| {
                let value = json!({
                    "startUpMs": footprint.start_up_ms,
                    "idleMb": footprint.idle_mb,
                    "loadedMb": footprint.loaded_mb,
                    "loadSeconds": footprint.load_seconds,
                });
                (target.name().to_owned(), value)
            })
            .collect();
        json!({
            "peer": format!("@vercel/cosmosdb-server {VERCEL_VERSION}"),
            "repeats": self.plan.repeats,
            "windowMs": self.plan.window.measured.time.as_millis() as u64,
            "fdatasyncMs": self.disk.p50_ms,
            "fdatasyncP99Ms": self.disk.p99_ms,
            "binaryBytes": self.binary_bytes,
            "footprint": footprints,
            "workloads": rows,
        })
    }

    fn row_json(&self, row: &Row) -> Value {
        let cells: serde_json::Map<String, Value> =
            row.cells.iter().map(|(target, cell)| (target.name().to_owned(), cell_json(cell))).collect();
        let ratios: serde_json::Map<String, Value> = self
            .ours()
            .filter_map(|target| Some((target.name().to_owned(), json!(self.ratios(row, target)?))))
            .collect();
        json!({
            "workload": row.workload,
            "clients": row.clients,
            "targets": cells,
            "ratiosToVercel": ratios,
            "note": row.note,
        })
    }
}

fn cell_json(cell: &Cell) -> Value {
    json!({
        "perSecond": cell.rates,
        "p50Ms": cell.p50_ms,
        "p99Ms": cell.p99_ms,
        "maxMs": cell.max_ms,
        "serverCpuUs": cell.server_cpu_us,
        "clientCpuUs": cell.client_cpu_us,
    })
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_throughput(f)?;
        self.write_goals(f)?;
        self.write_footprint(f)
    }
}

/// The columns of one target in a line of the table.
struct Columns<'a>(&'a Cell);

impl fmt::Display for Columns<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rate = median(&self.0.rates);
        let rate = if rate < 10.0 { format!("{rate:.3}") } else { format!("{rate:.0}") };
        // The maximum of all repeats, so that a stall is not hidden by the median.
        let greatest = self.0.max_ms.iter().copied().fold(0.0, f64::max);
        let latency =
            format!("{:.2} / {:.2} / {greatest:.0}", median(&self.0.p50_ms), median(&self.0.p99_ms));
        let cpu = format!("{:.0} ({:.0})", median(&self.0.server_cpu_us), median(&self.0.client_cpu_us));
        write!(f, "{rate:>9} {latency:>21} {cpu:>14}")
    }
}
