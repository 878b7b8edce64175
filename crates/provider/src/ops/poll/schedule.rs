//! When to poll: often while other processes leave work, less and less while
//! they do not. An idle process stays below one request per second with all
//! else it does.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

use super::absorb::Found;
use super::interest::Interest;
use crate::inner::locked;

/// Between polls after one that found something.
const INTERVAL_FIRST: Duration = Duration::from_millis(200);

/// Each poll that finds nothing makes the interval so much longer, up to the
/// last: within two seconds everything is found.
const INTERVAL_GROWTH: f64 = 2.0;
const INTERVAL_LAST: Duration = Duration::from_millis(1800);

#[derive(Debug, Default)]
pub(super) struct Schedule(Mutex<Rounds>);

#[derive(Debug)]
struct Rounds {
    begun: u64,
    interval: Duration,
    /// The last answer to each question; those that nobody asks are forgotten.
    answers: HashMap<Interest, Answer>,
}

/// An answer to one question.
#[derive(Debug, Clone, Copy)]
struct Answer {
    round: u64,
    at: Instant,
    found: bool,
}

impl Default for Rounds {
    fn default() -> Self {
        Rounds { begun: 0, interval: INTERVAL_FIRST, answers: HashMap::new() }
    }
}

impl Schedule {
    /// How many polls were begun.
    pub(super) fn rounds(&self) -> u64 {
        locked(&self.0).begun
    }

    /// Begins one.
    pub(super) fn begin(&self) -> u64 {
        let mut rounds = locked(&self.0);
        rounds.begun += 1;
        rounds.begun
    }

    /// A poll was answered, for these interests.
    pub(super) fn end(&self, round: u64, interests: &[Interest], found: &Found) {
        let mut rounds = locked(&self.0);
        let at = Instant::now();
        rounds.interval = next_interval(rounds.interval, found.is_any(), found.ripens());
        rounds.answers.retain(|_, answer| at - answer.at <= INTERVAL_LAST);
        for interest in interests {
            rounds.answers.insert(interest.clone(), Answer { round, at, found: found.has(interest) });
        }
    }

    /// The answer to that question by a poll begun after so many.
    pub(super) fn answered_since(&self, rounds: u64, interest: &Interest) -> Option<bool> {
        let answer = locked(&self.0).answers.get(interest).copied()?;
        (answer.round > rounds).then_some(answer.found)
    }

    pub(super) fn is_due(&self, interest: &Interest) -> bool {
        self.next(interest) <= Instant::now()
    }

    pub(super) fn next(&self, interest: &Interest) -> Instant {
        let rounds = locked(&self.0);
        rounds.answers.get(interest).map_or_else(Instant::now, |answer| answer.at + rounds.interval)
    }
}

/// Work that was seen and left to others for the moment is looked for again
/// when it would be ours.
fn next_interval(interval: Duration, is_found: bool, ripens: Option<Duration>) -> Duration {
    match ripens {
        _ if is_found => INTERVAL_FIRST,
        Some(ripens) => ripens.clamp(INTERVAL_FIRST, INTERVAL_LAST),
        None => interval.mul_f64(INTERVAL_GROWTH).min(INTERVAL_LAST),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_grow_while_nothing_is_found_and_start_over_when_something_is() {
        let mut interval = INTERVAL_FIRST;
        let mut count = 0;
        while interval < INTERVAL_LAST {
            let next = next_interval(interval, false, None);
            assert!(next > interval);
            (interval, count) = (next, count + 1);
        }
        assert!(count <= 6, "{count}");
        assert_eq!(next_interval(interval, false, None), INTERVAL_LAST);
        assert_eq!(next_interval(interval, true, None), INTERVAL_FIRST);
        let soon = Duration::from_millis(700);
        assert_eq!(next_interval(interval, false, Some(soon)), soon);
        assert_eq!(next_interval(interval, false, Some(Duration::ZERO)), INTERVAL_FIRST);
    }
}
