//! The timed part: every workload on its places. The places take turns within each repeat, so
//! that other load on the machine affects all places. A measurement that fails is reported
//! and leaves a gap, and the run continues.

use std::collections::BTreeMap;

use serde_json::Value;

use super::environment::Environment;
use super::places::Place;
use super::plan::{Plan, Workload};
use crate::rotation::rotated;

/// The figures of one workload: for each place one value per repeat, `None` if the
/// measurement failed.
pub struct Row {
    pub cells: BTreeMap<Place, Vec<Option<Value>>>,
}

/// Measures every workload in every repeat. Returns a row for each workload of the plan, in
/// the order of the plan.
pub async fn run(environment: &Environment, plan: &Plan) -> Vec<Row> {
    let mut rows: Vec<Row> = plan.workloads.iter().map(|_| Row { cells: BTreeMap::new() }).collect();
    for repeat in 1..=plan.repeats {
        for (workload, row) in plan.workloads.iter().zip(&mut rows) {
            for place in rotated(&workload.places, repeat) {
                let figures = measure(environment, workload, place).await;
                row.cells.entry(place).or_default().push(figures);
            }
            eprintln!("  repeat {repeat} of {}: {}", plan.repeats, workload.name);
        }
    }
    rows
}

async fn measure(environment: &Environment, workload: &Workload, place: Place) -> Option<Value> {
    match environment.measure(place, &workload.arguments).await {
        Ok(figures) => Some(figures),
        Err(error) => {
            eprintln!("FAILED: {} by {}: {error:#}", workload.name, place.name());
            None
        }
    }
}

impl Row {
    /// One figure of one place, repeat by repeat.
    pub fn figures(&self, place: Place, name: &str) -> Vec<Option<f64>> {
        let cell = self.cells.get(&place).map_or(&[][..], Vec::as_slice);
        cell.iter().map(|figures| figures.as_ref()?[name].as_f64()).collect()
    }

    /// One place's figure divided by another's, for the repeats in which both have the figure.
    pub fn ratios(&self, name: &str, numerator: Place, denominator: Place) -> Vec<f64> {
        let (numerator, denominator) = (self.figures(numerator, name), self.figures(denominator, name));
        let ratios = numerator
            .iter()
            .zip(&denominator)
            .filter_map(|(numerator, denominator)| Some((*numerator)? / (*denominator)?));
        // A division by zero is left out: the provider in memory may end a workflow before its
        // start is recorded.
        ratios.filter(|ratio| ratio.is_finite()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_repeat_that_failed_on_one_place_has_no_ratio() {
        let cell = |figures: [Option<f64>; 3]| {
            figures.map(|figure| figure.map(|figure| json!({ "perSecond": figure }))).to_vec()
        };
        let row = Row {
            cells: BTreeMap::from([
                (Place::Sqlite, cell([Some(2.0), None, Some(4.0)])),
                (Place::Durable, cell([Some(10.0), Some(9.0), Some(8.0)])),
            ]),
        };
        assert_eq!(row.ratios("perSecond", Place::Durable, Place::Sqlite), [5.0, 2.0]);
        assert!(row.ratios("perSecond", Place::Durable, Place::Postgres).is_empty());
    }
}
