//! Throttling: a token bucket of request units per physical partition.
//!
//! A bucket holds at most one second's units. A request is let in while there
//! is anything in it, and pays its charge afterwards, which may leave a debt:
//! that is how the service can serve a 700-unit batch on 400 units a second
//! and then refuses the next request until the debt is paid.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::keys::{ContainerNumber, RangeId};
use crate::refusal::Refusal;

/// Whose units are spent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Bucket {
    Partition(ContainerNumber, RangeId),
    /// Containers that share their database's units.
    Database(u32),
}

#[derive(Debug, Clone, Copy)]
struct Level {
    units: f64,
    /// When it was last looked at.
    at: Duration,
}

/// All buckets.
#[derive(Debug, Default)]
pub(crate) struct Throttle {
    levels: Mutex<HashMap<Bucket, Level>>,
}

/// The longest wait that is suggested, so that a deep debt does not tell a
/// client to go away for minutes.
const RETRY_AFTER_MS_MAX: u64 = 5_000;

impl Throttle {
    /// Lets a request in, or says how long to wait. `now` is any clock that
    /// does not go back.
    pub(crate) fn admit(&self, bucket: Bucket, units_per_second: f64, now: Duration) -> Result<(), Refusal> {
        let level = self.refill(bucket, units_per_second, now);
        if level > 0.0 {
            return Ok(());
        }
        let wait = (-level / units_per_second * 1000.0).ceil() as u64 + 1;
        Err(Refusal::throttled(wait.min(RETRY_AFTER_MS_MAX)))
    }

    /// Takes what a request cost.
    pub(crate) fn spend(&self, bucket: Bucket, charge: f64) {
        let mut levels = self.levels.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(level) = levels.get_mut(&bucket) {
            level.units -= charge;
        }
    }

    fn refill(&self, bucket: Bucket, units_per_second: f64, now: Duration) -> f64 {
        let mut levels = self.levels.lock().unwrap_or_else(PoisonError::into_inner);
        let level = levels.entry(bucket).or_insert(Level { units: units_per_second, at: now });
        let elapsed = now.saturating_sub(level.at).as_secs_f64();
        level.units = (level.units + elapsed * units_per_second).min(units_per_second);
        level.at = now;
        level.units
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_debt_is_refused_until_it_is_paid() {
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
    fn an_idle_bucket_saves_one_second_only() {
        let (throttle, bucket) = (Throttle::default(), Bucket::Database(1));
        assert!(throttle.admit(bucket, 100.0, Duration::ZERO).is_ok());
        throttle.spend(bucket, 50.0);
        assert!(throttle.admit(bucket, 100.0, Duration::from_secs(60)).is_ok());
        throttle.spend(bucket, 101.0);
        assert!(throttle.admit(bucket, 100.0, Duration::from_secs(60)).is_err());
    }
}
