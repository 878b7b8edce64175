//! Pauses of physical partitions in which activities, or the sessions of activities, cannot be locked:
//! the partition hangs, fails or is throttled. Otherwise its activities, which are the oldest, would
//! come before all others again and again, and all workers would wait for locks that time out.
//!
//! A pause begins with the second failure in a row. While it lasts, nothing is tried. After it one
//! piece of work is tried, its *trial*. No other work is tried until the trial has failed and the next
//! pause is over, or until the time limit of the trial. So a trial that is dropped without an outcome
//! needs no care, and a hanging partition holds one worker at a time. An answer of the partition,
//! whatever it says, ends all that. So does a long time without a failure.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use crate::documents::stamp::Stamp;
use crate::sync::lock;

/// This many failures in a row are tolerated. One failed request says little about its partition.
const FAILURES_TOLERATED: u32 = 1;

/// The pause after the first failure that is not tolerated. It doubles with each further failure.
const PAUSE_FIRST: Duration = Duration::from_millis(250);

/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(8);

/// This long after the end of its last pause, the failures of a partition are forgotten. Requests that
/// are not counted here may have shown long ago that it is healthy.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(60);

/// Attempts that began this shortly before a trial are the trial: both times are rounded, and the beginning
/// of an attempt is computed from its duration.
const ROUNDING: Duration = Duration::from_millis(50);

/// No pause and no trial takes longer. A later end comes from a clock that has stepped back.
const UNTIL_MAX: Duration = Duration::from_secs(60);

/// The most partitions remembered. With more, those whose pause is over are forgotten; if there are
/// none, further ones get no pause.
const PARTITIONS_MAX: usize = 1024;

/// The partitions with failures, by their first key.
#[derive(Debug, Default)]
pub(crate) struct PartitionPauses(Mutex<HashMap<String, Failures>>);

/// The failures of a partition since its last answer.
#[derive(Debug)]
struct Failures {
    count: u32,
    /// When the current pause or trial began.
    since: Stamp,
    /// The end of the pause, or of the time limit of the trial.
    until: Stamp,
    /// The name of the work that may be tried now.
    trial: Option<String>,
}

impl Failures {
    fn pause(&self) -> Duration {
        match self.count.checked_sub(FAILURES_TOLERATED + 1) {
            None => Duration::ZERO,
            // Sixteen doublings are more than the longest pause.
            Some(doublings) => (PAUSE_FIRST * (1 << doublings.min(16))).min(PAUSE_MAX),
        }
    }

    /// Whether work of the partition may be tried like any other.
    fn is_over(&self, now: Stamp) -> bool {
        self.count <= FAILURES_TOLERATED || self.until.plus(FORGOTTEN_AFTER) < now
    }

    /// Whether the partition is paused, or its trial is under way.
    fn is_closed(&self, now: Stamp) -> bool {
        self.until > now && self.until <= now.plus(UNTIL_MAX)
    }
}

impl PartitionPauses {
    /// Records that work of a partition could not be locked. The attempt began at `begun`. If that was
    /// before the current pause or trial, it says nothing new. Returns the pause of the partition; zero
    /// if the failure is tolerated.
    pub(crate) fn record_failure(&self, partition: &str, begun: Stamp, now: Stamp) -> Duration {
        let mut partitions = lock(&self.0);
        if partitions.len() >= PARTITIONS_MAX && !partitions.contains_key(partition) {
            partitions.retain(|_, failures| failures.until > now);
            if partitions.len() >= PARTITIONS_MAX {
                return Duration::ZERO;
            }
        }
        let none = Failures { count: 0, since: begun, until: now, trial: None };
        let failures = partitions.entry(partition.to_owned()).or_insert(none);
        if failures.count > FAILURES_TOLERATED && begun.plus(ROUNDING) < failures.since {
            return failures.pause();
        }
        failures.since = now;
        failures.count = failures.count.saturating_add(1);
        failures.trial = None;
        failures.until = now.plus(failures.pause());
        failures.pause()
    }

    /// Records that a partition has answered. Returns whether it was paused.
    pub(crate) fn record_answer(&self, partition: &str) -> bool {
        let before = lock(&self.0).remove(partition);
        before.is_some_and(|failures| failures.count > FAILURES_TOLERATED)
    }

    /// Whether a poll may offer this work of a partition. If the partition was paused and its pause is
    /// over, the work is its trial, and further work is not admitted during the next pause.
    pub(crate) fn admit(&self, partition: &str, work: &str, now: Stamp) -> bool {
        let mut partitions = lock(&self.0);
        let Some(failures) = partitions.get_mut(partition).filter(|failures| !failures.is_over(now)) else {
            return true;
        };
        if failures.is_closed(now) {
            return false;
        }
        failures.since = now;
        failures.until = now.plus(failures.pause());
        failures.trial = Some(work.to_owned());
        true
    }

    /// Begins to lock this work, which takes at most `limit`. False if its partition is paused or has
    /// another trial: then the work must not be tried.
    pub(crate) fn begin(&self, partition: &str, work: &str, limit: Duration, now: Stamp) -> bool {
        let mut partitions = lock(&self.0);
        let Some(failures) = partitions.get_mut(partition).filter(|failures| !failures.is_over(now)) else {
            return true;
        };
        // If no poll has offered a trial yet, this work is the trial.
        if failures.is_closed(now) && failures.trial.as_deref() != Some(work) {
            return false;
        }
        failures.since = now;
        failures.until = now.plus(limit);
        failures.trial = Some(work.to_owned());
        true
    }

