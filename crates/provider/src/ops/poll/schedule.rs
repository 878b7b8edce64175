//! When to poll: often while other processes leave work, less and less while
//! they do not. An idle process stays below one request per second with all
//! else it does.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

use super::ingest::Found;
use crate::process::interest::Interest;
use crate::sync::lock;

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
    /// When a fetch that has no need of a poll was last told to do one.
    urged: HashMap<Interest, Instant>,
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
        Rounds { begun: 0, interval: INTERVAL_FIRST, answers: HashMap::new(), urged: HashMap::new() }
    }
}

impl Schedule {
    /// How many polls were begun.
    pub(super) fn rounds(&self) -> u64 {
        lock(&self.0).begun
    }

    /// Begins one.
    pub(super) fn begin(&self) -> u64 {
        let mut rounds = lock(&self.0);
        rounds.begun += 1;
        rounds.begun
    }

    /// A poll was answered, for these interests.
    pub(super) fn end(&self, round: u64, interests: &[Interest], found: &Found) {
        let mut rounds = lock(&self.0);
        let at = Instant::now();
        rounds.interval = next_interval(rounds.interval, found.is_any(), found.ripens());
        rounds.answers.retain(|_, answer| at - answer.at <= INTERVAL_LAST);
        rounds.urged.retain(|_, urged| at - *urged <= INTERVAL_LAST);
        for interest in interests {
            rounds.answers.insert(interest.clone(), Answer { round, at, found: found.has(interest) });
        }
    }

    /// The answer to that question by a poll begun after so many.
    pub(super) fn answered_since(&self, rounds: u64, interest: &Interest) -> Option<bool> {
        let answer = lock(&self.0).answers.get(interest).copied()?;
        (answer.round > rounds).then_some(answer.found)
    }

    pub(super) fn is_due(&self, interest: &Interest) -> bool {
        self.next(interest) <= Instant::now()
    }

    /// Whether nobody has asked that for as long as an idle process waits: then
    /// whoever comes next asks, even with work at hand. It is told so once in
    /// that time, however the poll ends.
    pub(super) fn is_urgent(&self, interest: &Interest) -> bool {
        let (mut rounds, now) = (lock(&self.0), Instant::now());
        let answered = rounds.answers.get(interest).map(|answer| answer.at);
        let asked = answered.max(rounds.urged.get(interest).copied());
        let is_urgent = asked.is_none_or(|at| at + INTERVAL_LAST <= now);
        if is_urgent {
            rounds.urged.insert(interest.clone(), now);
        }
        is_urgent
    }

    pub(super) fn next(&self, interest: &Interest) -> Instant {
        let rounds = lock(&self.0);
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

    #[tokio::test(start_paused = true)]
    async fn whoever_has_work_at_hand_polls_when_nobody_has_for_long() {
        let schedule = Schedule::default();
        let answer = || {
            let round = schedule.begin();
            let found = Found::new(
                &crate::process::membership::Membership::default(),
                false,
                crate::documents::stamp::Stamp(0),
            );
            schedule.end(round, &[Interest::Turns], &found);
        };
        assert!(schedule.is_urgent(&Interest::Turns));
        assert!(!schedule.is_urgent(&Interest::Turns), "one is enough, even when it fails");
        tokio::time::sleep(INTERVAL_LAST).await;
        assert!(schedule.is_urgent(&Interest::Turns));
        answer();
        tokio::time::sleep(INTERVAL_LAST - Duration::from_millis(1)).await;
        assert!(!schedule.is_urgent(&Interest::Turns));
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert!(schedule.is_urgent(&Interest::Turns));
    }

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
