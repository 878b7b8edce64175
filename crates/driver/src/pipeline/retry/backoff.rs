//! Waits before retries: doubling from a first wait up to a longest one, and
//! spread by a quarter either way, so that clients that failed at the same time
//! do not retry at the same time.
//!
//! For every count and every sample, the wait is at most five quarters of the
//! longest wait.

use std::time::Duration;

/// A series of waits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Backoff {
    /// The first wait, before spreading.
    pub(crate) first: Duration,
    /// The longest wait, before spreading.
    pub(crate) longest: Duration,
}

/// The largest share by which a wait is shortened or lengthened.
const SPREAD: f64 = 0.25;

/// The sample that is used instead of one that is not between 0 and 1.
const MIDDLE: f64 = 0.5;

impl Backoff {
    /// The wait before retry `number` (the first is 0), spread.
    pub(crate) fn wait(self, number: u32, jitter: f64) -> Duration {
        let factor = 1.0 - SPREAD + 2.0 * SPREAD * sample(jitter);
        self.unspread(number).mul_f64(factor)
    }

    /// The wait before retry `number` when the first `immediate` retries do not
    /// wait.
    pub(crate) fn wait_after(self, immediate: u32, number: u32, jitter: f64) -> Duration {
        match number.checked_sub(immediate) {
            Some(number) => self.wait(number, jitter),
            None => Duration::ZERO,
        }
    }

    /// The wait before retry `number`, not spread.
    pub(crate) fn unspread(self, number: u32) -> Duration {
        let factor = 2_u32.checked_pow(number).unwrap_or(u32::MAX);
        self.first.saturating_mul(factor).min(self.longest)
    }
}

/// The sample, or the middle when it is not between 0 and 1.
pub(crate) fn sample(jitter: f64) -> f64 {
    if (0.0..=1.0).contains(&jitter) { jitter } else { MIDDLE }
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
    fn waits_are_spread_by_a_quarter() {
        assert_eq!(BACKOFF.wait(1, 0.0), Duration::from_millis(150));
        assert_eq!(BACKOFF.wait(1, 1.0), Duration::from_millis(250));
    }

    #[test]
    fn the_first_retries_may_be_immediate() {
        let waits = [0, 1, 2, 3].map(|number| BACKOFF.wait_after(2, number, 0.5).as_millis());
        assert_eq!(waits, [0, 0, 100, 200]);
    }

    #[test]
    fn an_invalid_sample_counts_as_the_middle() {
        for jitter in [f64::NAN, f64::INFINITY, -0.1, 1.1] {
            assert_eq!(BACKOFF.wait(0, jitter), Duration::from_millis(100), "{jitter}");
        }
    }
}
