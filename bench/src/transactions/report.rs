//! The report of a run. A figure is the median over the repeats. A ratio is the median of the
//! ratios within each repeat.

use std::fmt;

use serde_json::{Value, json};

use super::Plan;
use super::client::Way;
use super::measure::{Cell, Row};
use crate::goal::{Bound, Goal};
use crate::statistics::{median, spread};

pub struct Report {
    pub plan: Plan,
    pub rows: Vec<Row>,
}

/// The least ratio of operations per second in transactions to those in batches.
const GOAL_RATIO: f64 = 0.5;

/// The rates of the transactions divided by those of the batches, in each repeat.
fn ratios(row: &Row) -> Vec<f64> {
    let rates = |way| row.cells.get(&way).map(|cell| cell.rates.as_slice()).unwrap_or_default();
    rates(Way::Transaction).iter().zip(rates(Way::Batches)).map(|(ours, other)| ours / other).collect()
}

impl Report {
    fn write_rows(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "creates of 1 KB documents, {} clients; operations per second, p50 / p99 of one request in ms, and per \
             operation: CPU us of the server, requests, RU",
            self.plan.clients
        )?;
        write!(f, "{:<8} {:>10} {:>10}", "target", "operations", "partitions")?;
        for way in Way::ALL {
            write!(f, " | {:>12} {:>15} {:>5} {:>5} {:>5}", way.name(), "p50 / p99", "CPU", "req", "RU")?;
        }
        writeln!(f, " | {:>18}", "ratio")?;
        for row in &self.rows {
            write!(
                f,
                "{:<8} {:>10} {:>10}",
                row.target.name(),
                row.shape.operations,
                format!("{} of {}", row.shape.touched(), row.shape.partitions)
            )?;
            for way in Way::ALL {
                match row.cells.get(&way) {
                    Some(cell) => write!(f, " | {}", Columns(cell))?,
                    None => write!(f, " | {:>46}", "-")?,
                }
            }
            writeln!(f, " | {:>18}", spread_in_hundredths(&ratios(row)))?;
        }
        Ok(())
    }

    fn goals(&self) -> impl Iterator<Item = Goal> {
        self.rows.iter().map(|row| {
            let ratios = ratios(row);
            Goal {
                name: format!(
                    "{}: {} operations in {} of {} partitions, transactions / batches",
                    row.target.name(),
                    row.shape.operations,
                    row.shape.touched(),
                    row.shape.partitions
                ),
                value: (!ratios.is_empty()).then(|| median(&ratios)),
                bound: Bound::AtLeast(GOAL_RATIO),
            }
        })
    }

    pub fn json(&self) -> Value {
        let row_json = |row: &Row| {
            let cells: serde_json::Map<String, Value> =
                row.cells.iter().map(|(way, cell)| (way.name().to_owned(), cell_json(cell))).collect();
            json!({
                "target": row.target.name(),
                "operations": row.shape.operations,
                "partitions": row.shape.partitions,
                "ways": cells,
                "ratios": ratios(row),
            })
        };
        json!({
            "clients": self.plan.clients,
            "repeats": self.plan.repeats,
            "windowMs": self.plan.window.as_millis() as u64,
            "rows": self.rows.iter().map(row_json).collect::<Vec<_>>(),
        })
    }
}

/// The median, the least and the greatest of ratios, with two decimals unless all are at least 10.
/// Most ratios are near one, where one decimal is too coarse.
pub(super) fn spread_in_hundredths(ratios: &[f64]) -> String {
    if ratios.iter().all(|ratio| *ratio >= 10.0) {
        return spread(ratios);
    }
    let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
    let greatest = ratios.iter().copied().fold(0.0, f64::max);
    format!("{:.2} ({least:.2}-{greatest:.2})", median(ratios))
}

fn cell_json(cell: &Cell) -> Value {
    json!({
        "operationsPerSecond": cell.rates,
        "p50Ms": cell.p50_ms,
        "p99Ms": cell.p99_ms,
        "serverCpuUs": cell.server_cpu_us,
        "requestsPerOperation": cell.requests,
        "requestUnitsPerOperation": cell.request_units,
    })
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_rows(f)?;
        writeln!(f, "\ngoals")?;
        for goal in self.goals() {
            writeln!(f, "  {goal}")?;
        }
        Ok(())
    }
}

/// The columns of one way of writing in a line of the table.
struct Columns<'a>(&'a Cell);

impl fmt::Display for Columns<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cell = self.0;
        let latency = format!("{:.2} / {:.2}", median(&cell.p50_ms), median(&cell.p99_ms));
        write!(
            f,
            "{:>12.0} {latency:>15} {:>5.0} {:>5.2} {:>5.2}",
            median(&cell.rates),
            median(&cell.server_cpu_us),
            median(&cell.requests),
            median(&cell.request_units)
        )
    }
}
