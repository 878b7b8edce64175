//! The comparison with the emulator inside the official SDK. That emulator has no socket, so one
//! program hosts everything (`bench/transactions/emulator`). This file builds the program, runs it
//! and reports its figures.

use std::fmt;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, ensure};
use serde_json::Value;
use tokio::process::Command;

use super::Plan;
use super::client::Shape;
use super::report::spread_in_hundredths;
use crate::goal::{Bound, Goal};
use crate::statistics::median;
use crate::targets::build_release;

const PACKAGE: &str = "perihelion-bench-transactions-emulator";

/// The worker threads of the program's runtime.
const WORKERS: u64 = 2;

/// The least ratio of our operations per second to the SDK's.
const GOAL_RATIO: f64 = 1.0;

/// The targets of the program: its name for each, and the head of its column. `CLIENT` is our
/// client on the SDK's emulator, and `EMBEDDED` our client on our engine.
const SDK: (&str, &str) = ("sdk", "SDK, its emulator");
const CLIENT: (&str, &str) = ("client", "ours, its emulator");
const EMBEDDED: (&str, &str) = ("embedded", "ours, our engine");
const TARGETS: [(&str, &str); 3] = [SDK, CLIENT, EMBEDDED];

/// Builds the program and runs it.
pub async fn run(plan: &Plan) -> anyhow::Result<Report> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("transactions/emulator");
    eprintln!("building the official SDK with its emulator in {}", directory.display());
    // Without --locked: the program depends on the crates of this checkout, whose dependencies
    // change without its lock file.
    let program = build_release(&directory, &[], PACKAGE).await?;
    let list = |numbers: &[u64]| numbers.iter().map(u64::to_string).collect::<Vec<_>>().join(",");
    let millis = |time: Duration| time.as_millis().to_string();
    let mut command = Command::new(program);
    command.args(["--targets", &TARGETS.map(|(name, _)| name).join(",")]);
    for (name, value) in [
        ("--operations", list(&plan.operations)),
        ("--partitions", list(&plan.partitions)),
        ("--clients", plan.clients.to_string()),
        ("--workers", WORKERS.to_string()),
        ("--repeats", plan.repeats.to_string()),
        ("--warm-up-ms", millis(plan.emulator_warm_up)),
        ("--window-ms", millis(plan.emulator_window)),
    ] {
        command.arg(name).arg(value);
    }
    command.stdin(Stdio::null()).stderr(Stdio::inherit()).kill_on_drop(true);
    let answer = command.output().await.with_context(|| format!("starting {command:?}"))?;
    ensure!(answer.status.success(), "{command:?} ended with {}", answer.status);
    Report::parse(serde_json::from_slice(&answer.stdout).context("its figures are not JSON")?)
}

/// The figures of the program.
pub struct Report {
    figures: Value,
    rows: Vec<Row>,
}

struct Row {
    /// Creates or reads.
    work: String,
    shape: Shape,
    /// In the order of `TARGETS`.
    cells: [Cell; 3],
}

/// One target: one number per repeat, in the order of the repeats.
struct Cell {
    /// Operations per second.
    rates: Vec<f64>,
    /// The time of one transaction.
    p50_ms: Vec<f64>,
    p99_ms: Vec<f64>,
}

impl Report {
    fn parse(figures: Value) -> anyhow::Result<Self> {
        let rows = figures["rows"].as_array().context("figures without rows")?;
        let rows = rows.iter().map(|row| Row::parse(row).with_context(|| format!("the row {row}")));
        Ok(Report { rows: rows.collect::<anyhow::Result<_>>()?, figures })
    }

    pub fn json(&self) -> Value {
        self.figures.clone()
    }

    fn goals(&self) -> impl Iterator<Item = Goal> {
        self.rows.iter().map(|row| Goal {
            name: format!("{}, ours / SDK", row.name()),
            value: Some(median(&row.ratios(EMBEDDED))),
            bound: Bound::AtLeast(GOAL_RATIO),
        })
    }
}

impl Row {
    fn parse(row: &Value) -> anyhow::Result<Self> {
        let number = |name: &str| row[name].as_u64().with_context(|| format!("no {name}"));
        let cell = |(name, _): (&str, &str)| Cell::parse(&row["targets"][name]);
        Ok(Row {
            work: row["work"].as_str().context("no work")?.to_owned(),
            shape: Shape { operations: number("operations")?, partitions: number("partitions")? },
            cells: [cell(SDK)?, cell(CLIENT)?, cell(EMBEDDED)?],
        })
    }

