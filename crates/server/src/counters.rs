//! `Counters`: requests and request units by region and operation, for the
//! management interface. Without that interface nothing is counted.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use perihelion_model::json::{Number, Object, Value, object};

use crate::operation::Operation;
use crate::regions::RegionNames;

/// The counters of an account.
pub(crate) struct Counters {
    is_enabled: bool,
    /// By the region's index and the operation.
    counters: Mutex<BTreeMap<(usize, Operation), Counter>>,
}

/// The sums of one operation, in one region or in all regions. `statuses` counts the
/// requests by HTTP status.
#[derive(Debug, Clone, Default)]
struct Counter {
    requests: u64,
    request_units: f64,
    statuses: BTreeMap<u16, u64>,
}

impl Counters {
    pub(crate) fn new(is_enabled: bool) -> Self {
        Counters { is_enabled, counters: Mutex::default() }
    }

    pub(crate) fn count(&self, region: usize, operation: Operation, status: u16, charge: f64) {
        if !self.is_enabled {
            return;
        }
        let mut counters = self.counters.lock().unwrap_or_else(PoisonError::into_inner);
        let counter = counters.entry((region, operation)).or_default();
        counter.requests += 1;
        counter.request_units += charge;
        *counter.statuses.entry(status).or_default() += 1;
    }

    pub(crate) fn clear(&self) {
        self.counters.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// The sums of all regions together and, if there are several, of each region.
    pub(crate) fn report(&self, regions: &RegionNames) -> Value {
        let counters = self.counters.lock().unwrap_or_else(PoisonError::into_inner);
        let mut total: BTreeMap<Operation, Counter> = BTreeMap::new();
        for ((_, operation), counter) in counters.iter() {
            total.entry(*operation).or_default().add(counter);
        }
        let mut report = summary(total.iter());
        if regions.len() > 1 {
            let mut by_region = Object::new();
            for (region, name) in regions.iter().enumerate() {
                let of_region = counters.iter().filter(|((counted, _), _)| *counted == region);
                let sums = summary(of_region.map(|((_, operation), counter)| (operation, counter)));
                by_region.set(name, Value::Object(sums));
            }
            report.set("regions", Value::Object(by_region));
        }
        Value::Object(report)
    }
}

impl Counter {
    fn add(&mut self, other: &Counter) {
        self.requests += other.requests;
        self.request_units += other.request_units;
        for (status, count) in &other.statuses {
            *self.statuses.entry(*status).or_default() += count;
        }
    }
}

/// The requests and request units of all operations together and of each operation.
fn summary<'a>(counters: impl Iterator<Item = (&'a Operation, &'a Counter)>) -> Object {
    let units = |charge: f64| {
        Value::Number(Number::from_f64((charge * 100.0).round() / 100.0).unwrap_or(Number::Int(0)))
    };
    let (mut sum, mut operations) = (Counter::default(), Object::new());
    for (operation, counter) in counters {
        sum.add(counter);
        let mut statuses = Object::new();
        for (status, count) in &counter.statuses {
            statuses.set(status.to_string(), (*count).into());
        }
        let sums = object([
            ("requests", counter.requests.into()),
            ("requestUnits", units(counter.request_units)),
            ("statuses", Value::Object(statuses)),
        ]);
        operations.set(operation.name(), sums);
    }
    let mut report = Object::new();
    report.set("requests", sum.requests.into());
    report.set("requestUnits", units(sum.request_units));
    report.set("operations", Value::Object(operations));
    report
}
