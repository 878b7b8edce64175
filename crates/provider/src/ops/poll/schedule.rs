//! The poll schedule: short intervals while polls find work, longer intervals while polls
//! find nothing. On a container with one physical partition, an idle process sends less than one
//! request per second in total.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

use super::ingest::{FoundWork, NoRoomFor};
use crate::process::interest::Interest;
use crate::sync::lock;
use crate::timing::{POLL_INTERVAL_MAX, POLL_INTERVAL_MIN};

/// A poll that finds nothing multiplies the interval by this factor, up to
/// [`POLL_INTERVAL_MAX`]. So while a fetch waits, the pause between two polls is less than
/// two seconds.
const INTERVAL_GROWTH: f64 = 1.6;

/// How long the result for an interest is kept. An interest without a result is polled for at
/// once.
const RESULT_KEPT_FOR: Duration = Duration::from_secs(60);

/// The longest pause after the first failed poll of a range. A pause is chosen at random between half of
/// its longest time and that time. The longest time doubles with each further failure, up to
/// [`FAILURE_PAUSE_MAX`].
const FAILURE_PAUSE_FIRST: Duration = Duration::from_millis(250);

/// The longest pause after a failed poll.
const FAILURE_PAUSE_MAX: Duration = Duration::from_secs(8);

/// Decides when the next poll of a range is due. Polls are numbered from 1.
#[derive(Debug, Default)]
pub(super) struct Schedule(Mutex<ScheduleState>);

#[derive(Debug)]
struct ScheduleState {
    polls_begun: u64,
    /// The shortest interval.
    interval_min: Duration,
    /// The number of failed polls since the last result.
    failures: u32,
    /// No poll is due before this time, because the last poll failed.
    paused_until: Option<Instant>,
    /// The number of the last poll that failed.
    last_failed: u64,
    /// The last result for each interest; results older than [`RESULT_KEPT_FOR`] are
    /// forgotten.
    results: HashMap<Interest, PollResult>,
}

/// The result of a poll for one interest.
#[derive(Debug, Clone, Copy)]
struct PollResult {
    poll_number: u64,
    ended_at: Instant,
    /// The time from the end of the poll to the next poll for the interest. Each interest has its
    /// own interval: a poll that did not ask for the interest says nothing about its work.
    interval: Duration,
    /// Whether the poll found new work in the queue of the interest.
    has_new_work: bool,
}

impl Default for ScheduleState {
    fn default() -> Self {
        ScheduleState {
            polls_begun: 0,
            interval_min: POLL_INTERVAL_MIN,
            failures: 0,
            paused_until: None,
            last_failed: 0,
            results: HashMap::new(),
        }
    }
}

impl Schedule {
    /// How many polls have begun.
    pub(super) fn polls_begun(&self) -> u64 {
        lock(&self.0).polls_begun
    }

    /// Sets the shortest interval between polls.
    pub(super) fn set_interval_min(&self, interval_min: Duration) {
        lock(&self.0).interval_min = interval_min;
    }

    /// Brings the next poll forward, to the shortest interval after the last poll.
    pub(super) fn poll_soon(&self) {
        let mut state = lock(&self.0);
        let interval_min = state.interval_min;
        state.results.values_mut().for_each(|result| result.interval = result.interval.min(interval_min));
    }

    /// Begins a poll and returns its number.
    pub(super) fn begin_poll(&self) -> u64 {
        let mut state = lock(&self.0);
        state.polls_begun += 1;
        state.polls_begun
    }

    /// The number of failed polls since the last result.
    pub(super) fn failures(&self) -> u32 {
        lock(&self.0).failures
    }

    /// Whether a poll with a number above `polls_before` has failed.
    pub(super) fn has_failed_since(&self, polls_before: u64) -> bool {
        lock(&self.0).last_failed > polls_before
    }

    /// Records that a poll failed. The next poll is due after a pause.
    pub(super) fn record_failure(&self, poll_number: u64) {
        let mut state = lock(&self.0);
        state.last_failed = poll_number;
        let pause = FAILURE_PAUSE_FIRST.saturating_mul(1 << state.failures.min(16)).min(FAILURE_PAUSE_MAX);
        state.failures = state.failures.saturating_add(1);
        state.paused_until = Some(Instant::now() + pause.mul_f64(0.5 + fastrand::f64() / 2.0));
    }

