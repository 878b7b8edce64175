//! `Counters`: requests and request units by region and operation, and by physical partition, and how
//! long requests took, for the management interface. Without that interface only the open
//! connections are counted.

mod hottest;
mod latencies;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use perihelion_engine::RangeId;
use perihelion_model::json::{Number, Object, Value, object};

use self::hottest::Hottest;
pub(crate) use self::hottest::Partition;
use self::latencies::Latencies;
use crate::operation::Operation;
use crate::regions::RegionNames;

/// The most ranges that are counted. Each range has labels of its own in the metrics, and a
/// monitoring system keeps a series for each. Requests to further ranges are counted by operation
/// only, until a snapshot drops ranges that no longer exist.
const RANGES_MAX: usize = 1000;

/// The counters of an account.
pub(crate) struct Counters {
    is_enabled: bool,
    /// By the region's index and the operation.
    counters: Mutex<BTreeMap<(usize, Operation), Counter>>,
    hottest: Mutex<Hottest>,
    /// Requests that are about one partition key.
    one_key: Mutex<Counter>,
    latencies: Mutex<Latencies>,
    ranges: Mutex<BTreeMap<RangeName, Counter>>,
    connections: AtomicUsize,
}

/// A physical partition, by name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RangeName {
    pub(crate) database: String,
    pub(crate) container: String,
    pub(crate) range: RangeId,
}

/// The sums of some requests, such as all requests of one operation. `statuses` counts the
/// requests by HTTP status.
#[derive(Debug, Clone, Default)]
pub(crate) struct Counter {
    pub(crate) requests: u64,
    pub(crate) request_units: f64,
    pub(crate) statuses: BTreeMap<u16, u64>,
}

impl Counters {
    pub(crate) fn new(is_enabled: bool) -> Self {
        Counters {
            is_enabled,
            counters: Mutex::default(),
            hottest: Mutex::default(),
            one_key: Mutex::default(),
            latencies: Mutex::default(),
            ranges: Mutex::default(),
            connections: AtomicUsize::new(0),
        }
    }

    /// Counts a request. `range` is called only if something is counted.
    pub(crate) fn count(
        &self,
        (region, operation): (usize, Operation),
        status: u16,
        charge: f64,
        range: impl FnOnce() -> Option<RangeName>,
    ) {
        if !self.is_enabled {
            return;
        }
        lock(&self.counters).entry((region, operation)).or_default().count(status, charge);
        let Some(range) = range() else { return };
        let mut ranges = lock(&self.ranges);
        if ranges.len() < RANGES_MAX || ranges.contains_key(&range) {
            ranges.entry(range).or_default().count(status, charge);
        }
    }

