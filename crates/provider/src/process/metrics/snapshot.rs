//! The public metrics: plain data that any exporter can serialise.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

/// The metrics of a provider since it was opened.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ProviderMetrics {
    /// Metrics by the name of the method: the methods of duroxide's provider traits, and the
    /// methods of `CosmosDBProvider` for tools, such as `list`. The name `reconcile` is the
    /// reconciler. The name `other` stands for requests outside of any call: heartbeats and
    /// background cleanup.
    pub methods: BTreeMap<String, MethodMetrics>,
    /// Requests of all methods.
    pub requests: u64,
    /// Request units of all methods.
    pub request_units: f64,
    /// Request units of requests that are not about one instance: polls, lists, counts and
    /// heartbeats. Distributed transactions are left out.
    pub background_request_units: f64,
    /// Writes that lost against another writer: 409, 412, and refused batches.
    pub conflicts: u64,
    /// Throttled responses: 429.
    pub throttles: u64,
    /// Requests beyond the first of their operation.
    pub retries: u64,
    /// Polls.
    pub polls: u64,
    /// Fetches that found work without a poll of their own.
    pub fetches_from_hints: u64,
    /// Turns and activities taken after the lock of another process expired.
    pub steals: u64,
    /// Messages delivered to other instances. A message that was delivered again counts again.
    pub messages_delivered: u64,
    /// The age of the oldest outbox that was not delivered after its commit, when the
    /// reconciler last looked; `None` if there was none.
    pub outbox_age_ms: Option<u64>,
    /// How far the service's clock is ahead of this machine's, in milliseconds, as estimated.
    pub clock_offset_ms: i64,
}

/// The metrics of one method.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct MethodMetrics {
    /// Calls that ended, including dropped ones.
    pub calls: u64,
    /// Calls that returned an error.
    pub failures: u64,
    /// Requests to the database.
    pub requests: u64,
    /// Request units.
    pub request_units: f64,
    /// Writes that lost against another writer.
    pub conflicts: u64,
    /// Throttled responses.
    pub throttles: u64,
    /// Requests beyond the first of their operation.
    pub retries: u64,
    /// The duration of calls. Fetches include their wait for work.
    pub latency: Latency,
}

/// A histogram of durations.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Latency {
    /// The number of durations.
    pub count: u64,
    /// The sum of the durations, in microseconds.
    pub total_us: u64,
    /// The longest duration, in microseconds.
    pub max_us: u64,
    /// Counts by size: bucket n has the durations below 2^n microseconds that are not in
    /// an earlier bucket. Empty buckets at the end are left out.
    pub buckets: Vec<u64>,
}

impl Latency {
    pub(crate) fn record(&mut self, elapsed: Duration) {
        let us = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX);
        self.count += 1;
        self.total_us = self.total_us.saturating_add(us);
        self.max_us = self.max_us.max(us);
        let bucket = (u64::BITS - us.leading_zeros()) as usize;
        if self.buckets.len() <= bucket {
            self.buckets.resize(bucket + 1, 0);
        }
        self.buckets[bucket] += 1;
    }

    /// The mean; zero without durations.
    pub fn mean(&self) -> Duration {
        Duration::from_micros(self.total_us.checked_div(self.count).unwrap_or(0))
    }

    /// An upper bound of a quantile; `part` is 0.5 for the median. The bound is at most twice
    /// the quantile, or one microsecond if the quantile is less. Zero without durations.
    pub fn quantile(&self, part: f64) -> Duration {
        let rank = (part.clamp(0.0, 1.0) * self.count as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (bucket, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= rank {
                let upper_bound_us = 1u64.checked_shl(bucket as u32).unwrap_or(u64::MAX);
                return Duration::from_micros(upper_bound_us.min(self.max_us));
            }
        }
        Duration::from_micros(self.max_us)
    }
}
