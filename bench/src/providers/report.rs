//! The report of a run: the figures as a table, the counts, whether the goals are met, and all
//! of it as JSON. A figure is the median over the repeats. A ratio is the median of the
//! ratios within each repeat. A slow minute of the machine affects all places of a repeat
//! alike, so it cancels out in a ratio.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Map, Value, json};

use super::counts::Count;
use super::goals::RATIO_GOALS;
use super::places::Place;
use super::plan::{Plan, Workload};
use super::rounds::Row;
use crate::goal::{Bound, Goal};
use crate::statistics::{median, spread};

/// The goals for the requests and the request units per smallest workflow.
const GOAL_REQUESTS: f64 = 6.0;
const GOAL_REQUEST_UNITS: f64 = 65.0;

pub struct Report {
    pub plan: Plan,
    /// One row for each workload of the plan, in the same order.
    pub rows: Vec<Row>,
    pub counts: BTreeMap<Place, Count>,
}

impl Report {
    /// The workloads of the plan with their rows.
    fn measured(&self) -> impl Iterator<Item = (&Workload, &Row)> {
        self.plan.workloads.iter().zip(&self.rows)
    }

    fn write_timed(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Plan { repeats, workers, .. } = &self.plan;
        writeln!(f, "medians of {repeats} repeats, {workers} worker threads per process")?;
        write!(f, "{:<44}", "")?;
        for place in Place::ALL {
            write!(f, " {:>9}", place.name())?;
        }
        writeln!(f)?;
        for (workload, row) in self.measured() {
            self.write_line(
                f,
                &format!("{}, {}", workload.name, workload.unit),
                row,
                workload.figure,
                workload.digits,
            )?;
            for (figure, name, digits) in further_figures(workload) {
                self.write_line(f, name, row, figure, *digits)?;
            }
        }
        Ok(())
    }

    fn write_line(
        &self,
        f: &mut fmt::Formatter<'_>,
        name: &str,
        row: &Row,
        figure: &str,
        digits: usize,
    ) -> fmt::Result {
        write!(f, "{name:<44}")?;
        for place in Place::ALL {
            let values: Vec<f64> = row.figures(place, figure).into_iter().flatten().collect();
            if values.is_empty() {
                write!(f, " {:>9}", "-")?;
            } else {
                write!(f, " {:>9.digits$}", median(&values))?;
            }
        }
        writeln!(f)
    }

    /// Writes the ratios of our places to the others, each with the least and the greatest.
    fn write_ratios(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\nratios within each repeat: median (least-greatest)")?;
        for (workload, row) in self.measured() {
            for denominator in [Place::Ceiling, Place::Sqlite, Place::Postgres, Place::Published] {
                let against: Vec<String> = [Place::Memory, Place::Durable, Place::Wire, Place::Clear]
                    .into_iter()
                    .filter_map(|numerator| {
                        let ratios = row.ratios(workload.figure, numerator, denominator);
                        let text = || format!("{} {}", numerator.name(), spread_with_decimals(&ratios));
                        (!ratios.is_empty()).then(text)
                    })
                    .collect();
                if !against.is_empty() {
                    writeln!(
                        f,
                        "  {:<30} over {:<9}  {}",
                        workload.name,
                        denominator.name(),
                        against.join("  ")
                    )?;
                }
            }
        }
        Ok(())
    }

    fn write_counted(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, count) in &self.counts {
            let by_operation: Vec<String> =
                count.operations.iter().map(|(name, count)| format!("{name} {count:.2}")).collect();
            writeln!(
                f,
                "\nper smallest workflow, {}: {:.2} requests, {:.1} RU ({}); {:.2} fetches came back empty",
                place.name(),
                count.requests,
                count.request_units,
                by_operation.join(", "),
                count.empty_fetches,
            )?;
        }
        Ok(())
    }

    fn goals(&self) -> Vec<Goal> {
        let mut goals = Vec::new();
        for ratio_goal in &RATIO_GOALS {
            for (workload, row) in self.measured().filter(|(workload, _)| workload.part == ratio_goal.part())
            {
                goals.push(ratio_goal.goal(&workload.name, |numerator, denominator| {
                    let ratios = row.ratios(workload.figure, numerator, denominator);
                    (!ratios.is_empty()).then(|| median(&ratios))
                }));
            }
        }
        if let Some(count) = self.counts.get(&Place::Wire) {
            let goal = |name: &str, value, bound| Goal { name: name.into(), value: Some(value), bound };
            goals.push(goal("requests per smallest workflow", count.requests, Bound::AtMost(GOAL_REQUESTS)));
            goals.push(goal(
                "RU per smallest workflow",
                count.request_units,
                Bound::AtMost(GOAL_REQUEST_UNITS),
            ));
        }
        goals
    }

    pub fn json(&self) -> Value {
        let workloads: Vec<Value> = self
            .measured()
            .map(|(workload, row)| {
                let places: Map<String, Value> = row
                    .cells
                    .iter()
                    .map(|(place, figures)| (place.name().to_owned(), json!(figures)))
                    .collect();
                json!({ "workload": workload.name, "figure": workload.figure, "places": places })
            })
            .collect();
        let counts: Map<String, Value> =
            self.counts.iter().map(|(place, count)| (place.name().to_owned(), count_json(count))).collect();
        json!({
            "repeats": self.plan.repeats,
            "workers": self.plan.workers,
            "workloads": workloads,
            "perSmallestWorkflow": counts,
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_timed(f)?;
        self.write_ratios(f)?;
        self.write_counted(f)?;
        writeln!(f, "\ngoals")?;
        self.goals().iter().try_for_each(|goal| writeln!(f, "  {goal}"))
    }
}

/// Further figures of a workload that get a line: the figure's name in a program's output, its
/// name in the table, and its decimals.
fn further_figures(workload: &Workload) -> &'static [(&'static str, &'static str, usize)] {
    match workload.figure {
        "perSecond" => &[("failed", "  of these lost", 0)],
        "commitP50Ms" => {
            &[("commitP99Ms", "  p99 ms", 2), ("seenP50Ms", "  as a waiting client sees it, p50 ms", 1)]
        }
        _ => &[],
    }
}

/// The median, the least and the greatest of ratios. Small ratios have more decimals.
fn spread_with_decimals(ratios: &[f64]) -> String {
    if median(ratios) >= 3.0 {
        return spread(ratios);
    }
    let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
    let greatest = ratios.iter().copied().fold(0.0, f64::max);
    format!("{:.3}x ({least:.3}-{greatest:.3})", median(ratios))
}

fn count_json(count: &Count) -> Value {
    json!({
        "requests": count.requests,
        "requestUnits": count.request_units,
        "emptyFetches": count.empty_fetches,
        "operations": count.operations,
    })
}
