//! The poll schedule: short intervals while polls find work, longer intervals while polls
//! find nothing. On a container with one physical partition, an idle process sends less than one
//! request per second in total.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

use super::ingest::FoundWork;
use crate::process::interest::Interest;
use crate::sync::lock;
use crate::timing::{POLL_INTERVAL_MAX, POLL_INTERVAL_MIN};

/// A poll that finds nothing multiplies the interval by this factor, up to
/// [`POLL_INTERVAL_MAX`]. So while a fetch waits, the pause between two polls is less than
/// two seconds.
const INTERVAL_GROWTH: f64 = 2.0;

/// Decides when the next poll is due. Polls are numbered from 1.
#[derive(Debug, Default)]
pub(super) struct Schedule(Mutex<ScheduleState>);

#[derive(Debug)]
struct ScheduleState {
    polls_begun: u64,
    /// The time from the end of a poll to the next poll.
    interval: Duration,
    /// The last result for each interest; results older than [`POLL_INTERVAL_MAX`] are
    /// forgotten.
    results: HashMap<Interest, PollResult>,
    /// When `take_overdue` last returned true for an interest.
    overdue_taken_at: HashMap<Interest, Instant>,
}

/// The result of a poll for one interest.
#[derive(Debug, Clone, Copy)]
struct PollResult {
    poll_number: u64,
    ended_at: Instant,
    /// Whether the poll found new work in the queue of the interest.
    has_new_work: bool,
}

impl Default for ScheduleState {
    fn default() -> Self {
        ScheduleState {
            polls_begun: 0,
            interval: POLL_INTERVAL_MIN,
            results: HashMap::new(),
            overdue_taken_at: HashMap::new(),
        }
    }
}

impl Schedule {
    /// How many polls have begun.
    pub(super) fn polls_begun(&self) -> u64 {
        lock(&self.0).polls_begun
    }

    /// Begins a poll and returns its number.
    pub(super) fn begin_poll(&self) -> u64 {
        let mut state = lock(&self.0);
        state.polls_begun += 1;
        state.polls_begun
    }

    /// Records the result of a poll that asked for these interests. A poll that failed is
    /// not recorded, so the next poll stays due.
    pub(super) fn record_result(&self, poll_number: u64, interests: &[Interest], found: &FoundWork) {
        let mut state = lock(&self.0);
        let ended_at = Instant::now();
        state.interval = next_interval(state.interval, found.has_work(), found.next_takeover_in());
        state.results.retain(|_, result| ended_at - result.ended_at <= POLL_INTERVAL_MAX);
        state.overdue_taken_at.retain(|_, taken_at| ended_at - *taken_at <= POLL_INTERVAL_MAX);
        for interest in interests {
            let result = PollResult { poll_number, ended_at, has_new_work: found.has_work_for(interest) };
            state.results.insert(interest.clone(), result);
        }
    }

    /// Whether a poll with a number above `polls_before` found new work in the queue of an
    /// interest. `None` if no such poll has asked for the interest and ended.
    pub(super) fn result_since(&self, polls_before: u64, interest: &Interest) -> Option<bool> {
        let result = lock(&self.0).results.get(interest).copied()?;
        (result.poll_number > polls_before).then_some(result.has_new_work)
    }

    pub(super) fn is_due(&self, interest: &Interest) -> bool {
        self.next_poll_at(interest) <= Instant::now()
    }

    /// Whether no poll for this interest has ended in the last [`POLL_INTERVAL_MAX`]. If so,
    /// the caller polls, even if there are hints. Returns true at most once per
    /// [`POLL_INTERVAL_MAX`], even if the poll fails.
    pub(super) fn take_overdue(&self, interest: &Interest) -> bool {
        let (mut state, now) = (lock(&self.0), Instant::now());
        let ended_at = state.results.get(interest).map(|result| result.ended_at);
        let asked_at = ended_at.max(state.overdue_taken_at.get(interest).copied());
        let is_overdue = asked_at.is_none_or(|at| at + POLL_INTERVAL_MAX <= now);
        if is_overdue {
            state.overdue_taken_at.insert(interest.clone(), now);
        }
        is_overdue
    }

    /// When the next poll for an interest is due: now if no recent poll has asked for the
    /// interest.
    pub(super) fn next_poll_at(&self, interest: &Interest) -> Instant {
        let state = lock(&self.0);
        state.results.get(interest).map_or_else(Instant::now, |result| result.ended_at + state.interval)
    }
}

/// The next interval. `has_work` tells whether the poll found new work. `next_takeover_in` is
/// the time until this process may take work that it leaves to other processes for now; `None`
/// if there is no such work.
fn next_interval(interval: Duration, has_work: bool, next_takeover_in: Option<Duration>) -> Duration {
    match next_takeover_in {
        _ if has_work => POLL_INTERVAL_MIN,
        Some(next_takeover_in) => next_takeover_in.clamp(POLL_INTERVAL_MIN, POLL_INTERVAL_MAX),
        None => interval.mul_f64(INTERVAL_GROWTH).min(POLL_INTERVAL_MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_fetch_with_hints_polls_when_no_fetch_has_polled_for_long() {
        let schedule = Schedule::default();
        let poll_without_work = || {
            let poll_number = schedule.begin_poll();
            let found = FoundWork::new(
                &crate::process::membership::Membership::default(),
                false,
                crate::documents::stamp::Stamp(0),
            );
            schedule.record_result(poll_number, &[Interest::Instances], &found);
        };
        assert!(schedule.take_overdue(&Interest::Instances));
        assert!(!schedule.take_overdue(&Interest::Instances), "one poll is enough, even if it fails");
        tokio::time::sleep(POLL_INTERVAL_MAX).await;
        assert!(schedule.take_overdue(&Interest::Instances));
        poll_without_work();
        tokio::time::sleep(POLL_INTERVAL_MAX - Duration::from_millis(1)).await;
        assert!(!schedule.take_overdue(&Interest::Instances));
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert!(schedule.take_overdue(&Interest::Instances));
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
