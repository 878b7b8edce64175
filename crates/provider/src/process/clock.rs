//! `HybridClock` issues stamps: each stamp of a clock is greater than the one before,
//! whatever the wall clock does.
//!
//! The time is the service's: this machine's clock plus an offset that `offset`
//! estimates from the `Date` headers of responses. So two machines whose clocks differ by a
//! minute agree to about two seconds on when a lock ends.

mod offset;

use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::documents::stamp::{STAMP_MAX, Stamp};
use crate::sync::lock;
use offset::{OffsetEstimate, ResponseDate};

/// Issues stamps and tells the time.
#[derive(Debug, Default)]
pub(crate) struct HybridClock {
    /// The last stamp that was issued or reserved.
    last: AtomicU64,
    estimate: Mutex<OffsetEstimate>,
    /// Milliseconds to add to this machine's clock; written under the lock of `estimate`.
    offset_ms: AtomicI64,
    /// An error of this machine's clock in milliseconds, for tests. Zero otherwise.
    error_ms: i64,
}

impl HybridClock {
    /// A clock on a machine that is this many milliseconds ahead of the right time.
    pub(crate) fn with_error_ms(error_ms: i64) -> Self {
        HybridClock { error_ms, ..HybridClock::default() }
    }

    /// A stamp that is later than all earlier ones of this clock.
    pub(crate) fn stamp(&self) -> Stamp {
        self.reserve(1)
    }

    /// Reserves `count` consecutive stamps and returns the first.
    pub(crate) fn reserve(&self, count: usize) -> Stamp {
        let now = Stamp::at_ms(self.now_ms()).0;
        let count = u64::try_from(count).unwrap_or(u64::MAX).max(1);
        let first = |last: u64| now.max(last.saturating_add(1));
        let next = |last: u64| Some(first(last).saturating_add(count - 1));
        let before = self.last.fetch_update(Ordering::AcqRel, Ordering::Acquire, next).unwrap_or(now);
        Stamp(first(before).min(STAMP_MAX))
    }

    /// Milliseconds since 1970 by the service's clock, as estimated.
    pub(crate) fn now_ms(&self) -> u64 {
        self.machine_ms().saturating_add_signed(self.offset_ms())
    }

    /// How far the service's clock is ahead of this machine's, in milliseconds, as estimated.
    pub(crate) fn offset_ms(&self) -> i64 {
        self.offset_ms.load(Ordering::Relaxed)
    }

    /// Adjusts the offset by the `Date` of a response, in seconds since 1970. `elapsed` is
    /// the time since the request was sent, or longer.
    pub(crate) fn observe_date(&self, date_s: u64, elapsed: Duration) {
        let response = ResponseDate { date_s, received_ms: self.machine_ms(), elapsed };
        let mut estimate = lock(&self.estimate);
        let before = self.offset_ms();
        let offset = estimate.adjust_offset(before, response);
        if offset != before {
            tracing::info!(offset_ms = offset, "the service's clock differs from this machine's");
            self.offset_ms.store(offset, Ordering::Relaxed);
        }
    }

    /// Milliseconds since 1970 by this machine's clock, with the error for tests.
    fn machine_ms(&self) -> u64 {
        wall_ms().saturating_add_signed(self.error_ms)
    }
}

/// Milliseconds since 1970 by this machine's clock, which may be wrong. Only `HybridClock`
/// reads it.
fn wall_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_of_one_clock_only_grow() {
        let clock = HybridClock::default();
        let stamps: Vec<Stamp> = (0..10_000).map(|_| clock.stamp()).collect();
        assert!(stamps.windows(2).all(|pair| pair[0] < pair[1]));
    }

    #[test]
    fn a_wrong_clock_is_corrected_and_stamps_still_only_grow() {
        let clock = HybridClock::with_error_ms(60_000);
        let early = clock.stamp();
        clock.observe_date(wall_ms() / 1000, Duration::ZERO);
        assert!((-61_000..=-58_000).contains(&clock.offset_ms()), "{}", clock.offset_ms());
        assert!(clock.now_ms().abs_diff(wall_ms()) <= 2_000);
        assert!(clock.stamp() > early);
    }
}