    /// Records the result of a poll that asked for these interests.
    pub(super) fn record_result(&self, poll_number: u64, interests: &[Interest], found: &FoundWork) {
        let mut state = lock(&self.0);
        let at = Instant::now();
        (state.failures, state.paused_until) = (0, None);
        state.results.retain(|_, result| at - result.ended_at <= RESULT_KEPT_FOR);
        let has_work = found.has_work() || found.no_room_for() != NoRoomFor::default();
        for interest in interests {
            let interval = state.results.get(interest).map_or(POLL_INTERVAL_MIN, |result| result.interval);
            let interval =
                next_interval(interval, has_work, found.next_takeover_in()).max(state.interval_min);
            let has_new_work = found.has_work_for(interest);
            let result = PollResult { poll_number, ended_at: at, interval, has_new_work };
            state.results.insert(interest.clone(), result);
        }
    }

    /// Whether a poll with a number above `polls_before` found new work in the queue of an
    /// interest. `None` if no such poll has asked for the interest and ended.
    pub(super) fn result_since(&self, polls_before: u64, interest: &Interest) -> Option<bool> {
        let result = lock(&self.0).results.get(interest).copied()?;
        (result.poll_number > polls_before).then_some(result.has_new_work)
    }

    /// When the next poll for an interest is due: at the end of its interval, or now if there is no
    /// result for the interest. After a failure, not before the pause has ended.
    pub(super) fn next_poll_at(&self, interest: &Interest) -> Instant {
        let state = lock(&self.0);
        let due =
            state.results.get(interest).map_or_else(Instant::now, |result| result.ended_at + result.interval);
        state.paused_until.map_or(due, |until| until.max(due))
    }
}

/// The next interval. `has_work` tells whether the poll found new work, or left work for lack of
/// room. `next_takeover_in` is the time until this process may take work that it leaves to other
/// processes for now; `None` if there is no such work.
fn next_interval(interval: Duration, has_work: bool, next_takeover_in: Option<Duration>) -> Duration {
    match next_takeover_in {
        _ if has_work => POLL_INTERVAL_MIN,
        Some(next_takeover_in) => next_takeover_in.clamp(POLL_INTERVAL_MIN, POLL_INTERVAL_MAX),
        None => interval.mul_f64(INTERVAL_GROWTH).min(POLL_INTERVAL_MAX),
    }
}

#[cfg(test)]
mod tests {
    use duroxide::providers::TagFilter;

    use super::*;
    use crate::documents::heartbeat::Tags;
    use crate::documents::stamp::Stamp;
    use crate::process::membership::Membership;

    #[tokio::test(start_paused = true)]
    async fn after_failures_the_pauses_grow_up_to_a_limit() {
        let (schedule, mut longest) = (Schedule::default(), Duration::ZERO);
        for _ in 0..40 {
            schedule.record_failure(1);
            let pause = schedule.next_poll_at(&Interest::Instances) - Instant::now();
            assert!(pause >= FAILURE_PAUSE_FIRST / 2 && pause <= FAILURE_PAUSE_MAX);
            longest = longest.max(pause);
        }
        assert!(longest >= FAILURE_PAUSE_MAX / 2);
    }

    /// While all dispatchers work, polls ask for activities only. They must not delay the next
    /// poll for instances.
    #[tokio::test(start_paused = true)]
    async fn a_poll_without_an_interest_does_not_delay_the_next_poll_for_it() {
        let schedule = Schedule::default();
        let workers = Interest::Activities { tags: Tags::from(&TagFilter::Any), owner: None };
        let nothing = FoundWork::new(&Membership::default(), false, Stamp(0));
        schedule.record_result(1, &[Interest::Instances], &nothing);
        let due = schedule.next_poll_at(&Interest::Instances);
        for number in 2..10 {
            schedule.record_result(number, std::slice::from_ref(&workers), &nothing);
        }
        assert_eq!(schedule.next_poll_at(&Interest::Instances), due);
        assert_eq!(schedule.next_poll_at(&workers) - Instant::now(), POLL_INTERVAL_MAX);
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
