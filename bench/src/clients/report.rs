//! The report of a run: the figures as tables and as JSON, and whether the goals are met. A
//! figure is the median over the repeats. A ratio is the median of the ratios within each
//! repeat. A slow minute of the machine affects all clients of a repeat alike, so it cancels
//! out in a ratio.

use std::collections::BTreeMap;
use std::fmt;

use perihelion_bench_client::Operation;
use serde_json::{Value, json};

use super::Plan;
use super::bulk::Bulk;
use super::costs::Cost;
use super::counts::{AllocationTable, Instructions};
use super::programs::Program;
use super::rounds::{Cell, Row};
use crate::goal::{Bound, Goal};
use crate::statistics::{median, spread};

/// The goal for our point reads per second divided by the SDK's, at [`GOAL_CONCURRENCY`].
const GOAL_THROUGHPUT: f64 = 2.4;
const GOAL_CONCURRENCY: [u64; 2] = [64, 512];
/// The goal for our instructions per point read divided by the SDK's.
const GOAL_INSTRUCTIONS: f64 = 0.27;
/// The goal for the instructions per point read that the idle fault layer adds, in percent.
const GOAL_FAULT_LAYER_PERCENT: f64 = 1.0;
/// The goal for our allocations per point read.
const GOAL_ALLOCATIONS: f64 = 45.0;
/// The goal for our p99 of a point read divided by the SDK's, at [`GOAL_P99_CONCURRENCY`].
const GOAL_P99: f64 = 1.0;
const GOAL_P99_CONCURRENCY: [u64; 3] = [1, 64, 512];
/// The goal for the documents per second of a bulk divided by those of single creates.
const GOAL_BULK: f64 = 2.5;
/// The goal for our CPU time per document of a bulk divided by that of single creates.
const GOAL_BULK_CPU: f64 = 0.25;

pub struct Report {
    pub plan: Plan,
    pub rows: Vec<Row>,
    /// `None` if it was not measured.
    pub bulk: Option<Bulk>,
    pub allocations: AllocationTable,
    pub instructions: Instructions,
    pub costs: BTreeMap<Program, Cost>,
}

impl Report {
    pub fn new(plan: Plan) -> Self {
        Self {
            plan,
            rows: Vec::new(),
            bulk: None,
            allocations: BTreeMap::new(),
            instructions: Instructions::default(),
            costs: BTreeMap::new(),
        }
    }

    fn row(&self, operation: Operation, concurrency: u64) -> Option<&Row> {
        self.rows.iter().find(|row| row.operation == operation && row.concurrency == concurrency)
    }

    fn write_timed(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Plan { repeats, measured, workers, .. } = &self.plan;
        writeln!(
            f,
            "1 KB documents over HTTP/2 and TLS (verified), {workers} worker threads, {repeats} repeats of {measured}:\n\
             per second, p50 / p99 / max in ms, CPU us of the client per operation"
        )?;
        write!(f, "{:<10} {:>7}", "workload", "at once")?;
        for program in &self.plan.clients {
            write!(f, " | {:>7} {:>19} {:>4}", program.name(), "p50 / p99 / max", "CPU")?;
        }
        writeln!(f, " | {:>16} | {:>16}", "ours / sdk", "ours / raw")?;
        for row in &self.rows {
            write!(f, "{:<10} {:>7}", row.workload(), row.concurrency)?;
            for program in &self.plan.clients {
                match row.cells.get(program) {
                    Some(cell) => write!(f, " | {}", Columns(cell))?,
                    None => write!(f, " | {:>32}", "-")?,
                }
            }
            for other in [Program::Sdk, Program::Raw] {
                let ratios = ratios(row, other, |cell| &cell.rates).map(|ratios| spread(&ratios));
                write!(f, " | {:>16}", ratios.as_deref().unwrap_or("-"))?;
            }
            writeln!(f)?;
        }
        Ok(())
    }

