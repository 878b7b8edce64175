//! `HybridClock` tells the service's time and issues stamps.
//!
//! The time is the service's: a steady clock of this process plus an offset that `offset`
//! estimates from the `Date` headers of responses. So two machines whose clocks differ by a
//! minute agree to about two seconds on when a lock ends. The machine's wall clock is read
//! once, when the provider is opened. A later step of it, either way, changes nothing.
//!
//! Invariants: locks and visibility are judged by [`HybridClock::now`], never by a stamp.
//! Each stamp is greater than the one before, unless that one is ahead of the service's time
//! by more than [`AHEAD_MAX`]: stamps order messages, and must not lead the time for good.

mod offset;

use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

use crate::documents::stamp::{STAMP_MAX, Stamp};
use crate::sync::lock;
use offset::{OffsetEstimate, ResponseDate};

/// How far stamps may be ahead of the service's time. They are ahead when many were reserved
/// at once, or when the estimate of the service's time was corrected downwards.
const AHEAD_MAX: Duration = Duration::from_secs(2);

/// A smaller difference between the wall clock and the steady clock is not taken for a step
/// of the wall clock.
const STEP_MIN_MS: i64 = 500;

/// Issues stamps and tells the time.
#[derive(Debug)]
pub(crate) struct HybridClock {
    /// The last stamp that was issued or reserved.
    last: AtomicU64,
    estimate: Mutex<OffsetEstimate>,
    /// Milliseconds to add to the steady clock; written under the lock of `estimate`.
    offset: AtomicI64,
    /// When the steady clock began, and the wall clock's time at that moment, in milliseconds
    /// since 1970.
    begun: (Instant, u64),
    /// An error of this machine's wall clock in milliseconds, for tests.
    wall_error_ms: AtomicI64,
}

impl Default for HybridClock {
    fn default() -> Self {
        HybridClock::with_error_ms(0)
    }
}

impl HybridClock {
    /// A clock on a machine that is this many milliseconds ahead of the right time.
    pub(crate) fn with_error_ms(error_ms: i64) -> Self {
        HybridClock {
            last: AtomicU64::default(),
            estimate: Mutex::default(),
            offset: AtomicI64::default(),
            begun: (Instant::now(), wall_ms().saturating_add_signed(error_ms)),
            wall_error_ms: AtomicI64::new(error_ms),
        }
    }

    /// Steps this machine's wall clock, for tests.
    #[cfg(test)]
    pub(crate) fn step_wall_clock(&self, step_ms: i64) {
        self.wall_error_ms.fetch_add(step_ms, Ordering::Relaxed);
    }

    /// A stamp that is later than all earlier ones of this clock.
    pub(crate) fn stamp(&self) -> Stamp {
        self.reserve(1)
    }

    /// Reserves `count` consecutive stamps and returns the first.
    pub(crate) fn reserve(&self, count: usize) -> Stamp {
        let now_ms = self.now_ms();
        let now = Stamp::at_ms(now_ms).0;
        let ahead_max = Stamp::at_ms(now_ms).plus(AHEAD_MAX).0;
        let count = u64::try_from(count).unwrap_or(u64::MAX).max(1);
        let first = |last: u64| if last < ahead_max { now.max(last.saturating_add(1)) } else { now };
        let next = |last: u64| Some(first(last).saturating_add(count - 1));
        let before = self.last.fetch_update(Ordering::AcqRel, Ordering::Acquire, next).unwrap_or(now);
        if before >= ahead_max {
            tracing::warn!(
                ahead_ms = Stamp(before).ms().saturating_sub(now_ms),
                "stamps were ahead of the service's clock and fall back to it; \
                 the order of messages around this moment may differ"
            );
        }
        Stamp(first(before).min(STAMP_MAX))
    }

    /// The service's time as a stamp: the last one of the current millisecond. No message
    /// gets this stamp; use it to judge locks and visibility.
    pub(crate) fn now(&self) -> Stamp {
        Stamp(Stamp::at_ms(self.now_ms().saturating_add(1)).0.saturating_sub(1))
    }

    /// Milliseconds since 1970 by the service's clock, as estimated.
    pub(crate) fn now_ms(&self) -> u64 {
        self.steady_ms().saturating_add_signed(self.offset.load(Ordering::Relaxed))
    }

    /// How far the service's clock is ahead of this machine's wall clock, in milliseconds, as
    /// estimated.
    pub(crate) fn offset_ms(&self) -> i64 {
        let wall_ms = wall_ms().saturating_add_signed(self.wall_error_ms.load(Ordering::Relaxed));
        let step_ms = wall_ms.cast_signed().wrapping_sub(self.steady_ms().cast_signed());
        let step_ms = if step_ms.abs() < STEP_MIN_MS { 0 } else { step_ms };
        self.offset.load(Ordering::Relaxed) - step_ms
    }

    /// Adjusts the offset by the `Date` of a response, in seconds since 1970. `elapsed` is
    /// the time since the request was sent, or longer.
    pub(crate) fn observe_date(&self, date_s: u64, elapsed: Duration) {
        let response = ResponseDate { date_s, received_ms: self.steady_ms(), elapsed };
        let mut estimate = lock(&self.estimate);
        let before = self.offset.load(Ordering::Relaxed);
        let offset = estimate.adjust_offset(before, response);
        if offset != before {
            tracing::info!(offset_ms = offset, "the service's clock differs from this machine's");
            self.offset.store(offset, Ordering::Relaxed);
        }
    }

    /// The steady clock: the wall clock's time when the provider was opened, plus the time
    /// since then. Milliseconds since 1970.
    fn steady_ms(&self) -> u64 {
        let (begun, begun_ms) = self.begun;
        begun_ms.saturating_add(u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX))
    }
}

/// Milliseconds since 1970 by this machine's wall clock, which may be wrong. Only
/// `HybridClock` reads it.
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
    fn a_wrong_clock_is_corrected_and_stamps_follow_the_service() {
        let clock = HybridClock::with_error_ms(60_000);
        clock.stamp();
        clock.observe_date(wall_ms() / 1000, Duration::ZERO);
        assert!((-61_000..=-58_000).contains(&clock.offset_ms()), "{}", clock.offset_ms());
        assert!(clock.now_ms().abs_diff(wall_ms()) <= 2_000);
        assert!(clock.stamp().ms().abs_diff(wall_ms()) <= 4_000, "stamps do not lead for good");
        let (first, second) = (clock.stamp(), clock.stamp());
        assert!(first < second);
    }

    #[test]
    fn a_step_of_the_wall_clock_changes_neither_time_nor_stamps() {
        for step_ms in [15 * 60_000, -15 * 60_000] {
            let clock = HybridClock::default();
            let (now_ms, stamp) = (clock.now_ms(), clock.stamp());
            clock.step_wall_clock(step_ms);
            assert!(clock.now_ms().abs_diff(now_ms) <= 2_000);
            assert!(clock.stamp() > stamp && clock.stamp().ms().abs_diff(now_ms) <= 2_000);
            assert!((clock.offset_ms() + step_ms).abs() <= 2_000, "the runtime's timers are converted");
        }
    }

    #[test]
    fn stamps_reserved_ahead_are_followed_by_later_ones_within_the_bound() {
        let clock = HybridClock::default();
        let first = clock.reserve(4096 * 1000);
        assert!(clock.stamp().0 >= first.0 + 4096 * 1000);
        clock.reserve(4096 * 60_000);
        assert!(clock.stamp().ms() <= clock.now_ms() + 2_001, "beyond the bound, stamps fall back");
    }
}