    /// Records that the trial of a partition has ended and says nothing about the partition. Other work
    /// may be tried at once. Returns whether the work was the trial.
    pub(crate) fn end_trial(&self, partition: &str, work: &str, now: Stamp) -> bool {
        let mut partitions = lock(&self.0);
        let trial = partitions.get_mut(partition).filter(|failures| failures.trial.as_deref() == Some(work));
        let Some(failures) = trial else { return false };
        (failures.trial, failures.until) = (None, now);
        true
    }

    /// The number of failures of a partition since its last answer.
    pub(crate) fn failures(&self, partition: &str) -> u32 {
        lock(&self.0).get(partition).map_or(0, |failures| failures.count)
    }

    /// The end of the pause of a partition; `None` if the partition is not paused.
    pub(crate) fn paused_until(&self, partition: &str, now: Stamp) -> Option<Stamp> {
        let partitions = lock(&self.0);
        partitions.get(partition).filter(|failures| failures.is_closed(now)).map(|failures| failures.until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The time limit of a trial.
    const TRIAL: Duration = Duration::from_secs(10);

    #[test]
    fn pauses_begin_with_the_second_failure_and_grow() {
        let pauses = PartitionPauses::default();
        let now = Stamp::at_ms(1_000_000);
        assert_eq!(pauses.record_failure("p", now, now), Duration::ZERO);
        assert!(pauses.begin("p", "a", TRIAL, now) && pauses.admit("p", "a", now));
        let lengths: Vec<u128> = (0..8).map(|_| pauses.record_failure("p", now, now).as_millis()).collect();
        assert_eq!(lengths, [250, 500, 1000, 2000, 4000, 8000, 8000, 8000]);
        assert!(!pauses.begin("p", "a", TRIAL, now) && pauses.begin("another", "a", TRIAL, now));
        assert!(pauses.record_answer("p") && !pauses.record_answer("p"));
        assert!(pauses.begin("p", "a", TRIAL, now));
    }

    #[test]
    fn after_a_pause_one_piece_of_work_is_tried_at_a_time() {
        let pauses = PartitionPauses::default();
        let at = |ms: u64| Stamp::at_ms(1_000_000 + ms);
        pauses.record_failure("p", at(0), at(0));
        pauses.record_failure("p", at(0), at(0));
        assert!(!pauses.admit("p", "a", at(249)));
        assert!(pauses.admit("p", "a", at(250)));
        assert!(!pauses.admit("p", "b", at(499)), "the trial is offered");
        assert!(!pauses.begin("p", "b", TRIAL, at(499)) && pauses.begin("p", "a", TRIAL, at(499)));
        assert!(!pauses.admit("p", "b", at(10_498)), "the trial is under way");
        // The trial was dropped without an outcome, and its time is over.
        assert!(pauses.admit("p", "b", at(10_499)));
        assert!(!pauses.begin("p", "a", TRIAL, at(10_600)) && pauses.begin("p", "b", TRIAL, at(10_600)));
        pauses.record_failure("p", at(10_700), at(10_700));
        assert!(!pauses.begin("p", "b", TRIAL, at(10_700)));
        assert_eq!(pauses.paused_until("p", at(10_700)), Some(at(11_200)));
        assert_eq!(pauses.paused_until("p", at(11_200)), None);
        // Work that the process remembers is a trial too, and may end without saying anything.
        assert!(pauses.begin("p", "c", TRIAL, at(11_200)));
        assert!(!pauses.end_trial("p", "b", at(11_300)) && pauses.end_trial("p", "c", at(11_300)));
        assert!(pauses.begin("p", "d", TRIAL, at(11_300)), "another trial may begin at once");
    }

    #[test]
    fn failures_of_one_hang_count_once() {
        let pauses = PartitionPauses::default();
        let at = |ms: u64| Stamp::at_ms(1_000_000 + ms);
        assert_eq!(pauses.record_failure("p", at(0), at(10_000)), Duration::ZERO);
        for _ in 0..16 {
            assert_eq!(pauses.record_failure("p", at(0), at(10_000)), PAUSE_FIRST);
        }
        assert!(pauses.admit("p", "a", at(10_250)) && pauses.begin("p", "a", TRIAL, at(10_250)));
        pauses.record_failure("p", at(5_000), at(10_300));
        assert!(pauses.end_trial("p", "a", at(10_300)), "a failure of an earlier attempt ends no trial");
    }

    #[test]
    fn old_failures_are_forgotten_and_a_step_of_the_clock_pauses_nothing() {
        let pauses = PartitionPauses::default();
        let at = |seconds: u64| Stamp::at_ms(100_000_000 + seconds * 1000);
        pauses.record_failure("p", at(0), at(0));
        pauses.record_failure("p", at(0), at(0));
        assert!(pauses.begin("p", "a", TRIAL, at(61)) && pauses.begin("p", "b", TRIAL, at(61)));
        // The clock was an hour ahead.
        pauses.record_failure("q", at(3600), at(3600));
        pauses.record_failure("q", at(3600), at(3600));
        assert!(pauses.admit("q", "a", at(1)));
        assert_eq!(
            pauses.paused_until("q", at(0)),
            Some(at(0).plus(PAUSE_FIRST).plus(Duration::from_secs(1)))
        );
    }

    #[test]
    fn the_number_of_partitions_is_limited() {
        let pauses = PartitionPauses::default();
        let now = Stamp::at_ms(1_000_000);
        for number in 0..PARTITIONS_MAX {
            let partition = number.to_string();
            pauses.record_failure(&partition, now, now);
            pauses.record_failure(&partition, now, now);
        }
        assert_eq!(pauses.record_failure("one more", now, now), Duration::ZERO);
        assert!(!lock(&pauses.0).contains_key("one more"));
        pauses.record_failure("one more", now.plus(PAUSE_MAX), now.plus(PAUSE_MAX));
        assert_eq!(lock(&pauses.0).len(), 1);
    }
}
