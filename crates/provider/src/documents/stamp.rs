//! `Stamp`: a time as it is stored. Stamps are hybrid logical clock values:
//! milliseconds since 1970 times 4096 plus a counter. They stay below 2^53 until
//! 2039, so every JSON reader keeps them exactly.
//!
//! `process::clock` issues them.

use std::time::Duration;

use crate::timing::SKEW_MAX;

/// Bits of the counter below the milliseconds.
const COUNTER_BITS: u32 = 12;

/// The largest integer that every JSON reader keeps exactly.
pub(crate) const STAMP_MAX: u64 = (1 << 53) - 1;

/// A time as it is stored.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(transparent)]
pub(crate) struct Stamp(pub(crate) u64);

impl Stamp {
    /// The first stamp of a millisecond, at most the largest stamp.
    pub(crate) fn at_ms(ms: u64) -> Self {
        Stamp(ms.saturating_mul(1 << COUNTER_BITS).min(STAMP_MAX))
    }

    /// Milliseconds since 1970.
    pub(crate) fn ms(self) -> u64 {
        self.0 >> COUNTER_BITS
    }

    /// The `visible_at` of a message that is to be visible at once: a time that has passed
    /// for every reader whose clock is at most [`SKEW_MAX`] behind.
    pub(crate) fn visible_at_once(self) -> Self {
        Stamp(self.0.saturating_sub((SKEW_MAX.as_millis() as u64) << COUNTER_BITS))
    }

    /// The first stamp of the millisecond that is `duration` earlier.
    pub(crate) fn minus(self, duration: Duration) -> Self {
        let ms = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        Stamp::at_ms(self.ms().saturating_sub(ms))
    }

    /// The first stamp of the millisecond that is `duration` later, but not before `self`.
    pub(crate) fn plus(self, duration: Duration) -> Self {
        let ms = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        Stamp::at_ms(self.ms().saturating_add(ms)).max(self)
    }
}

/// The time `duration` after `now_ms`, in milliseconds since 1970. It is at most the time of
/// the largest stamp.
pub(crate) fn deadline_ms(now_ms: u64, duration: Duration) -> u64 {
    now_ms
        .saturating_add(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
        .min(STAMP_MAX >> COUNTER_BITS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_never_exceeds_the_integers_of_json() {
        assert_eq!(Stamp::at_ms(u64::MAX).0, STAMP_MAX);
        assert_eq!(Stamp::at_ms(7).plus(Duration::MAX).0, STAMP_MAX);
        assert_eq!(Stamp::at_ms(5).visible_at_once(), Stamp(0));
        assert_eq!(Stamp::at_ms(1_700_000_000_000).ms(), 1_700_000_000_000);
    }
}
