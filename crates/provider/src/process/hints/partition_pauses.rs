//! Pauses of physical partitions in which activities, or the sessions of activities, cannot be locked:
//! the partition hangs, fails or is throttled. Otherwise its activities, which are the oldest, would
//! come before all others again and again, and all workers would wait for locks that time out.
//!
//! A pause begins with the second failure in a row. While it lasts, nothing is tried. After it one
//! piece of work is tried, its *trial*, and the next pause begins with the trial. So a trial that is
//! dropped without an outcome needs no care: another one is admitted after the pause. An answer of the
//! partition, whatever it says, ends all that.

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
    /// The end of the pause.
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
}

impl PartitionPauses {
    /// Records that work of a partition could not be locked. Returns the pause of the partition; zero
    /// if the failure is tolerated.
    pub(crate) fn record_failure(&self, partition: &str, now: Stamp) -> Duration {
        let mut partitions = lock(&self.0);
        if partitions.len() >= PARTITIONS_MAX && !partitions.contains_key(partition) {
            partitions.retain(|_, failures| failures.until > now);
            if partitions.len() >= PARTITIONS_MAX {
                return Duration::ZERO;
            }
        }
        let none = Failures { count: 0, until: now, trial: None };
        let failures = partitions.entry(partition.to_owned()).or_insert(none);
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
        let Some(failures) = partitions.get_mut(partition) else { return true };
        if failures.count <= FAILURES_TOLERATED {
            return true;
        }
        if failures.until > now {
            return false;
        }
        failures.until = now.plus(failures.pause());
        failures.trial = Some(work.to_owned());
        true
    }

    /// Whether a worker may try to lock this work: its partition is not paused, or the work is the
    /// partition's trial.
    pub(crate) fn may_try(&self, partition: &str, work: &str) -> bool {
        let partitions = lock(&self.0);
        partitions.get(partition).is_none_or(|failures| {
            failures.count <= FAILURES_TOLERATED || failures.trial.as_deref() == Some(work)
        })
    }

    /// The end of the pause of a partition; `None` if the partition is not paused.
    pub(crate) fn paused_until(&self, partition: &str, now: Stamp) -> Option<Stamp> {
        lock(&self.0).get(partition).map(|failures| failures.until).filter(|until| *until > now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_begin_with_the_second_failure_and_grow() {
        let pauses = PartitionPauses::default();
        let now = Stamp::at_ms(1_000_000);
        assert_eq!(pauses.record_failure("p", now), Duration::ZERO);
        assert!(pauses.may_try("p", "a") && pauses.admit("p", "a", now));
        let lengths: Vec<u128> = (0..8).map(|_| pauses.record_failure("p", now).as_millis()).collect();
        assert_eq!(lengths, [250, 500, 1000, 2000, 4000, 8000, 8000, 8000]);
        assert!(!pauses.may_try("p", "a") && pauses.may_try("another", "a"));
        assert!(pauses.record_answer("p") && !pauses.record_answer("p"));
        assert!(pauses.may_try("p", "a"));
    }

    #[test]
    fn after_a_pause_one_piece_of_work_is_tried_at_a_time() {
        let pauses = PartitionPauses::default();
        let at = |ms: u64| Stamp::at_ms(1_000_000 + ms);
        pauses.record_failure("p", at(0));
        pauses.record_failure("p", at(0));
        assert!(!pauses.admit("p", "a", at(249)));
        assert!(pauses.admit("p", "a", at(250)));
        assert!(!pauses.admit("p", "b", at(499)), "the trial is under way");
        assert!(pauses.may_try("p", "a") && !pauses.may_try("p", "b"));
        // The trial was dropped without an outcome.
        assert!(pauses.admit("p", "b", at(500)));
        assert!(pauses.may_try("p", "b") && !pauses.may_try("p", "a"));
        pauses.record_failure("p", at(600));
        assert!(!pauses.may_try("p", "b"));
        assert_eq!(pauses.paused_until("p", at(600)), Some(at(1100)));
        assert_eq!(pauses.paused_until("p", at(1100)), None);
    }

    #[test]
    fn the_number_of_partitions_is_limited() {
        let pauses = PartitionPauses::default();
        let now = Stamp::at_ms(1_000_000);
        for number in 0..PARTITIONS_MAX {
            let partition = number.to_string();
            pauses.record_failure(&partition, now);
            pauses.record_failure(&partition, now);
        }
        assert_eq!(pauses.record_failure("one more", now), Duration::ZERO);
        assert!(!lock(&pauses.0).contains_key("one more"));
        pauses.record_failure("one more", now.plus(PAUSE_MAX));
        assert_eq!(lock(&pauses.0).len(), 1);
    }
}
