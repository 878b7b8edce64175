//! What was counted, as it is handed out: plain data that serialises, so that
//! any exporter can take it.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

/// What a provider has done since it was opened, in this process.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ProviderMetrics {
    /// By method of the contract; `reconcile` is background work, `other` what
    /// no call asked for.
    pub methods: BTreeMap<String, MethodMetrics>,
    /// Requests of all methods.
    pub requests: u64,
    /// Request units of all methods.
    pub request_units: f64,
    /// Writes that were refused because someone else was faster: 409, 412, and
    /// batches that were refused.
    pub conflicts: u64,
    /// Answers that asked to wait: 429.
    pub throttles: u64,
    /// Requests beyond the first of their operation.
    pub retries: u64,
    /// How often storage was asked for work.
    pub polls: u64,
    /// Fetches that found work without asking storage for it first.
    pub fetches_from_hints: u64,
    /// Turns and activities taken whose lock had run out in another's hands.
    pub steals: u64,
    /// Messages delivered to other instances.
    pub messages_delivered: u64,
    /// How long the oldest message waited that was not delivered after its
    /// commit, when the reconciler last looked; `None` when there was none.
    pub outbox_age_ms: Option<u64>,
    /// How far the service's clock is ahead of this machine's.
    pub clock_offset_ms: i64,
}

/// What one method has done.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct MethodMetrics {
    /// Calls that ended, dropped ones included.
    pub calls: u64,
    /// Calls that returned an error.
    pub failures: u64,
    /// Requests to the database.
    pub requests: u64,
    /// Request units.
    pub request_units: f64,
    /// Writes that were refused because someone else was faster.
    pub conflicts: u64,
    /// Answers that asked to wait.
    pub throttles: u64,
    /// Requests beyond the first of their operation.
    pub retries: u64,
    /// How long calls took; of fetches, their waiting for work included.
    pub latency: Latency,
}

/// How long something took, often.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Latency {
    /// How often.
    pub count: u64,
    /// In all, in microseconds.
    pub total_us: u64,
    /// At most, in microseconds.
    pub max_us: u64,
    /// How often by size: the n-th are those below 2^n microseconds that are not
    /// in one before. No longer than needed.
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

    /// The mean; nothing of nothing.
    pub fn mean(&self) -> Duration {
        Duration::from_micros(self.total_us.checked_div(self.count).unwrap_or(0))
    }

    /// At most how long it took in this part of the cases, 0.5 for the median:
    /// right to a factor of two.
    pub fn quantile(&self, part: f64) -> Duration {
        let rank = (part.clamp(0.0, 1.0) * self.count as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (bucket, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= rank {
                let below = 1u64.checked_shl(bucket as u32).unwrap_or(u64::MAX);
                return Duration::from_micros(below.min(self.max_us));
            }
        }
        Duration::from_micros(self.max_us)
    }
}
