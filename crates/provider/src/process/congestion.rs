//! `Congestion`: an estimate of how long throttling delays the operations of this process
//! now. Other processes use the same container, so their commits are delayed about as long.
//! Takeovers wait that much longer: a commit that is only slow must not be run again by
//! another process, because that would cause more throttling.
//!
//! The estimate uses sums that decay with a half-life of five seconds. It is [`MEANS`] times the mean
//! duration of the throttled operations. It is smaller if few operations are throttled, or if
//! the last throttled operation is long ago. It never exceeds [`EXTRA_WAIT_MAX`].

use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

use crate::sync::lock;

/// The longest estimate. After a process has died under throttling, its work waits this much
/// longer at most.
pub(crate) const EXTRA_WAIT_MAX: Duration = Duration::from_secs(10);

/// The estimate has this many mean durations. A turn is a claim and a commit, each of which may be
/// throttled several times, so many turns take twice the mean, and few take six times.
const MEANS: f64 = 6.0;

/// The time in which a past operation loses half of its weight.
const HALF_LIFE: Duration = Duration::from_secs(5);

/// The share of throttled operations from which the estimate is not reduced.
const SHARE_FULL: f64 = 0.2;

/// The operations that ended lately, with decaying weights.
#[derive(Debug, Default)]
pub(crate) struct Congestion {
    sums: Mutex<Sums>,
}

#[derive(Debug, Default, Clone, Copy)]
struct Sums {
    /// The weight of all operations.
    operations: f64,
    /// The weight of the throttled operations.
    throttled: f64,
    /// The durations of the throttled operations in seconds, with their weights.
    throttled_seconds: f64,
    /// When the sums were last changed; `None` before the first operation.
    changed_at: Option<Instant>,
}

impl Congestion {
    /// Records an operation that has ended. `throttled_for` is its duration if it was
    /// throttled, with all its attempts.
    pub(crate) fn record(&self, throttled_for: Option<Duration>, now: Instant) {
        let mut sums = lock(&self.sums);
        *sums = sums.decayed(now);
        sums.operations += 1.0;
        if let Some(duration) = throttled_for {
            sums.throttled += 1.0;
            sums.throttled_seconds += duration.as_secs_f64();
        }
        sums.changed_at = Some(now);
    }

    /// How much longer takeovers wait now.
    pub(crate) fn extra_wait(&self, now: Instant) -> Duration {
        let sums = lock(&self.sums).decayed(now);
        if sums.throttled <= 0.0 {
            return Duration::ZERO;
        }
        let mean_seconds = sums.throttled_seconds / sums.throttled;
        let share = sums.throttled / sums.operations;
        let seconds = MEANS * mean_seconds * (share / SHARE_FULL).min(1.0) * sums.throttled.min(1.0);
        Duration::try_from_secs_f64(seconds).unwrap_or(EXTRA_WAIT_MAX).min(EXTRA_WAIT_MAX)
    }
}

impl Sums {
    /// The sums with the weights that they have at `now`.
    fn decayed(self, now: Instant) -> Sums {
        let Some(changed_at) = self.changed_at else { return self };
        let half_lives = now.saturating_duration_since(changed_at).as_secs_f64() / HALF_LIFE.as_secs_f64();
        let weight = (-half_lives).exp2();
        Sums {
            operations: self.operations * weight,
            throttled: self.throttled * weight,
            throttled_seconds: self.throttled_seconds * weight,
            changed_at: Some(now.max(changed_at)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Records one operation every 100 ms for two seconds. Every `nth` is throttled for
    /// `throttled_ms`. Returns the estimate in milliseconds right after, and after ten and
    /// sixty seconds without operations.
    fn estimates(nth: usize, throttled_ms: u64) -> (u128, u128, u128) {
        let (congestion, begun) = (Congestion::default(), Instant::now());
        let at = |ms| begun + Duration::from_millis(ms);
        for number in 1..=20 {
            let is_throttled = number % nth == 0;
            let duration = is_throttled.then(|| Duration::from_millis(throttled_ms));
            congestion.record(duration, at(100 * number as u64));
        }
        let after = |ms: u64| congestion.extra_wait(at(2000 + ms)).as_millis();
        (after(0), after(10_000), after(60_000))
    }

    #[test]
    fn takeovers_wait_longer_while_operations_are_throttled_and_not_for_ever() {
        let (now, _, later) = estimates(1, 800);
        assert!((4_650..=4_800).contains(&now) && later < 60, "{now} {later}");
        let (now, after_ten_seconds, _) = estimates(2, 800);
        assert!((4_650..=4_800).contains(&now), "{now}: half of them are throttled");
        assert!(after_ten_seconds <= 4_800, "{after_ten_seconds}");
        let (now, _, _) = estimates(20, 800);
        assert!((900..=1_500).contains(&now), "{now}: few are throttled");
        assert_eq!(estimates(1, 60_000).0, EXTRA_WAIT_MAX.as_millis(), "bounded");
    }

    #[test]
    fn without_throttling_takeovers_do_not_wait_longer() {
        let congestion = Congestion::default();
        assert_eq!(congestion.extra_wait(Instant::now()), Duration::ZERO);
        congestion.record(None, Instant::now());
        assert_eq!(congestion.extra_wait(Instant::now()), Duration::ZERO);
    }
}
