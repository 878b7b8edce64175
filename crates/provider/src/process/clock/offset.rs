//! Estimates the difference between the service's clock and this machine's clock from
//! the `Date` headers of responses.
//!
//! A `Date` has whole seconds, may be a second old when it is sent, and is sent at an unknown
//! time between the request and the arrival of its response. So one response gives only a
//! lower and an upper bound of the difference. The bounds of many responses are intersected.
//! The offset changes only when it is outside the bounds, and then as little as possible. So
//! a correct clock is not changed, and a single slow response changes nothing.

use std::time::Duration;

/// How old a `Date` may be when it is sent: servers format it once a second.
const DATE_AGE_MAX_MS: i64 = 1_000;

/// The largest drift between two clocks: one millisecond in this many. Old bounds are
/// widened by the drift since they were observed.
const DRIFT_PARTS: u64 = 5_000;

/// A date with a larger difference is ignored, because a proxy may write dates of its own. A date
/// within a day of the wall clock is used in any case.
const OFFSET_MAX_MS: i64 = 24 * 3600 * 1000;

/// The date of a response, and when the response arrived by this machine's clock.
#[derive(Debug, Clone, Copy)]
pub(super) struct ResponseDate {
    /// Seconds since 1970.
    pub(crate) date_s: u64,
    /// Milliseconds since 1970.
    pub(crate) received_ms: u64,
    /// The time from the request to the response, or longer.
    pub(crate) elapsed: Duration,
    /// Whether the date is within a day of the wall clock. Such a date is plausible even if the
    /// steady clock is far off, as after days of sleep.
    pub(crate) is_near_wall: bool,
}

/// The estimate of how far the service's clock is ahead of this machine's.
#[derive(Debug, Default)]
pub(super) struct OffsetEstimate {
    bounds: Option<Bounds>,
}

/// The bounds of the difference, in milliseconds.
#[derive(Debug, Clone, Copy)]
struct Bounds {
    least_ms: i64,
    most_ms: i64,
    /// When the bounds were observed, by this machine's clock.
    at_ms: u64,
}

impl OffsetEstimate {
    /// Adds the bounds of a response. Returns the offset within the bounds that is nearest to
    /// `offset_ms`, in milliseconds; `None` if the date is implausible.
    pub(super) fn adjust_offset(&mut self, offset_ms: i64, response: ResponseDate) -> Option<i64> {
        let newer = Bounds::of(response);
        let is_beyond_limit = newer.least_ms > OFFSET_MAX_MS || newer.most_ms < -OFFSET_MAX_MS;
        if is_beyond_limit && !response.is_near_wall {
            return None;
        }
        // Bounds that contradict each other show that a clock was set. The newer bounds
        // are used.
        let bounds = self.bounds.and_then(|before| before.narrowed(newer)).unwrap_or(newer);
        self.bounds = Some(bounds);
        Some(offset_ms.clamp(bounds.least_ms, bounds.most_ms))
    }
}

impl Bounds {
    /// The bounds that one response gives.
    fn of(ResponseDate { date_s, received_ms, elapsed, .. }: ResponseDate) -> Self {
        let signed = |ms: u64| i64::try_from(ms).unwrap_or(i64::MAX / 4);
        let (date, received) = (signed(date_s.saturating_mul(1000)), signed(received_ms));
        let elapsed = signed(u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX));
        Bounds {
            least_ms: date - received,
            most_ms: date + 1000 + DATE_AGE_MAX_MS - received.saturating_sub(elapsed),
            at_ms: received_ms,
        }
    }

    /// Widens these bounds by the drift since they were observed. Returns their intersection
    /// with newer bounds; `None` if it is empty.
    fn narrowed(self, newer: Bounds) -> Option<Bounds> {
        let drift_ms = i64::try_from(newer.at_ms.saturating_sub(self.at_ms) / DRIFT_PARTS).unwrap_or(0);
        let least_ms = newer.least_ms.max(self.least_ms.saturating_sub(drift_ms));
        let most_ms = newer.most_ms.min(self.most_ms.saturating_add(drift_ms));
        (least_ms <= most_ms).then_some(Bounds { least_ms, most_ms, at_ms: newer.at_ms })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START_MS: u64 = 1_700_000_000_000;

    /// The offset that a machine estimates from this many responses in a row. The machine's
    /// clock is `ahead_ms` ahead of the service's clock.
    fn estimated_offset(ahead_ms: i64, responses: u64) -> i64 {
        let (mut estimate, mut offset) = (OffsetEstimate::default(), 0);
        for n in 0..responses {
            let true_ms = START_MS + n * 370;
            let received_ms = (true_ms + 30).saturating_add_signed(ahead_ms);
            let elapsed = Duration::from_millis(60);
            let response = ResponseDate { date_s: true_ms / 1000, received_ms, elapsed, is_near_wall: false };
            offset = estimate.adjust_offset(offset, response).expect("a plausible date");
        }
        offset
    }

    #[test]
    fn a_correct_clock_is_not_adjusted() {
        assert_eq!(estimated_offset(0, 1), 0);
        assert_eq!(estimated_offset(0, 1000), 0);
        assert_eq!(estimated_offset(300, 1000), 0, "a date has whole seconds only");
    }

    #[test]
    fn a_wrong_clock_is_corrected_to_within_two_seconds() {
        for ahead_ms in [-3_600_000, -60_000, -5_000, 5_000, 60_000, 3_600_000] {
            for responses in [1, 5, 500] {
                let error_ms = ahead_ms + estimated_offset(ahead_ms, responses);
                // The 60 ms of the response add to the two seconds of the date.
                assert!(error_ms.abs() <= 2_060, "{ahead_ms} {responses}: {error_ms}");
            }
        }
    }

    #[test]
    fn a_clock_step_changes_the_offset_and_an_implausible_date_does_not() {
        let (mut estimate, response) = (OffsetEstimate::default(), |date_s: u64, received_ms: u64| {
            ResponseDate { date_s, received_ms, elapsed: Duration::ZERO, is_near_wall: false }
        });
        assert_eq!(estimate.adjust_offset(0, response(START_MS / 1000, START_MS)), Some(0));
        // The machine's clock jumps ahead by an hour.
        let offset = estimate.adjust_offset(0, response(START_MS / 1000, START_MS + 3_600_000)).unwrap();
        assert!((-3_600_000..=-3_598_000).contains(&offset), "{offset}");
        assert_eq!(estimate.adjust_offset(offset, response(0, START_MS)), None, "1970 is implausible");
    }
}
