//! `Hottest`: the partition keys that have used most request units.
//!
//! The number of counted keys is bounded. When the table is full, a new key replaces the key with
//! the fewest request units and starts with the numbers of that key (the *space saving* algorithm).
//! So a key that uses many request units is always in the table. The number that is reported for it
//! is too high by at most the request units of the key that it replaced.

use std::collections::HashMap;

use perihelion_model::json::{Number, Value, object};

/// The most keys that are counted. The report has fewer keys: the more keys are counted, the
/// smaller the error of the report.
const KEYS_MAX: usize = 256;

/// The most keys in a report.
const REPORTED_MAX: usize = 20;

/// The most characters of a key that are stored.
const KEY_CHARS_MAX: usize = 200;

/// The hottest partition keys of an account.
#[derive(Debug, Default)]
pub(super) struct Hottest(HashMap<Partition, Heat>);

/// A logical partition.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Partition {
    pub(crate) database: String,
    pub(crate) container: String,
    /// The partition key as a client sends it: a JSON list.
    pub(crate) key: String,
}

/// The use of one partition key.
#[derive(Debug, Clone, Copy, Default)]
struct Heat {
    requests: u64,
    request_units: f64,
    throttled: u64,
}

impl Hottest {
    pub(super) fn count(&mut self, mut partition: Partition, status: u16, charge: f64) {
        if let Some((end, _)) = partition.key.char_indices().nth(KEY_CHARS_MAX) {
            partition.key.truncate(end);
        }
        let inherited = match self.0.contains_key(&partition) || self.0.len() < KEYS_MAX {
            true => Heat::default(),
            false => self.remove_coolest(),
        };
        let heat = self.0.entry(partition).or_insert(inherited);
        heat.requests += 1;
        heat.request_units += charge;
        heat.throttled += u64::from(status == 429);
    }

    fn remove_coolest(&mut self) -> Heat {
        let by_units = |one: &(&Partition, &Heat), other: &(&Partition, &Heat)| {
            one.1.request_units.total_cmp(&other.1.request_units)
        };
        let coolest = self.0.iter().min_by(by_units).map(|(partition, _)| partition.clone());
        coolest.and_then(|partition| self.0.remove(&partition)).unwrap_or_default()
    }

    /// The keys with the most request units, highest first.
    pub(super) fn report(&self) -> Value {
        let mut all: Vec<(&Partition, &Heat)> = self.0.iter().collect();
        all.sort_by(|one, other| other.1.request_units.total_cmp(&one.1.request_units));
        let rows = all.into_iter().take(REPORTED_MAX).map(|(partition, heat)| {
            let units = Number::from_f64((heat.request_units * 100.0).round() / 100.0);
            object([
                ("database", partition.database.as_str().into()),
                ("container", partition.container.as_str().into()),
                ("partitionKey", partition.key.as_str().into()),
                ("requests", heat.requests.into()),
                ("requestUnits", Value::Number(units.unwrap_or(Number::Int(0)))),
                ("throttled", heat.throttled.into()),
            ])
        });
        Value::Array(rows.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hot_key_is_found_among_many_and_the_memory_is_bounded() {
        let partition = |key: String| Partition { database: "d".into(), container: "c".into(), key };
        let mut hottest = Hottest::default();
        for number in 0..5_000 {
            hottest.count(partition(format!("[{number}]")), 200, 1.0);
            hottest.count(partition("[\"hot\"]".into()), if number == 7 { 429 } else { 200 }, 2.0);
        }
        assert_eq!(hottest.0.len(), KEYS_MAX);
        let report = hottest.report();
        let rows = report.as_array().unwrap();
        assert_eq!(rows.len(), REPORTED_MAX);
        let first = |name: &str| rows[0].get(name).cloned();
        assert_eq!(first("partitionKey"), Some("[\"hot\"]".into()));
        assert_eq!(first("requestUnits"), Some(Value::Number(Number::Int(10_000))));
        assert_eq!(first("throttled"), Some(1u64.into()));
    }

    #[test]
    fn a_long_key_is_cut() {
        let mut hottest = Hottest::default();
        let key = "ä".repeat(10_000);
        hottest.count(Partition { database: "d".into(), container: "c".into(), key }, 200, 1.0);
        assert!(hottest.0.keys().all(|partition| partition.key.chars().count() == KEY_CHARS_MAX));
    }
}
