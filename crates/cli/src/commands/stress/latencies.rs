//! `Latencies`: a histogram of durations. The memory of the histogram does not grow with the
//! number of durations.

use std::time::Duration;

/// The end of a bucket divided by its start. A quantile is the end of a bucket, so it is at most 1 %
/// too long.
const BUCKET_RATIO: f64 = 1.01;

/// Counts of durations by size.
#[derive(Clone, Debug, Default)]
pub(super) struct Latencies {
    /// Bucket n has the durations from BUCKET_RATIO^n microseconds up to BUCKET_RATIO^(n+1). A day is in
    /// bucket 2530.
    buckets: Vec<u64>,
    count: u64,
    max: Duration,
}

impl Latencies {
    pub(super) fn record(&mut self, latency: Duration) {
        let microseconds = (latency.as_micros() as f64).max(1.0);
        let bucket = (microseconds.ln() / BUCKET_RATIO.ln()) as usize;
        if self.buckets.len() <= bucket {
            self.buckets.resize(bucket + 1, 0);
        }
        self.buckets[bucket] += 1;
        self.count += 1;
        self.max = self.max.max(latency);
    }

    /// A quantile: `share` is 0.5 for the median. At least this share of the durations are not
    /// longer than the result. `None` without durations.
    pub(super) fn quantile(&self, share: f64) -> Option<Duration> {
        let rank = (share * self.count as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        let bucket = self.buckets.iter().position(|count| {
            seen += count;
            seen >= rank
        })?;
        let end = Duration::from_secs_f64(BUCKET_RATIO.powf(bucket as f64 + 1.0) / 1e6);
        Some(end.min(self.max))
    }

    /// The longest duration; `None` without durations.
    pub(super) fn max(&self) -> Option<Duration> {
        (self.count > 0).then_some(self.max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_at_most_one_percent_too_long() {
        let mut latencies = Latencies::default();
        for milliseconds in (1..=1000).rev() {
            latencies.record(Duration::from_millis(milliseconds));
        }
        for (share, exact_ms) in [(0.0, 1.0), (0.5, 500.0), (0.95, 950.0), (0.99, 990.0), (1.0, 1000.0)] {
            let found_ms = latencies.quantile(share).expect("durations").as_secs_f64() * 1e3;
            assert!((exact_ms..=exact_ms * 1.0101).contains(&found_ms), "{share}: {found_ms}");
        }
        assert_eq!(latencies.max(), Some(Duration::from_secs(1)));
    }

    #[test]
    fn extreme_durations_are_counted_and_an_empty_histogram_has_no_quantile() {
        let mut latencies = Latencies::default();
        assert_eq!((latencies.quantile(0.5), latencies.max()), (None, None));
        let day = Duration::from_secs(24 * 3600);
        latencies.record(Duration::ZERO);
        latencies.record(day);
        assert!(latencies.quantile(0.5).expect("two durations") <= Duration::from_micros(2));
        assert_eq!(latencies.quantile(0.99), Some(day));
        assert!(latencies.buckets.len() <= 2532, "{}", latencies.buckets.len());
    }
}
