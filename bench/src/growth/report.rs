//! The report of `growth`: one column for each number of documents, then the goals.

use std::fmt;

use serde_json::{Value, json};

use super::{Row, Size};
use crate::goal::{Bound, Goal};
use crate::statistics::median;

/// The most that the median time of a flat shape may grow from the smallest to the largest size. An
/// index is a tree, so a little growth is left.
const GROWTH_MAX: f64 = 2.0;

/// The most resident memory with the largest size, in megabytes.
const RESIDENT_MB_MAX: f64 = 400.0;

pub struct Report {
    pub sizes: Vec<Size>,
}

impl Report {
    fn goals(&self) -> Vec<Goal> {
        let (Some(first), Some(last)) = (self.sizes.first(), self.sizes.last()) else { return Vec::new() };
        let pairs = first.rows.iter().zip(&last.rows).filter(|(row, _)| row.shape.is_flat());
        let mut goals: Vec<Goal> = pairs
            .map(|(small, large)| Goal {
                name: format!("{}: {} over {}", small.shape.name(), last.documents, first.documents),
                value: Some(median(&large.p50_ms) / median(&small.p50_ms)),
                bound: Bound::AtMost(GROWTH_MAX),
            })
            .collect();
        goals.push(Goal {
            name: format!("MB resident with {} documents on disk", last.documents),
            value: Some(last.resident_mb),
            bound: Bound::AtMost(RESIDENT_MB_MAX),
        });
        goals
    }

    /// Writes one line with a figure of each size.
    fn write_figure(
        &self,
        f: &mut fmt::Formatter<'_>,
        name: &str,
        figure: impl Fn(&Size) -> f64,
    ) -> fmt::Result {
        write!(f, "{name:<46}")?;
        for size in &self.sizes {
            write!(f, " | {:>18.1}", figure(size))?;
        }
        writeln!(f)
    }

    pub fn json(&self) -> Value {
        let sizes: Vec<Value> = self.sizes.iter().map(size_json).collect();
        json!({ "sizes": sizes })
    }
}

fn size_json(size: &Size) -> Value {
    let rows: Vec<Value> = size.rows.iter().map(row_json).collect();
    json!({
        "documents": size.documents,
        "loadSeconds": size.load_seconds,
        "residentMb": size.resident_mb,
        "diskMb": size.disk_mb,
        "shapes": rows,
    })
}

fn row_json(row: &Row) -> Value {
    json!({ "shape": row.shape.name(), "p50Ms": row.p50_ms, "p99Ms": row.p99_ms })
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "1 KB documents in one partition, durable, one client; p50 / p99 in ms")?;
        write!(f, "{:<46}", "documents")?;
        for size in &self.sizes {
            write!(f, " | {:>18}", size.documents)?;
        }
        writeln!(f)?;
        let shape_count = self.sizes.first().map_or(0, |size| size.rows.len());
        for index in 0..shape_count {
            write!(f, "{:<46}", self.sizes[0].rows[index].shape.name())?;
            for size in &self.sizes {
                let row = &size.rows[index];
                let times = format!("{:.3} / {:.3}", median(&row.p50_ms), median(&row.p99_ms));
                write!(f, " | {times:>18}")?;
            }
            writeln!(f)?;
        }
        self.write_figure(f, "seconds to load (batches of 100, 4 clients)", |size| size.load_seconds)?;
        self.write_figure(f, "MB resident", |size| size.resident_mb)?;
        self.write_figure(f, "MB on disk", |size| size.disk_mb)?;
        writeln!(f, "\ngoals")?;
        self.goals().iter().try_for_each(|goal| writeln!(f, "  {goal}"))
    }
}