    fn write_counted(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\n{:<44}", "")?;
        for program in &self.plan.clients {
            write!(f, " {:>10}", program.name())?;
        }
        writeln!(f, " {:>10}", "ours / sdk")?;
        let allocations = |name, of: fn(&super::counts::Allocations) -> f64| {
            self.by_program(|program| self.allocations.get(&(name, program)).map(of))
        };
        write_line(
            f,
            "instructions per point read",
            0,
            self.by_program(|program| self.instructions.by_client.get(&program).copied()),
        )?;
        write_line(
            f,
            "  with the fault layer compiled in and idle",
            0,
            self.by_program(|program| self.instructions.with_faults.filter(|_| program == Program::Ours)),
        )?;
        write_line(f, "allocations per point read", 1, allocations("point read", |counts| counts.count))?;
        write_line(f, "bytes allocated per point read", 0, allocations("point read", |counts| counts.bytes))?;
        write_line(f, "allocations per create", 1, allocations("create", |counts| counts.count))?;
        write_line(f, "bytes allocated per create", 0, allocations("create", |counts| counts.bytes))?;
        let cost =
            |of: fn(&Cost) -> Option<f64>| self.by_program(|program| self.costs.get(&program).and_then(of));
        write_line(f, "crates it depends on", 0, cost(|cost| Some(cost.crates as f64)))?;
        let build_seconds = cost(|cost| Some(cost.build_cpu?.as_secs_f64()));
        write_line(f, "CPU seconds of a clean release build", 0, build_seconds)?;
        write_line(f, "stripped release binary, MB", 1, cost(|cost| Some(cost.binary_bytes as f64 / 1e6)))
    }

    /// One value for each client of the plan.
    fn by_program(&self, of: impl Fn(Program) -> Option<f64>) -> Vec<(Program, Option<f64>)> {
        self.plan.clients.iter().map(|program| (*program, of(*program))).collect()
    }

    fn goals(&self) -> Vec<Goal> {
        let mut goals = Vec::new();
        for concurrency in GOAL_CONCURRENCY {
            goals.push(Goal {
                name: format!("point reads per second, {concurrency} at once, ours / sdk"),
                value: self.read_ratio(concurrency, |cell| &cell.rates),
                bound: Bound::AtLeast(GOAL_THROUGHPUT),
            });
        }
        for concurrency in GOAL_P99_CONCURRENCY {
            goals.push(Goal {
                name: format!("p99 of a point read, {concurrency} at once, ours / sdk"),
                value: self.read_ratio(concurrency, |cell| &cell.p99_ms),
                bound: Bound::AtMost(GOAL_P99),
            });
        }
        let by_client = &self.instructions.by_client;
        let instructions = by_client.get(&Program::Ours).zip(by_client.get(&Program::Sdk));
        goals.push(Goal {
            name: "instructions per point read, ours / sdk".into(),
            value: instructions.map(|(ours, theirs)| ours / theirs),
            bound: Bound::AtMost(GOAL_INSTRUCTIONS),
        });
        let with_faults = self.instructions.with_faults.zip(by_client.get(&Program::Ours));
        goals.push(Goal {
            name: "instructions that the idle fault layer adds, %".into(),
            value: with_faults.map(|(with, without)| 100.0 * (with / without - 1.0)),
            bound: Bound::AtMost(GOAL_FAULT_LAYER_PERCENT),
        });
        goals.push(Goal {
            name: "allocations per point read, ours".into(),
            value: self.allocations.get(&("point read", Program::Ours)).map(|counts| counts.count),
            bound: Bound::AtMost(GOAL_ALLOCATIONS),
        });
        goals.push(Goal {
            name: "documents per second, bulk / single creates, 64 at once".into(),
            value: self.bulk.as_ref().map(|bulk| median(&bulk.ratios(|cell| &cell.rates))),
            bound: Bound::AtLeast(GOAL_BULK),
        });
        goals.push(Goal {
            name: "CPU of the client per document, bulk / single creates".into(),
            value: self.bulk.as_ref().map(|bulk| median(&bulk.ratios(|cell| &cell.cpu_us))),
            bound: Bound::AtMost(GOAL_BULK_CPU),
        });
        goals
    }

    /// A figure of our point reads divided by the SDK's.
    fn read_ratio(&self, concurrency: u64, of: fn(&Cell) -> &Vec<f64>) -> Option<f64> {
        let row = self.row(Operation::Read, concurrency)?;
        Some(median(&ratios(row, Program::Sdk, of)?))
    }