    pub(crate) fn connection_opened(&self) {
        self.connections.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn connection_closed(&self) {
        self.connections.fetch_sub(1, Ordering::Relaxed);
    }

    /// The number of open connections.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// A copy of the counters of all operations and of the ranges that exist. The counters of
    /// other ranges are dropped and make room for new ranges.
    pub(crate) fn snapshot(&self, exists: impl Fn(&RangeName) -> bool) -> Snapshot {
        let mut ranges = lock(&self.ranges);
        ranges.retain(|range, _| exists(range));
        Snapshot { operations: lock(&self.counters).clone(), ranges: ranges.clone() }
    }

    /// Counts how long a request took.
    pub(crate) fn count_latency(&self, took: Duration) {
        if self.is_enabled {
            lock(&self.latencies).count(took);
        }
    }

    /// Counts a request for the reports of requests to one partition key, and of the hottest
    /// partitions. `partition` is `None` if the request is not about one partition key.
    pub(crate) fn count_partition(
        &self,
        partition: impl FnOnce() -> Option<Partition>,
        status: u16,
        charge: f64,
    ) {
        if self.is_enabled
            && let Some(partition) = partition()
        {
            lock(&self.one_key).count(status, charge);
            lock(&self.hottest).count(partition, status, charge);
        }
    }

    pub(crate) fn clear(&self) {
        *lock(&self.hottest) = Hottest::default();
        *lock(&self.one_key) = Counter::default();
        *lock(&self.latencies) = Latencies::default();
        lock(&self.counters).clear();
        lock(&self.ranges).clear();
    }

    /// The sums of all regions together and, if there are several, of each region.
    pub(crate) fn report(&self, regions: &RegionNames) -> Value {
        let counters = lock(&self.counters);
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
        let one_key = lock(&self.one_key);
        let sums = [("requests", one_key.requests.into()), ("requestUnits", units(one_key.request_units))];
        report.set("onePartitionKey", object(sums));
        report.set("latencies", lock(&self.latencies).report());
        report.set("hottestPartitions", lock(&self.hottest).report());
        Value::Object(report)
    }
}

/// A copy of the counters.
pub(crate) struct Snapshot {
    pub(crate) operations: BTreeMap<(usize, Operation), Counter>,
    pub(crate) ranges: BTreeMap<RangeName, Counter>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Counter {
    fn count(&mut self, status: u16, charge: f64) {
        self.requests += 1;
        self.request_units += charge;
        *self.statuses.entry(status).or_default() += 1;
    }

    fn add(&mut self, other: &Counter) {
        self.requests += other.requests;
        self.request_units += other.request_units;
        for (status, count) in &other.statuses {
            *self.statuses.entry(*status).or_default() += count;
        }
    }
}

/// Request units in a report, with two decimals.
fn units(charge: f64) -> Value {
    Value::Number(Number::from_f64((charge * 100.0).round() / 100.0).unwrap_or(Number::Int(0)))
}

/// The requests and request units of all operations together and of each operation.
fn summary<'a>(counters: impl Iterator<Item = (&'a Operation, &'a Counter)>) -> Object {
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

#[cfg(test)]
mod tests {
    use perihelion_model::json::{Style, to_text};

    use super::*;

    /// Every series costs memory in the monitoring system.
    #[test]
    fn the_number_of_counted_ranges_is_limited() {
        let counters = Counters::new(true);
        let range_name = |range| RangeName { database: "shop".into(), container: "orders".into(), range };
        for range in 0..RANGES_MAX as RangeId + 10 {
            counters.count((0, Operation::ReadItem), 200, 1.0, || Some(range_name(range)));
        }
        counters.count((0, Operation::ReadItem), 429, 0.0, || Some(range_name(0)));
        let snapshot = counters.snapshot(|_| true);
        assert_eq!(snapshot.ranges.len(), RANGES_MAX);
        assert_eq!(snapshot.ranges[&range_name(0)].statuses[&429], 1);
        assert_eq!(snapshot.operations[&(0, Operation::ReadItem)].requests, RANGES_MAX as u64 + 11);
    }

    #[test]
    fn requests_to_one_partition_key_and_latencies_are_counted_until_they_are_cleared() {
        let counters = Counters::new(true);
        let partition = || Partition { database: "d".into(), container: "c".into(), key: "[1]".into() };
        counters.count_partition(|| Some(partition()), 200, 2.5);
        counters.count_partition(|| None, 200, 10.0);
        counters.count_latency(Duration::from_micros(3));
        let report = |counters: &Counters| {
            let report = counters.report(&RegionNames::default());
            ["onePartitionKey", "latencies"].map(|name| to_text(report.get(name).unwrap(), Style::Point))
        };
        assert_eq!(report(&counters), [r#"{"requests":1,"requestUnits":2.5}"#, "[[4,1]]"]);
        counters.clear();
        assert_eq!(report(&counters), [r#"{"requests":0,"requestUnits":0}"#, "[]"]);
    }

    /// Story of a bug: a test suite created a container for each test. After a thousand containers,
    /// the ranges of new containers were not counted.
    #[test]
    fn counters_of_deleted_ranges_make_room_for_new_ranges() {
        let counters = Counters::new(true);
        let range_name =
            |name: &str, range| RangeName { database: "d".into(), container: name.into(), range };
        let count = |name: &str, range| {
            counters.count((0, Operation::ReadItem), 200, 1.0, || Some(range_name(name, range)));
        };
        (0..RANGES_MAX as RangeId).for_each(|range| count("old", range));
        let snapshot = counters.snapshot(|range| range.container != "old");
        assert!(snapshot.ranges.is_empty());
        count("new", 0);
        assert_eq!(counters.snapshot(|_| true).ranges[&range_name("new", 0)].requests, 1);
    }
}
