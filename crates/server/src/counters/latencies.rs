//! `Latencies`: how long requests took, as a histogram. A duration is counted under the upper bound of
//! its bucket. A bound has three significant bits, so it is at most a quarter (or one microsecond)
//! above the duration, and there are at most a few hundred buckets.

use std::collections::BTreeMap;
use std::time::Duration;

use perihelion_model::json::Value;

/// The significant bits of a bound.
const BITS: u32 = 3;

/// The numbers of requests by the upper bound of their duration, in microseconds.
#[derive(Debug, Default)]
pub(super) struct Latencies(BTreeMap<u64, u64>);

impl Latencies {
    pub(super) fn count(&mut self, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        *self.0.entry(upper_bound(micros)).or_default() += 1;
    }

    /// The bounds with their numbers, shortest first: `[[micros, requests], ...]`. Bounds without
    /// requests are left out.
    pub(super) fn report(&self) -> Value {
        let pair = |(bound, count): (&u64, &u64)| Value::Array(vec![(*bound).into(), (*count).into()]);
        Value::Array(self.0.iter().map(pair).collect())
    }
}

/// The upper bound of the bucket of a duration: a duration below it is in the bucket.
fn upper_bound(micros: u64) -> u64 {
    let shift = (u64::BITS - micros.leading_zeros()).saturating_sub(BITS);
    // The bound of the longest durations does not fit into a `u64`. It is `u64::MAX` instead.
    (micros >> shift).saturating_add(1).saturating_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use perihelion_model::json::{Style, to_text};

    use super::*;

    #[test]
    fn a_bound_is_at_most_a_quarter_above_the_duration() {
        for micros in (0..5000).chain([999_999, 1 << 40, u64::MAX - 1]) {
            let bound = upper_bound(micros);
            assert!(bound > micros && bound - micros <= 1 + micros / 4, "{micros} {bound}");
        }
        assert_eq!(upper_bound(u64::MAX), u64::MAX);
    }

    #[test]
    fn the_report_has_the_requests_of_each_bound() {
        let mut latencies = Latencies::default();
        for micros in [900, 910, 40] {
            latencies.count(Duration::from_micros(micros));
        }
        assert_eq!(to_text(&latencies.report(), Style::Point), "[[48,1],[1024,2]]");
    }
}
