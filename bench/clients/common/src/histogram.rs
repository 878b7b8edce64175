//! `Histogram`: latencies in logarithmic buckets. It has a fixed size in memory and takes a few
//! nanoseconds per sample. Its relative error is at most 1/64, far below the noise of any
//! machine. Values are microseconds.

use std::time::Duration;

/// The number of buckets per power of two. It limits the relative error to 1/64.
const SUB_BUCKETS: u64 = 64;
const SUB_BITS: u32 = SUB_BUCKETS.trailing_zeros();
/// The number of groups of `SUB_BUCKETS` buckets. They reach to 2^41 us (25 days), more than any run
/// may last.
const POWERS: usize = 36;

pub struct Histogram {
    buckets: Vec<u32>,
    count: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self::new()
    }
}

impl Histogram {
    pub fn new() -> Self {
        Self { buckets: vec![0; POWERS * SUB_BUCKETS as usize], count: 0 }
    }

    pub fn record(&mut self, latency: Duration) {
        let micros = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
        let bucket = bucket_of(micros).min(self.buckets.len() - 1);
        self.buckets[bucket] += 1;
        self.count += 1;
    }

    pub fn merge(&mut self, other: &Histogram) {
        for (mine, theirs) in self.buckets.iter_mut().zip(&other.buckets) {
            *mine += theirs;
        }
        self.count += other.count;
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    /// The latency in milliseconds that the share `quantile` (0 to 1) of the samples does not
    /// exceed; zero if there are no samples.
    pub fn quantile_ms(&self, quantile: f64) -> f64 {
        let rank = ((self.count as f64 * quantile).ceil() as u64).max(1);
        let mut seen = 0;
        for (bucket, samples) in self.buckets.iter().enumerate() {
            seen += u64::from(*samples);
            if seen >= rank {
                return middle_of(bucket) / 1_000.0;
            }
        }
        0.0
    }
}

/// The bucket of a value. Each value below `SUB_BUCKETS` has a bucket of its own. Above that,
/// every power of two is divided into `SUB_BUCKETS` equal parts.
fn bucket_of(micros: u64) -> usize {
    if micros < SUB_BUCKETS {
        return micros as usize;
    }
    let power = 63 - micros.leading_zeros() - SUB_BITS;
    let part = (micros >> power) - SUB_BUCKETS;
    ((u64::from(power) + 1) * SUB_BUCKETS + part) as usize
}

/// The middle of a bucket, in microseconds.
fn middle_of(bucket: usize) -> f64 {
    let bucket = bucket as u64;
    if bucket < SUB_BUCKETS {
        return bucket as f64;
    }
    let power = bucket / SUB_BUCKETS - 1;
    let low = (bucket % SUB_BUCKETS + SUB_BUCKETS) << power;
    low as f64 + (1u64 << power) as f64 / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_differs_from_the_exact_value_by_one_in_sixty_four_at_most() {
        let mut histogram = Histogram::new();
        for micros in 1..=100_000u64 {
            histogram.record(Duration::from_micros(micros));
        }
        for (quantile, exact) in [(0.5, 50.0), (0.99, 99.0), (1.0, 100.0)] {
            let got = histogram.quantile_ms(quantile);
            assert!((got - exact).abs() <= exact / 64.0, "{quantile}: {got} instead of {exact}");
        }
        assert_eq!(histogram.count(), 100_000);
    }

    #[test]
    fn a_larger_value_is_never_in_a_lower_bucket_and_the_largest_one_fits() {
        let mut last = 0;
        for shift in 0..40 {
            let bucket = bucket_of(1 << shift);
            assert!(bucket >= last);
            last = bucket;
        }
        Histogram::new().record(Duration::MAX);
    }
}