    fn name(&self) -> String {
        let Shape { operations, partitions } = self.shape;
        format!(
            "{}: {operations} operations in {} of {partitions} partitions",
            self.work,
            self.shape.touched()
        )
    }

    /// The rates of a target divided by the SDK's, in each repeat.
    fn ratios(&self, target: (&str, &str)) -> Vec<f64> {
        let cells = TARGETS.iter().zip(&self.cells);
        let rates = cells.filter(|(of, _)| **of == target).flat_map(|(_, cell)| &cell.rates);
        rates.zip(&self.cells[0].rates).map(|(ours, sdk)| ours / sdk).collect()
    }
}

impl Cell {
    fn parse(cell: &Value) -> anyhow::Result<Self> {
        let numbers = |name: &str| {
            let numbers = cell[name].as_array().with_context(|| format!("no {name}"))?;
            let numbers: Vec<f64> = numbers.iter().filter_map(Value::as_f64).collect();
            ensure!(!numbers.is_empty(), "{name} has no numbers");
            Ok(numbers)
        };
        Ok(Cell {
            rates: numbers("operationsPerSecond")?,
            p50_ms: numbers("p50Ms")?,
            p99_ms: numbers("p99Ms")?,
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "transactions of 1 KB documents in one process, {} at once, {} threads, {} physical partitions; \
             operations per second, p50 / p99 of one transaction in ms, and the ratio to the SDK on its emulator",
            self.figures["clients"], self.figures["workers"], self.figures["physicalPartitions"]
        )?;
        write!(f, "{:<8} {:>10} {:>10}", "", "operations", "partitions")?;
        for (_, head) in TARGETS {
            write!(f, " | {head:>18} {:>15}", "p50 / p99")?;
        }
        writeln!(f, " | {:>18} | {:>18}", "ours, its emulator", "ours, our engine")?;
        for row in &self.rows {
            let spread = format!("{} of {}", row.shape.touched(), row.shape.partitions);
            write!(f, "{:<8} {:>10} {spread:>10}", row.work, row.shape.operations)?;
            for cell in &row.cells {
                let latency = format!("{:.2} / {:.2}", median(&cell.p50_ms), median(&cell.p99_ms));
                write!(f, " | {:>18.0} {latency:>15}", median(&cell.rates))?;
            }
            let ratio = |target| spread_in_hundredths(&row.ratios(target));
            writeln!(f, " | {:>18} | {:>18}", ratio(CLIENT), ratio(EMBEDDED))?;
        }
        writeln!(f, "\ngoals")?;
        for goal in self.goals() {
            writeln!(f, "  {goal}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn figures(sdk: [f64; 3], embedded: [f64; 3]) -> Value {
        let cell = |rates: [f64; 3]| json!({"operationsPerSecond": rates, "p50Ms": [1.5], "p99Ms": [2.5]});
        let targets = json!({"sdk": cell(sdk), "client": cell(sdk), "embedded": cell(embedded)});
        json!({
            "clients": 16, "workers": 2, "physicalPartitions": 16,
            "rows": [{"work": "creates", "operations": 5, "partitions": 4, "targets": targets}],
        })
    }

    /// The ratios of the three repeats have the median 2. The ratio of the medians would be 1.5.
    #[test]
    fn a_ratio_is_the_median_of_the_ratios_within_each_repeat() {
        let report = Report::parse(figures([100.0, 200.0, 400.0], [300.0, 400.0, 200.0])).expect("figures");
        assert_eq!(report.rows[0].ratios(EMBEDDED), [3.0, 2.0, 0.5]);
        assert_eq!(report.rows[0].ratios(CLIENT), [1.0, 1.0, 1.0]);
        let text = report.to_string();
        assert!(text.contains("2.00 (0.50-3.00)"), "{text}");
        assert!(text.contains("creates: 5 operations in 4 of 4 partitions, ours / SDK"), "{text}");
        assert!(text.contains("at least 1: met"), "{text}");
    }

    #[test]
    fn a_rate_below_the_sdk_misses_the_goal() {
        let report = Report::parse(figures([100.0; 3], [99.0; 3])).expect("figures");
        assert!(report.to_string().contains("at least 1: MISSED"));
    }

    #[test]
    fn figures_without_a_target_are_refused() {
        let mut figures = figures([1.0; 3], [1.0; 3]);
        figures["rows"][0]["targets"]["client"] = json!({});
        let refused = Report::parse(figures).err().expect("a refusal");
        assert!(format!("{refused:#}").contains("no operationsPerSecond"), "{refused:#}");
    }
}
