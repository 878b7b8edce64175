//! `Pace`: when a poller looks again. The pause after a look is at least the page's own interval. After
//! a look that cost much it is longer, so that the page stays within [`CHARGE_PER_SECOND_MAX`]. It is
//! also longer after a look that took long, such as one at a very long history.
//!
//! After a change that a person has made, a look may come early. The pause after the early look is
//! added to the rest of the pause that it has cut short. Therefore a page with many changes does not cost
//! more.

use std::time::Duration;

use tokio::time::Instant;

/// The most request units per second that the looks at one page may cost. The goal is at most 5 for a
/// watched page on an idle account; the difference is left for opening the page and for rounding.
const CHARGE_PER_SECOND_MAX: f64 = 3.5;

/// The least pause after a look, as a multiple of the time that the look took. So one page that is
/// watched takes at most a third of a processor, unless a look takes longer than half of [`PAUSE_MAX`].
const PAUSE_PER_TIME: u32 = 2;

/// The longest pause between two looks, however much a look costs. Changes may cut pauses short until the
/// time that was cut off adds up to this time. Then a look waits for its pause.
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// When the next look comes.
#[derive(Debug)]
pub(super) struct Pace {
    interval: Duration,
    /// When the last look ended.
    ended_at: Instant,
    /// When the pauses of all looks so far have passed.
    paid_at: Instant,
}

impl Pace {
    pub(super) fn new(interval: Duration, now: Instant) -> Pace {
        Pace { interval, ended_at: now, paid_at: now }
    }

    /// Records a look that has ended, with its cost and the time that it took.
    pub(super) fn looked(&mut self, charge: f64, took: Duration, now: Instant) {
        self.ended_at = now;
        self.paid_at = self.paid_at.max(now) + pause(self.interval, charge, took);
    }

    /// When the next look comes if nothing happens.
    pub(super) fn due(&self) -> Instant {
        self.paid_at.min(self.ended_at + PAUSE_MAX)
    }

    /// When the next look comes after a change.
    pub(super) fn due_after_change(&self) -> Instant {
        let early = self.paid_at.checked_sub(PAUSE_MAX).unwrap_or(self.ended_at);
        (self.ended_at + self.interval).max(early).min(self.due())
    }
}

/// The pause after a look.
fn pause(interval: Duration, charge: f64, took: Duration) -> Duration {
    let seconds = (charge / CHARGE_PER_SECOND_MAX).clamp(0.0, PAUSE_MAX.as_secs_f64());
    let by_charge = Duration::from_secs_f64(if seconds.is_finite() { seconds } else { 0.0 });
    let by_time = took.saturating_mul(PAUSE_PER_TIME).min(PAUSE_MAX);
    interval.max(by_charge).max(by_time)
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_millis(100);

    #[test]
    fn a_look_that_costs_more_is_repeated_less_often() {
        let short = Duration::from_millis(1);
        assert_eq!(pause(INTERVAL, 0.3, short), INTERVAL);
        assert_eq!(pause(INTERVAL, 35.0, short), Duration::from_secs(10));
        assert_eq!(pause(INTERVAL, 1e9, short), PAUSE_MAX);
        assert_eq!(pause(INTERVAL, f64::NAN, short), INTERVAL);
        assert_eq!(pause(INTERVAL, 0.3, Duration::from_secs(3)), Duration::from_secs(6));
        assert_eq!(pause(INTERVAL, 0.3, Duration::MAX), PAUSE_MAX);
    }

    #[test]
    fn many_changes_bring_only_a_few_looks_forward() {
        let (begin, charge) = (Instant::now(), 35.0);
        let (mut pace, mut now, mut looks) = (Pace::new(INTERVAL, begin), begin, 0);
        // People make changes all the time, for ten minutes.
        while now < begin + Duration::from_secs(600) {
            pace.looked(charge, Duration::ZERO, now);
            assert!(pace.due() <= now + PAUSE_MAX);
            assert!(pace.due_after_change() >= now + INTERVAL);
            now = pace.due_after_change();
            looks += 1;
        }
        assert!((60..=68).contains(&looks), "one in ten seconds, and a few early ones: {looks}");
    }
}
