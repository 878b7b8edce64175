//! What the `Date` of answers tells about the service's clock.
//!
//! A date is cut to whole seconds, and was written somewhere between the request
//! and its answer: each answer only says between which bounds the difference of
//! the two clocks lies. Bounds of many answers are put together, and the offset
//! moves only when it lies outside of them, and then as little as it must. So a
//! clock that is right is left alone, and no single slow answer moves anything.

use std::time::Duration;

/// How old the service's date may be when it is sent: servers print it once a
/// second.
const DATE_AGE_MAX_MS: i64 = 1_000;

/// How fast two clocks drift apart at most, in parts: bounds grow by that.
const DRIFT_PARTS: u64 = 5_000;

/// A difference beyond this is no clock that is a little off, and is not
/// followed: someone between us and the service writes dates of their own.
const OFFSET_MAX_MS: i64 = 24 * 3600 * 1000;

/// An answer's date, and when it came by this machine's clock.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sighting {
    /// Seconds since 1970.
    pub(crate) date: u64,
    pub(crate) received_ms: u64,
    /// Since the request was sent.
    pub(crate) elapsed: Duration,
}

/// Bounds of what is to be added to this machine's clock.
#[derive(Debug, Default)]
pub(super) struct Learned {
    bounds: Option<Bounds>,
}

#[derive(Debug, Clone, Copy)]
struct Bounds {
    least: i64,
    most: i64,
    /// When, by this machine's clock.
    at_ms: u64,
}

impl Learned {
    /// The offset that suits all that was seen, as close as can be to what it is.
    pub(super) fn offset(&mut self, offset: i64, sighting: Sighting) -> i64 {
        let seen = Bounds::of(sighting);
        if seen.least > OFFSET_MAX_MS || seen.most < -OFFSET_MAX_MS {
            return offset;
        }
        // Bounds that contradict one another: a clock was set. The newer ones hold.
        let bounds = self.bounds.and_then(|before| before.narrowed(seen)).unwrap_or(seen);
        self.bounds = Some(bounds);
        offset.clamp(bounds.least, bounds.most)
    }
}

impl Bounds {
    fn of(Sighting { date, received_ms, elapsed }: Sighting) -> Self {
        let signed = |ms: u64| i64::try_from(ms).unwrap_or(i64::MAX / 4);
        let (date, received) = (signed(date.saturating_mul(1000)), signed(received_ms));
        let elapsed = signed(u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX));
        Bounds {
            least: date - received,
            most: date + 1000 + DATE_AGE_MAX_MS - received.saturating_sub(elapsed),
            at_ms: received_ms,
        }
    }

    /// What both say; `None` when they contradict.
    fn narrowed(self, newer: Bounds) -> Option<Bounds> {
        let drift = i64::try_from(newer.at_ms.saturating_sub(self.at_ms) / DRIFT_PARTS).unwrap_or(0);
        let least = newer.least.max(self.least.saturating_sub(drift));
        let most = newer.most.min(self.most.saturating_add(drift));
        (least <= most).then_some(Bounds { least, most, at_ms: newer.at_ms })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START_MS: u64 = 1_700_000_000_000;

    /// What a machine learns whose clock is ahead of the service's by `ahead`,
    /// from so many answers in a row.
    fn learn(ahead: i64, answers: u64) -> i64 {
        let (mut learned, mut offset) = (Learned::default(), 0);
        for n in 0..answers {
            let true_ms = START_MS + n * 370;
            let received_ms = (true_ms + 30).saturating_add_signed(ahead);
            let elapsed = Duration::from_millis(60);
            offset = learned.offset(offset, Sighting { date: true_ms / 1000, received_ms, elapsed });
        }
        offset
    }

    #[test]
    fn a_clock_that_is_right_is_left_alone() {
        assert_eq!(learn(0, 1), 0);
        assert_eq!(learn(0, 1000), 0);
        assert_eq!(learn(300, 1000), 0, "within what a date can tell");
    }

    #[test]
    fn a_clock_that_is_wrong_is_put_right_to_a_second_or_two() {
        for ahead in [-3_600_000, -60_000, -5_000, 5_000, 60_000, 3_600_000] {
            for answers in [1, 5, 500] {
                let left = ahead + learn(ahead, answers);
                // What the answer took comes on top of what the date leaves open.
                assert!(left.abs() <= 2_060, "{ahead} {answers}: {left}");
            }
        }
    }

    #[test]
    fn a_clock_that_is_set_is_followed_and_a_date_of_another_age_is_not() {
        let (mut learned, answer) = (Learned::default(), |date: u64, received_ms: u64| Sighting {
            date,
            received_ms,
            elapsed: Duration::ZERO,
        });
        assert_eq!(learned.offset(0, answer(START_MS / 1000, START_MS)), 0);
        // The machine's clock jumps ahead by an hour.
        let offset = learned.offset(0, answer(START_MS / 1000, START_MS + 3_600_000));
        assert!((-3_600_000..=-3_598_000).contains(&offset), "{offset}");
        assert_eq!(learned.offset(offset, answer(0, START_MS)), offset, "1970 is not now");
    }
}
