//! `HybridClock` tells the service's time and issues stamps.
//!
//! The time is the time of the service: a steady clock of this process plus an offset, which the
//! module `offset` estimates from the `Date` headers of responses. So two machines whose clocks
//! differ by a minute agree to about two seconds on when a lock ends. All providers of a process
//! share the steady clock. It begins with the time of the machine's wall clock. A later step of the
//! wall clock, forwards or backwards, changes nothing.
//!
//! Without `Date` headers (on the embedded engine, which only one machine uses) the wall clock
//! is followed forwards. Otherwise, after the machine has slept, its timers would be late by the
//! length of the sleep.
//!
//! Invariants: locks and visibility are judged by [`HybridClock::now`], never by a stamp.
//! Each stamp is greater than the stamp before it, because stamps order messages. There is one
//! exception: when the last stamp is ahead of the service's time by more than [`AHEAD_MAX`], the
//! next stamp is lower, so that stamps do not stay ahead of the time.

mod offset;

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

use crate::documents::stamp::{STAMP_MAX, Stamp};
use crate::sync::lock;
use offset::{OffsetEstimate, ResponseDate};

/// How far stamps may be ahead of the service's time. They are ahead when many were reserved
/// at once, or when the estimate of the service's time was corrected downwards.
const AHEAD_MAX: Duration = Duration::from_secs(2);

/// A smaller difference between the wall clock and the steady clock does not count as a step
/// of the wall clock.
const STEP_MIN_MS: i64 = 500;

/// Milliseconds of a day.
const DAY_MS: u64 = 24 * 3600 * 1000;

/// The steady clock of this process: when it began, and the wall clock's time at that moment,
/// in milliseconds since 1970.
static BEGUN: LazyLock<(std::time::Instant, u64)> = LazyLock::new(|| (std::time::Instant::now(), wall_ms()));