    fn write_bulk(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(bulk) = &self.bulk else { return Ok(()) };
        writeln!(
            f,
            "\n{} documents, our client: per second, CPU us of the client per document",
            self.plan.bulk_documents
        )?;
        for (name, cell) in [("single creates, 64 at once", &bulk.creates), ("bulk", &bulk.bulk)] {
            writeln!(f, "{name:<28} {:>8.0} {:>6.1}", median(&cell.rates), median(&cell.cpu_us))?;
        }
        let rates = spread(&bulk.ratios(|cell| &cell.rates));
        writeln!(
            f,
            "{:<28} {rates:>8} {:>6.2}x",
            "bulk / single creates",
            median(&bulk.ratios(|cell| &cell.cpu_us))
        )
    }

    pub fn json(&self) -> Value {
        let rows: Vec<Value> = self.rows.iter().map(row_json).collect();
        let clients: serde_json::Map<String, Value> = self
            .plan
            .clients
            .iter()
            .map(|program| (program.name().to_owned(), self.client_json(*program)))
            .collect();
        json!({
            "repeats": self.plan.repeats,
            "measured": self.plan.measured,
            "workers": self.plan.workers,
            "clients": clients,
            "workloads": rows,
            "bulk": self.bulk.as_ref().map(Bulk::json),
        })
    }

    fn client_json(&self, program: Program) -> Value {
        let allocations = |name| {
            self.allocations
                .get(&(name, program))
                .map(|counts| json!({ "count": counts.count, "bytes": counts.bytes }))
        };
        let cost = self.costs.get(&program);
        json!({
            "instructionsPerRead": self.instructions.by_client.get(&program),
            "instructionsPerReadWithFaultLayer":
                self.instructions.with_faults.filter(|_| program == Program::Ours),
            "allocationsPerRead": allocations("point read"),
            "allocationsPerCreate": allocations("create"),
            "crates": cost.map(|cost| cost.crates),
            "binaryBytes": cost.map(|cost| cost.binary_bytes),
            "buildCpuSeconds": cost.and_then(|cost| Some(cost.build_cpu?.as_secs_f64())),
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_timed(f)?;
        self.write_bulk(f)?;
        self.write_counted(f)?;
        writeln!(f, "\ngoals")?;
        self.goals().iter().try_for_each(|goal| writeln!(f, "  {goal}"))
    }
}

/// Our figures divided by another client's, repeat by repeat.
fn ratios(row: &Row, other: Program, of: impl Fn(&Cell) -> &Vec<f64>) -> Option<Vec<f64>> {
    let (ours, other) = (row.cells.get(&Program::Ours)?, row.cells.get(&other)?);
    Some(of(ours).iter().zip(of(other)).map(|(ours, other)| ours / other).collect())
}

/// Writes one line of the table: a value for each client, and ours as a percentage of the
/// SDK's.
fn write_line(
    f: &mut fmt::Formatter<'_>,
    name: &str,
    digits: usize,
    values: Vec<(Program, Option<f64>)>,
) -> fmt::Result {
    write!(f, "{name:<44}")?;
    for (_, value) in &values {
        match value {
            Some(value) => write!(f, " {value:>10.digits$}")?,
            None => write!(f, " {:>10}", "-")?,
        }
    }
    let of = |wanted| values.iter().find(|(program, _)| *program == wanted).and_then(|(_, value)| *value);
    match of(Program::Ours).zip(of(Program::Sdk)) {
        Some((ours, theirs)) => writeln!(f, " {:>9.0}%", 100.0 * ours / theirs),
        None => writeln!(f, " {:>10}", "-"),
    }
}

/// The columns of one client in a line of the table.
struct Columns<'a>(&'a Cell);

impl fmt::Display for Columns<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The maximum of all repeats, so that a stall is not hidden by the median.
        let greatest = self.0.max_ms.iter().copied().fold(0.0, f64::max);
        let latency =
            format!("{:.2} / {:.2} / {greatest:.0}", median(&self.0.p50_ms), median(&self.0.p99_ms));
        write!(f, "{:>7.0} {latency:>19} {:>4.0}", median(&self.0.rates), median(&self.0.cpu_us))
    }
}

fn row_json(row: &Row) -> Value {
    let cells: serde_json::Map<String, Value> = row
        .cells
        .iter()
        .map(|(program, cell)| {
            let figures = json!({
                "perSecond": cell.rates,
                "p50Ms": cell.p50_ms,
                "p99Ms": cell.p99_ms,
                "maxMs": cell.max_ms,
                "clientCpuUs": cell.cpu_us,
            });
            (program.name().to_owned(), figures)
        })
        .collect();
    json!({ "workload": row.workload(), "concurrency": row.concurrency, "clients": cells })
}
