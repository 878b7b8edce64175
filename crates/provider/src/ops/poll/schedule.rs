//! The poll schedule: short intervals while polls find work, longer ones while they do
//! not. An idle process sends less than one request per second in total.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

use super::ingest::Found;
use crate::process::interest::Interest;
use crate::sync::lock;
use crate::timing::{POLL_INTERVAL_MAX, POLL_INTERVAL_MIN};

/// A poll that finds nothing multiplies the interval by this, up to
/// [`POLL_INTERVAL_MAX`]. So work is found within two seconds.
const INTERVAL_GROWTH: f64 = 2.0;

/// Decides when the next poll is due. A poll has a number, its round.
#[derive(Debug, Default)]
pub(super) struct Schedule(Mutex<Rounds>);

#[derive(Debug)]
struct Rounds {
    begun: u64,
    interval: Duration,
    /// The last result for each interest; old ones are forgotten.
    results: HashMap<Interest, PollResult>,
    /// When a fetch with hints was last told to poll for an interest.
    urged: HashMap<Interest, Instant>,
}

/// The result of a poll for one interest.
#[derive(Debug, Clone, Copy)]
struct PollResult {
    round: u64,
    at: Instant,
    found: bool,
}

impl Default for Rounds {
    fn default() -> Self {
        Rounds { begun: 0, interval: POLL_INTERVAL_MIN, results: HashMap::new(), urged: HashMap::new() }
    }
}

impl Schedule {
    /// How many polls have begun.
    pub(super) fn rounds(&self) -> u64 {
        lock(&self.0).begun
    }

    /// Begins a poll and returns its number.
    pub(super) fn begin(&self) -> u64 {
        let mut rounds = lock(&self.0);
        rounds.begun += 1;
        rounds.begun
    }

    /// Ends a poll that asked for these interests.
    pub(super) fn end(&self, round: u64, interests: &[Interest], found: &Found) {
        let mut rounds = lock(&self.0);
        let at = Instant::now();
        rounds.interval = next_interval(rounds.interval, found.is_any(), found.matures_in());
        rounds.results.retain(|_, result| at - result.at <= POLL_INTERVAL_MAX);
        rounds.urged.retain(|_, urged| at - *urged <= POLL_INTERVAL_MAX);
        for interest in interests {
            rounds.results.insert(interest.clone(), PollResult { round, at, found: found.has(interest) });
        }
    }

    /// Whether a poll found work for an interest. Counts only polls after the first
    /// `rounds`; `None` if no such poll has ended.
    pub(super) fn result_since(&self, rounds: u64, interest: &Interest) -> Option<bool> {
        let result = lock(&self.0).results.get(interest).copied()?;
        (result.round > rounds).then_some(result.found)
    }

    pub(super) fn is_due(&self, interest: &Interest) -> bool {
        self.next(interest) <= Instant::now()
    }

    /// Whether no poll has asked for this interest for the longest interval. Then the
    /// next fetch polls even if it has hints. Returns true once in that time, however
    /// the poll ends.
    pub(super) fn is_urgent(&self, interest: &Interest) -> bool {
        let (mut rounds, now) = (lock(&self.0), Instant::now());
        let last = rounds.results.get(interest).map(|result| result.at);
        let asked_at = last.max(rounds.urged.get(interest).copied());
        let is_urgent = asked_at.is_none_or(|at| at + POLL_INTERVAL_MAX <= now);
        if is_urgent {
            rounds.urged.insert(interest.clone(), now);
        }
        is_urgent
    }

    pub(super) fn next(&self, interest: &Interest) -> Instant {
        let rounds = lock(&self.0);
        rounds.results.get(interest).map_or_else(Instant::now, |result| result.at + rounds.interval)
    }
}

/// The next interval. `matures_in` is the time until this process may take work that is
/// left to other processes for now.
fn next_interval(interval: Duration, is_found: bool, matures_in: Option<Duration>) -> Duration {
    match matures_in {
        _ if is_found => POLL_INTERVAL_MIN,
        Some(matures_in) => matures_in.clamp(POLL_INTERVAL_MIN, POLL_INTERVAL_MAX),
        None => interval.mul_f64(INTERVAL_GROWTH).min(POLL_INTERVAL_MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_fetch_with_hints_polls_when_no_fetch_has_polled_for_long() {
        let schedule = Schedule::default();
        let result = || {
            let round = schedule.begin();
            let found = Found::new(
                &crate::process::membership::Membership::default(),
                false,
                crate::documents::stamp::Stamp(0),
            );
            schedule.end(round, &[Interest::Instances], &found);
        };
        assert!(schedule.is_urgent(&Interest::Instances));
        assert!(!schedule.is_urgent(&Interest::Instances), "one poll is enough, even if it fails");
        tokio::time::sleep(POLL_INTERVAL_MAX).await;
        assert!(schedule.is_urgent(&Interest::Instances));
        result();
        tokio::time::sleep(POLL_INTERVAL_MAX - Duration::from_millis(1)).await;
        assert!(!schedule.is_urgent(&Interest::Instances));
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert!(schedule.is_urgent(&Interest::Instances));
    }

    #[test]
    fn intervals_grow_while_nothing_is_found_and_start_over_when_work_is_found() {
        let mut interval = POLL_INTERVAL_MIN;
        let mut count = 0;
        while interval < POLL_INTERVAL_MAX {
            let next = next_interval(interval, false, None);
            assert!(next > interval);
            (interval, count) = (next, count + 1);
        }
        assert!(count <= 6, "{count}");
        assert_eq!(next_interval(interval, false, None), POLL_INTERVAL_MAX);
        assert_eq!(next_interval(interval, true, None), POLL_INTERVAL_MIN);
        let soon = Duration::from_millis(700);
        assert_eq!(next_interval(interval, false, Some(soon)), soon);
        assert_eq!(next_interval(interval, false, Some(Duration::ZERO)), POLL_INTERVAL_MIN);
    }
}