/// Issues stamps and tells the time.
#[derive(Debug)]
pub(crate) struct HybridClock {
    /// The last stamp that was issued or reserved.
    last: AtomicU64,
    estimate: Mutex<OffsetEstimate>,
    /// Milliseconds to add to the steady clock; written under the lock of `estimate`.
    offset: AtomicI64,
    /// Whether a `Date` was seen. Then the service's time is known.
    has_date: AtomicBool,
    /// How far the wall clock was ahead of the steady clock at the last `Date`, in
    /// milliseconds.
    wall_ahead_at_date: AtomicI64,
    /// An error of this machine's clock in milliseconds, for tests.
    error_ms: i64,
    /// A step of the wall clock since the steady clock began, in milliseconds, for tests.
    wall_step_ms: AtomicI64,
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
            has_date: AtomicBool::default(),
            wall_ahead_at_date: AtomicI64::default(),
            error_ms,
            wall_step_ms: AtomicI64::default(),
        }
    }

    /// Steps this machine's wall clock, for tests.
    #[cfg(test)]
    pub(crate) fn step_wall_clock(&self, step_ms: i64) {
        self.wall_step_ms.fetch_add(step_ms, Ordering::Relaxed);
    }

    /// A stamp that is later than all earlier ones of this clock, except after stamps that were too
    /// far ahead: see the invariants above.
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

    /// The service's time as a stamp, to judge locks and visibility: the last stamp of the current
    /// millisecond. It is not reserved, so it must not become the stamp of a message.
    pub(crate) fn now(&self) -> Stamp {
        Stamp(Stamp::at_ms(self.now_ms().saturating_add(1)).0.saturating_sub(1))
    }

    /// Milliseconds since 1970 by the service's clock, as estimated.
    pub(crate) fn now_ms(&self) -> u64 {
        let now_ms = self.steady_ms().saturating_add_signed(self.offset.load(Ordering::Relaxed));
        if self.has_date.load(Ordering::Relaxed) {
            return now_ms;
        }
        now_ms.saturating_add_signed(self.wall_ahead_ms().max(0))
    }

    /// How far the service's clock is ahead of this machine's wall clock, in milliseconds, as
    /// estimated.
    pub(crate) fn offset_ms(&self) -> i64 {
        let (offset, ahead_ms) = (self.offset.load(Ordering::Relaxed), self.wall_ahead_ms());
        if !self.has_date.load(Ordering::Relaxed) {
            return offset + ahead_ms.max(0) - ahead_ms;
        }
        // If the wall clock is further ahead than at the last `Date`, the machine slept, or its
        // clock was set forwards. Until the next `Date` shows which of the two happened, a timer
        // fires late rather than early.
        offset - ahead_ms.min(self.wall_ahead_at_date.load(Ordering::Relaxed))
    }

    /// How far the wall clock is ahead of the steady clock, in milliseconds; zero if the
    /// difference is too small to be a step.
    fn wall_ahead_ms(&self) -> i64 {
        let wall_ms =
            wall_ms().saturating_add_signed(self.error_ms + self.wall_step_ms.load(Ordering::Relaxed));
        let ahead_ms = wall_ms.cast_signed().wrapping_sub(self.steady_ms().cast_signed());
        if ahead_ms.abs() < STEP_MIN_MS { 0 } else { ahead_ms }
    }

    /// Adjusts the offset by the `Date` of a response, in seconds since 1970. `elapsed` is
    /// the time since the request was sent, or longer.
    pub(crate) fn observe_date(&self, date_s: u64, elapsed: Duration) {
        let wall_ms = self.steady_ms().saturating_add_signed(self.wall_ahead_ms());
        let is_near_wall = date_s.saturating_mul(1000).abs_diff(wall_ms) < DAY_MS;
        let response = ResponseDate { date_s, received_ms: self.steady_ms(), elapsed, is_near_wall };
        let mut estimate = lock(&self.estimate);
        let before = self.offset.load(Ordering::Relaxed);
        let Some(offset) = estimate.adjust_offset(before, response) else { return };
        if offset != before {
            tracing::info!(offset_ms = offset, "the service's clock differs from this machine's");
            self.offset.store(offset, Ordering::Relaxed);
        }
        self.wall_ahead_at_date.store(self.wall_ahead_ms(), Ordering::Relaxed);
        self.has_date.store(true, Ordering::Relaxed);
    }

    /// The steady clock, with the error for tests: the wall clock's time when the clock began,
    /// plus the time since then. Milliseconds since 1970.
    fn steady_ms(&self) -> u64 {
        let (begun, begun_ms) = *BEGUN;
        let elapsed = Instant::now().into_std().saturating_duration_since(begun);
        let elapsed_ms = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
        begun_ms.saturating_add(elapsed_ms).saturating_add_signed(self.error_ms)
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
        assert!(clock.stamp().ms().abs_diff(wall_ms()) <= 4_000, "stamps do not stay ahead of the service");
        let (first, second) = (clock.stamp(), clock.stamp());
        assert!(first < second);
    }

    #[test]
    fn a_step_of_the_wall_clock_changes_neither_time_nor_stamps() {
        for step_ms in [15 * 60_000, -15 * 60_000] {
            let clock = HybridClock::default();
            clock.observe_date(wall_ms() / 1000, Duration::ZERO);
            let (now_ms, stamp) = (clock.now_ms(), clock.stamp());
            clock.step_wall_clock(step_ms);
            assert!(clock.now_ms().abs_diff(now_ms) <= 2_000);
            assert!(clock.stamp() > stamp && clock.stamp().ms().abs_diff(now_ms) <= 2_000);
            // Before the next date, a timer of the runtime may fire late, but not early. After that date
            // it fires in time.
            assert!(clock.offset_ms() + step_ms >= -2_000);
            clock.observe_date(now_ms / 1000, Duration::from_secs(1));
            assert!((clock.offset_ms() + step_ms).abs() <= 4_000, "the runtime's timers are converted");
        }
    }

    /// The steady clock does not count sleep, the wall clock does.
    #[test]
    fn after_days_of_sleep_the_first_date_sets_the_clock() {
        let clock = HybridClock::default();
        clock.observe_date(wall_ms() / 1000, Duration::ZERO);
        let slept_ms = 30 * 3_600_000;
        clock.step_wall_clock(slept_ms);
        let woken_ms = wall_ms() + slept_ms.cast_unsigned();
        assert!(clock.offset_ms() >= -2_000, "a timer set before the first answer is not early");
        clock.observe_date(woken_ms / 1000, Duration::ZERO);
        assert!(clock.now_ms().abs_diff(woken_ms) <= 4_000);
        assert!(clock.offset_ms().abs() <= 4_000);
    }

    #[test]
    fn without_a_service_the_wall_clock_is_followed_forwards_only() {
        let clock = HybridClock::default();
        let now_ms = clock.now_ms();
        clock.step_wall_clock(8 * 3_600_000);
        assert!(clock.now_ms() >= now_ms + 8 * 3_600_000, "the machine slept");
        assert!(clock.offset_ms().abs() <= 2_000);
        clock.step_wall_clock(-9 * 3_600_000);
        assert!(
            clock.now_ms() >= now_ms && clock.now_ms() <= now_ms + 10_000,
            "the time does not go back, so no visible message is hidden"
        );
    }

    /// A millisecond has 4,096 stamps.
    #[test]
    fn stamps_after_a_large_reservation_are_later_up_to_a_limit() {
        let clock = HybridClock::default();
        let first = clock.reserve(4096 * 1000);
        assert!(clock.stamp().0 >= first.0 + 4096 * 1000);
        clock.reserve(4096 * 60_000);
        assert!(clock.stamp().ms() <= clock.now_ms() + 2_001, "stamps that are too far ahead fall back");
    }
}
