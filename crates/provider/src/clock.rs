//! Time as documents have it: hybrid logical clock values, milliseconds since
//! 1970 times 4096 plus a counter, so that two stamps of one process are never
//! equal and never go backwards, whatever the wall clock does.
//!
//! They stay below 2^53 until 2039 and so survive any JSON reader.
//!
//! The time is the service's: this machine's clock, put right by what `learned`
//! makes of the `Date` of every answer. So two machines whose clocks differ by a
//! minute agree to about a second on when a lock ends.

mod learned;

use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use learned::Learned;
pub(crate) use learned::Sighting;

/// Bits of the counter below the milliseconds.
const COUNTER_BITS: u32 = 12;

/// The largest integer that every JSON reader keeps exactly.
const STAMP_MAX: u64 = (1 << 53) - 1;

/// How far the clocks of two machines may differ. Messages that are to be seen
/// at once are stamped this far in the past, so that a reader whose clock is
/// behind the writer's sees them at once too.
pub(crate) const SKEW_MAX: Duration = Duration::from_secs(120);

/// A moment as documents have it.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(transparent)]
pub(crate) struct Stamp(pub(crate) u64);

impl Stamp {
    /// The first stamp of a millisecond; far futures are one and the same.
    pub(crate) fn at_ms(ms: u64) -> Self {
        Stamp(ms.saturating_mul(1 << COUNTER_BITS).min(STAMP_MAX))
    }

    pub(crate) fn ms(self) -> u64 {
        self.0 >> COUNTER_BITS
    }

    /// Visible to every reader from now on.
    pub(crate) fn at_once(self) -> Self {
        Stamp(self.0.saturating_sub((SKEW_MAX.as_millis() as u64) << COUNTER_BITS))
    }

    pub(crate) fn before(self, time: Duration) -> Self {
        let time = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        Stamp::at_ms(self.ms().saturating_sub(time))
    }

    pub(crate) fn after(self, delay: Duration) -> Self {
        let delay = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
        Stamp::at_ms(self.ms().saturating_add(delay)).max(self)
    }
}

/// Gives out stamps, and tells the time.
#[derive(Debug, Default)]
pub(crate) struct HybridClock {
    last: AtomicU64,
    learned: Mutex<Learned>,
    /// What is added to this machine's clock; written under `learned`.
    offset: AtomicI64,
    /// How wrong this machine's clock is made, for tests.
    error: i64,
}

impl HybridClock {
    /// One on a machine whose clock is wrong by so many milliseconds.
    pub(crate) fn with_error(error: i64) -> Self {
        HybridClock { error, ..HybridClock::default() }
    }

    /// A stamp that is later than all before it.
    pub(crate) fn stamp(&self) -> Stamp {
        self.reserve(1)
    }

    /// The first of so many stamps in a row that nobody else gets.
    pub(crate) fn reserve(&self, count: usize) -> Stamp {
        let now = Stamp::at_ms(self.now_ms()).0;
        let count = u64::try_from(count).unwrap_or(u64::MAX).max(1);
        let first = |last: u64| now.max(last.saturating_add(1));
        let next = |last: u64| Some(first(last).saturating_add(count - 1));
        let before = self.last.fetch_update(Ordering::AcqRel, Ordering::Acquire, next).unwrap_or(now);
        Stamp(first(before).min(STAMP_MAX))
    }

    /// Milliseconds since 1970 by the service's clock, as far as it is known.
    pub(crate) fn now_ms(&self) -> u64 {
        self.machine_ms().saturating_add_signed(self.offset_ms())
    }

    /// How far the service's clock is ahead of this machine's, in milliseconds.
    pub(crate) fn offset_ms(&self) -> i64 {
        self.offset.load(Ordering::Relaxed)
    }

    /// An answer of the service has come, with its `Date`, in seconds since
    /// 1970, so long after it was asked for.
    pub(crate) fn learn(&self, date: u64, elapsed: Duration) {
        let sighting = Sighting { date, received_ms: self.machine_ms(), elapsed };
        let mut learned = self.learned.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let before = self.offset_ms();
        let offset = learned.offset(before, sighting);
        if offset != before {
            tracing::info!(offset_ms = offset, "the service's clock differs from this machine's");
            self.offset.store(offset, Ordering::Relaxed);
        }
    }

    fn machine_ms(&self) -> u64 {
        wall_ms().saturating_add_signed(self.error)
    }
}

/// Milliseconds since 1970 by this machine's clock, which may be wrong: all but
/// `HybridClock` ask that.
fn wall_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// A lock's end: milliseconds since 1970.
pub(crate) fn ends_ms(now_ms: u64, lasts: Duration) -> u64 {
    now_ms.saturating_add(u64::try_from(lasts.as_millis()).unwrap_or(u64::MAX)).min(STAMP_MAX >> COUNTER_BITS)
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
    fn a_wrong_clock_is_put_right_and_stamps_still_only_grow() {
        let clock = HybridClock::with_error(60_000);
        let early = clock.stamp();
        clock.learn(wall_ms() / 1000, Duration::ZERO);
        assert!((-61_000..=-58_000).contains(&clock.offset_ms()), "{}", clock.offset_ms());
        assert!(clock.now_ms().abs_diff(wall_ms()) <= 2_000);
        assert!(clock.stamp() > early);
    }

    #[test]
    fn no_time_leaves_the_integers_of_json() {
        assert_eq!(Stamp::at_ms(u64::MAX).0, STAMP_MAX);
        assert_eq!(Stamp::at_ms(7).after(Duration::MAX).0, STAMP_MAX);
        assert_eq!(Stamp::at_ms(5).at_once(), Stamp(0));
        assert_eq!(Stamp::at_ms(1_700_000_000_000).ms(), 1_700_000_000_000);
    }
}
