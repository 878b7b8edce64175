//! Backoff: the waits before retries. The wait doubles with each retry, up to a
//! longest wait. Jitter makes a wait up to a quarter shorter or longer, so that clients
//! that failed at the same time do not retry at the same time.
//!
//! What always holds: a wait is at most five quarters of the longest wait.

use std::time::Duration;

/// A series of waits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Backoff {
    /// The first wait, without jitter.
    pub(crate) first: Duration,
    /// The longest wait, without jitter.
    pub(crate) longest: Duration,
}

/// The largest share of a wait that jitter adds or takes away.
const JITTER_SHARE: f64 = 0.25;

/// The jitter sample that leaves a wait unchanged. It replaces an invalid sample.
const MIDDLE_SAMPLE: f64 = 0.5;

impl Backoff {
    /// The wait before retry `number`, which counts from 0. `jitter` is a sample from 0
    /// to 1.
    pub(crate) fn wait(self, number: u32, jitter: f64) -> Duration {
        let factor = 1.0 - JITTER_SHARE + 2.0 * JITTER_SHARE * valid_sample(jitter);
        self.without_jitter(number).mul_f64(factor)
    }

    /// The wait before retry `number` when the first `immediate` retries do not
    /// wait. The retry after them waits for `first`.
    pub(crate) fn wait_after(self, immediate: u32, number: u32, jitter: f64) -> Duration {
        match number.checked_sub(immediate) {
            Some(number) => self.wait(number, jitter),
            None => Duration::ZERO,
        }
    }

    /// The wait before retry `number`, without jitter.
    pub(crate) fn without_jitter(self, number: u32) -> Duration {
        let factor = 2_u32.checked_pow(number).unwrap_or(u32::MAX);
        self.first.saturating_mul(factor).min(self.longest)
    }
}

/// The jitter sample, or [`MIDDLE_SAMPLE`] when it is not between 0 and 1.
pub(crate) fn valid_sample(jitter: f64) -> f64 {
    if (0.0..=1.0).contains(&jitter) { jitter } else { MIDDLE_SAMPLE }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BACKOFF: Backoff = Backoff { first: Duration::from_millis(100), longest: Duration::from_secs(1) };

    #[test]
    fn waits_double_up_to_the_longest() {
        let waits = [0, 1, 2, 3, 4, 31, 32, u32::MAX].map(|number| BACKOFF.wait(number, 0.5).as_millis());
        assert_eq!(waits, [100, 200, 400, 800, 1000, 1000, 1000, 1000]);
    }

    #[test]
    fn jitter_changes_a_wait_by_up_to_a_quarter() {
        assert_eq!(BACKOFF.wait(1, 0.0), Duration::from_millis(150));
        assert_eq!(BACKOFF.wait(1, 1.0), Duration::from_millis(250));
    }

    #[test]
    fn the_first_retries_may_be_immediate() {
        let waits = [0, 1, 2, 3].map(|number| BACKOFF.wait_after(2, number, 0.5).as_millis());
        assert_eq!(waits, [0, 0, 100, 200]);
    }

    #[test]
    fn an_invalid_jitter_sample_leaves_the_wait_unchanged() {
        for jitter in [f64::NAN, f64::INFINITY, -0.1, 1.1] {
            assert_eq!(BACKOFF.wait(0, jitter), Duration::from_millis(100), "{jitter}");
        }
    }
}
