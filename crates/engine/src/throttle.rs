//! Throttling: a token bucket of request units per physical partition. The containers that
//! share the throughput of their database share one bucket instead.
//!
//! A bucket holds at most the units of one second. A request is admitted while
//! the bucket is not empty. Its charge is taken afterwards, which may leave a debt. So a
//! batch of 700 units is served at 400 units per second, as in the service, and later
//! requests are refused until the debt is paid.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::keys::{ContainerNumber, RangeId};
use crate::refusal::Refusal;

/// The bucket that a request draws from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Bucket {
    /// A physical partition of a container with throughput of its own.
    Partition(ContainerNumber, RangeId),
    /// A database whose containers share its throughput.
    Database(u32),
}

/// The content of a bucket.
#[derive(Debug, Clone, Copy)]
struct Level {
    /// The request units that are left; negative for a debt.
    units: f64,
    /// The latest `now` of [`Throttle::admit`]. Units that accrued before it are in `units`.
    refilled_at: Duration,
}

/// All buckets.
#[derive(Debug, Default)]
pub(crate) struct Throttle {
    levels: Mutex<HashMap<Bucket, Level>>,
}

/// The longest wait that a refusal suggests, so that a large debt does not make
/// clients wait for minutes.
const RETRY_AFTER_MS_MAX: u64 = 5_000;

/// A `now` that is at most this much before the latest `now` belongs to a request that another
/// request overtook. A greater difference means that the clock was set back.
const CLOCK_STEP_MIN: Duration = Duration::from_secs(1);

impl Throttle {
    /// Admits a request, or refuses it with a time to wait. `now` is the time since any
    /// fixed moment. A `now` that is before the `now` of an earlier request adds no units.
    pub(crate) fn admit(&self, bucket: Bucket, units_per_second: f64, now: Duration) -> Result<(), Refusal> {
        let level = self.refill(bucket, units_per_second, now);
        if level > 0.0 {
            return Ok(());
        }
        let wait_ms = (-level / units_per_second * 1000.0).ceil() as u64 + 1;
        Err(Refusal::throttled(wait_ms.min(RETRY_AFTER_MS_MAX)))
    }

    /// Takes the charge of an admitted request.
    pub(crate) fn spend(&self, bucket: Bucket, charge: f64) {
        let mut levels = self.levels.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(level) = levels.get_mut(&bucket) {
            level.units -= charge;
        }
    }

    /// Adds the units that have accrued since the last refill. Returns the units that are
    /// then in the bucket. A new bucket has the units of one second.
    fn refill(&self, bucket: Bucket, units_per_second: f64, now: Duration) -> f64 {
        let mut levels = self.levels.lock().unwrap_or_else(PoisonError::into_inner);
        let level = levels.entry(bucket).or_insert(Level { units: units_per_second, refilled_at: now });
        let elapsed_seconds = now.saturating_sub(level.refilled_at).as_secs_f64();
        level.units = (level.units + elapsed_seconds * units_per_second).min(units_per_second);
        // A clock that is set back must not stop the refill until it has caught up.
        let is_set_back = level.refilled_at.saturating_sub(now) > CLOCK_STEP_MIN;
        level.refilled_at = if is_set_back { now } else { level.refilled_at.max(now) };
        level.units
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_refused_until_a_debt_is_paid() {
        let (throttle, bucket) = (Throttle::default(), Bucket::Partition(1, 0));
        let at = Duration::from_millis;
        assert!(throttle.admit(bucket, 400.0, at(0)).is_ok());
        throttle.spend(bucket, 600.0);
        let refusal = throttle.admit(bucket, 400.0, at(0)).unwrap_err();
        assert_eq!((refusal.status, refusal.sub_status), (429, Some(3200)));
        assert_eq!(refusal.retry_after_ms, Some(501));
        assert!(throttle.admit(bucket, 400.0, at(490)).is_err());
        assert!(throttle.admit(bucket, 400.0, at(510)).is_ok());
    }

    #[test]
    fn an_idle_bucket_saves_the_units_of_at_most_one_second() {
        let (throttle, bucket) = (Throttle::default(), Bucket::Database(1));
        assert!(throttle.admit(bucket, 100.0, Duration::ZERO).is_ok());
        throttle.spend(bucket, 50.0);
        assert!(throttle.admit(bucket, 100.0, Duration::from_secs(60)).is_ok());
        throttle.spend(bucket, 101.0);
        assert!(throttle.admit(bucket, 100.0, Duration::from_secs(60)).is_err());
    }

    #[test]
    fn a_clock_that_is_set_back_does_not_stop_the_refill() {
        let (throttle, bucket) = (Throttle::default(), Bucket::Database(1));
        let at = Duration::from_secs;
        assert!(throttle.admit(bucket, 1000.0, at(3600)).is_ok());
        throttle.spend(bucket, 1200.0);
        assert!(throttle.admit(bucket, 1000.0, at(10)).is_err());
        assert!(throttle.admit(bucket, 1000.0, at(12)).is_ok());
    }

    /// Story of a bug: a request with an earlier time than the request before it moved `refilled_at`
    /// back, so the next refill added the units of the time between the two requests a second time.
    #[test]
    fn a_request_with_an_earlier_time_adds_no_units() {
        let (throttle, bucket) = (Throttle::default(), Bucket::Database(1));
        let at = Duration::from_millis;
        assert!(throttle.admit(bucket, 1000.0, at(500)).is_ok());
        throttle.spend(bucket, 1200.0);
        for _ in 0..3 {
            assert!(throttle.admit(bucket, 1000.0, at(400)).is_err());
            assert!(throttle.admit(bucket, 1000.0, at(500)).is_err());
        }
    }
}
