//! Pauses of physical partitions in which activities, or the sessions of activities, cannot be locked:
//! the partition hangs, fails or is throttled. Without a pause its activities, which are the oldest,
//! would come before all others again and again, and all workers would wait for locks that time out.
//!
//! A pause begins with the second failure in a row. While it lasts, nothing is tried. After it one
//! piece of work is tried, its *trial*. No other work is tried until the trial has failed and the next
//! pause is over, or until the time limit of the trial. So a trial that is dropped without an outcome
//! needs no cleanup, and a hanging partition holds one worker at a time. An answer of the partition,
//! also one that refuses the lock, ends its pauses and trials, unless no worker would have waited so
//! long for the answer. A long time without a failure ends them, too.
//!
//! Attempts overlap, and their outcomes arrive in any order. So each attempt has a number. The failure
//! of an attempt that began before the last answer, pause or trial of its partition says nothing new.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

use crate::process::memory_size::MemorySize;
use crate::sync::lock;

/// This many failures in a row are tolerated. One failed request says little about its partition.
const FAILURES_TOLERATED: u32 = 1;

/// The pause after the first failure that is not tolerated. It doubles with each further failure.
const PAUSE_FIRST: Duration = Duration::from_millis(250);

/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(8);

/// This long after the end of its last pause, the failures of a partition are forgotten. Requests that
/// are not counted here may have shown long ago that the partition is healthy.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(60);

/// The outcome of a trial is recorded here at most this long after its time limit.
const TRIAL_MARGIN: Duration = Duration::from_secs(1);

/// The most partitions remembered. With more, those whose pause is over are forgotten; if there are
/// none, further ones get no pause.
const PARTITIONS_MAX: usize = 1024;

/// The partitions with failures.
#[derive(Debug, Default)]
pub(crate) struct PartitionPauses(Mutex<Partitions>);

#[derive(Debug, Default)]
struct Partitions {
    /// The number of the last attempt, answer, pause or trial.
    last_number: u64,
    /// The failures, by the first key of the partition.
    failures: HashMap<String, Failures>,
}

/// An attempt to lock work of a partition.
#[derive(Debug, Clone)]
pub(crate) struct Attempt {
    partition: String,
    number: u64,
    is_trial: bool,
}

impl Attempt {
    /// Whether the partition was paused before this attempt.
    pub(crate) fn is_trial(&self) -> bool {
        self.is_trial
    }
}

/// The failures of a partition since its last answer.
#[derive(Debug)]
struct Failures {
    count: u32,
    /// Failures of attempts with smaller numbers are not counted.
    counted_from: u64,
    /// The end of the pause, of the time in which an offered trial has to begin, or of the time limit of
    /// the trial.
    closed_until: Instant,
    /// The name of the work that a poll has offered as the trial. `None` if there is none, or the trial
    /// has begun.
    trial: Option<String>,
}

impl Failures {
    fn new(now: Instant) -> Self {
        Failures { count: 0, counted_from: 0, closed_until: now, trial: None }
    }

    fn pause(&self) -> Duration {
        match self.count.checked_sub(FAILURES_TOLERATED + 1) {
            None => Duration::ZERO,
            // Sixteen doublings are more than the longest pause.
            Some(doublings) => (PAUSE_FIRST * (1 << doublings.min(16))).min(PAUSE_MAX),
        }
    }

    /// Whether the partition is paused, or its next work is a trial.
    fn is_sick(&self) -> bool {
        self.count > FAILURES_TOLERATED
    }

    /// Whether the partition is paused, or its trial is offered or under way.
    fn is_closed(&self, now: Instant) -> bool {
        self.closed_until > now
    }
}

impl Partitions {
    fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    /// Forgets the failures of a partition if they are old. Then returns what is known about it.
    fn find(&mut self, partition: &str, now: Instant) -> Option<&mut Failures> {
        let failures = self.failures.get_mut(partition)?;
        if failures.closed_until + FORGOTTEN_AFTER < now {
            *failures =
                Failures { counted_from: failures.counted_from, ..Failures::new(failures.closed_until) };
        }
        Some(failures)
    }

    fn find_sick(&mut self, partition: &str, now: Instant) -> Option<&mut Failures> {
        self.find(partition, now).filter(|failures| failures.is_sick())
    }

    /// The failures of a partition, which may be none yet. `None` if too many partitions are paused.
    fn find_or_insert(&mut self, partition: &str, now: Instant) -> Option<&mut Failures> {
        if self.failures.len() >= PARTITIONS_MAX && !self.failures.contains_key(partition) {
            self.failures.retain(|_, failures| failures.is_closed(now));
            if self.failures.len() >= PARTITIONS_MAX {
                return None;
            }
        }
        self.failures.entry(partition.to_owned()).or_insert_with(|| Failures::new(now));
        self.find(partition, now)
    }
}

impl PartitionPauses {
    /// Whether a poll may offer this work of a partition. If the partition was paused and its pause is
    /// over, the work is its trial, and further work is not admitted during the next pause.
    pub(crate) fn admit(&self, partition: &str, work: &str, now: Instant) -> bool {
        let mut partitions = lock(&self.0);
        let Some(failures) = partitions.find_sick(partition, now) else { return true };
        if failures.is_closed(now) {
            return false;
        }
        failures.closed_until = now + failures.pause();
        failures.trial = Some(work.to_owned());
        true
    }

    /// Begins to lock this work, which takes at most `limit`. `None` if its partition is paused or has
    /// another trial: then the work must not be tried.
    pub(crate) fn begin(
        &self,
        partition: &str,
        work: &str,
        limit: Duration,
        now: Instant,
    ) -> Option<Attempt> {
        let mut partitions = lock(&self.0);
        let number = partitions.next_number();
        let mut is_trial = false;
        if let Some(failures) = partitions.find_sick(partition, now) {
            // If no poll has offered a trial yet, this work is the trial.
            if failures.is_closed(now) && failures.trial.as_deref() != Some(work) {
                return None;
            }
            failures.counted_from = number;
            failures.closed_until = now + limit + TRIAL_MARGIN;
            // The trial begins only once, although several activities can wait for the same session.
            failures.trial = None;
            is_trial = true;
        }
        Some(Attempt { partition: partition.to_owned(), number, is_trial })
    }

    /// Records that work of a partition could not be locked. Returns the pause that begins now; zero if
    /// the failure is tolerated or says nothing new.
    pub(crate) fn record_failure(&self, attempt: &Attempt, now: Instant) -> Duration {
        let mut partitions = lock(&self.0);
        let next = partitions.next_number();
        let Some(failures) = partitions.find_or_insert(&attempt.partition, now) else {
            return Duration::ZERO;
        };
        if attempt.number < failures.counted_from {
            return Duration::ZERO;
        }
        failures.count = failures.count.saturating_add(1);
        failures.trial = None;
        failures.closed_until = now + failures.pause();
        if failures.is_sick() {
            failures.counted_from = next;
        }
        failures.pause()
    }

    /// Records that an attempt takes longer than its caller waits, or that its answer came when no caller
    /// waited for it any more. That alone pauses no partition and ends no pause, but counts as a first
    /// failure.
    pub(crate) fn record_delay(&self, attempt: &Attempt, now: Instant) {
        let mut partitions = lock(&self.0);
        let Some(failures) = partitions.find_or_insert(&attempt.partition, now) else { return };
        if attempt.number >= failures.counted_from && failures.count < FAILURES_TOLERATED {
            (failures.count, failures.closed_until) = (FAILURES_TOLERATED, now);
        }
    }

    /// Records that a partition has answered. Returns whether it was paused.
    pub(crate) fn record_answer(&self, attempt: &Attempt, now: Instant) -> bool {
        self.reopen(attempt, 0, now)
    }

    /// Records that a partition has answered, but so late that the next failure counts as the second.
    /// Returns whether it was paused.
    pub(crate) fn record_late_answer(&self, attempt: &Attempt, now: Instant) -> bool {
        self.reopen(attempt, FAILURES_TOLERATED, now)
    }

    fn reopen(&self, attempt: &Attempt, count: u32, now: Instant) -> bool {
        let mut partitions = lock(&self.0);
        let next = partitions.next_number();
        if count == 0 && !partitions.failures.contains_key(&attempt.partition) {
            return false;
        }
        let Some(failures) = partitions.find_or_insert(&attempt.partition, now) else { return false };
        let was_sick = failures.is_sick();
        *failures = Failures { count, counted_from: next, ..Failures::new(now) };
        was_sick
    }

    /// Records that the trial of a partition has ended and says nothing about the partition. Other work
    /// may be tried at once. Returns whether the attempt was the trial.
    pub(crate) fn end_trial(&self, attempt: &Attempt, now: Instant) -> bool {
        let mut partitions = lock(&self.0);
        let is_this = |failures: &&mut Failures| failures.counted_from == attempt.number;
        let Some(failures) = partitions.find_sick(&attempt.partition, now).filter(is_this) else {
            return false;
        };
        (failures.trial, failures.closed_until) = (None, now);
        true
    }

    /// The number of partitions with failures, under this name.
    pub(crate) fn memory_size(&self, structure: &'static str) -> MemorySize {
        MemorySize::kept(structure, lock(&self.0).failures.len(), PARTITIONS_MAX)
    }

    /// The number of failures of a partition since its last answer.
    pub(crate) fn failures(&self, partition: &str, now: Instant) -> u32 {
        lock(&self.0).find(partition, now).map_or(0, |failures| failures.count)
    }

    /// How long a partition stays paused; `None` if the partition is not paused.
    pub(crate) fn paused_for(&self, partition: &str, now: Instant) -> Option<Duration> {
        let mut partitions = lock(&self.0);
        let failures = partitions.find_sick(partition, now).filter(|failures| failures.is_closed(now))?;
        Some(failures.closed_until - now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The time limit of a trial.
    const TRIAL: Duration = Duration::from_secs(10);

    /// Pauses, and a clock for them.
    struct World {
        pauses: PartitionPauses,
        begun: Instant,
    }

    impl World {
        fn new() -> Self {
            World { pauses: PartitionPauses::default(), begun: Instant::now() }
        }

        fn at(&self, ms: u64) -> Instant {
            self.begun + Duration::from_millis(ms)
        }

        fn begin(&self, work: &str, ms: u64) -> Option<Attempt> {
            self.pauses.begin("p", work, TRIAL, self.at(ms))
        }

        fn admit(&self, work: &str, ms: u64) -> bool {
            self.pauses.admit("p", work, self.at(ms))
        }

        /// Two failures of attempts that begin together.
        fn fail_twice(&self, ms: u64) {
            let attempts = [self.begin("x", ms).unwrap(), self.begin("y", ms).unwrap()];
            assert_eq!(self.pauses.record_failure(&attempts[0], self.at(ms)), Duration::ZERO);
            assert_eq!(self.pauses.record_failure(&attempts[1], self.at(ms)), PAUSE_FIRST);
        }
    }

    #[test]
    fn pauses_begin_with_the_second_failure_and_grow() {
        let world = World::new();
        let mut ms = 0;
        let mut fail = || {
            let attempt = world.begin("a", ms).unwrap();
            let pause = world.pauses.record_failure(&attempt, world.at(ms)).as_millis();
            ms += u64::try_from(pause).unwrap();
            pause
        };
        let lengths: Vec<u128> = (0..9).map(|_| fail()).collect();
        assert_eq!(lengths, [0, 250, 500, 1000, 2000, 4000, 8000, 8000, 8000]);
        let trial = world.begin("a", ms).unwrap();
        assert!(trial.is_trial() && world.begin("b", ms).is_none());
        assert!(world.pauses.begin("another", "a", TRIAL, world.at(ms)).is_some());
        assert!(world.pauses.record_answer(&trial, world.at(ms)));
        assert!(!world.pauses.record_answer(&trial, world.at(ms)));
        assert!(!world.begin("b", ms).unwrap().is_trial());
    }

    #[test]
    fn after_a_pause_one_piece_of_work_is_tried_at_a_time() {
        let world = World::new();
        world.fail_twice(0);
        assert!(!world.admit("a", 249) && world.admit("a", 250));
        assert!(!world.admit("b", 499), "the trial is offered");
        assert!(world.begin("b", 499).is_none() && world.begin("a", 499).is_some());
        assert!(!world.admit("b", 11_498), "the trial is under way");
        // The trial was dropped without an outcome, and its time is over.
        assert!(world.admit("b", 11_499) && world.begin("a", 11_600).is_none());
        let trial = world.begin("b", 11_600).unwrap();
        world.pauses.record_failure(&trial, world.at(11_700));
        assert!(world.begin("b", 11_700).is_none());
        let paused_for = |ms| world.pauses.paused_for("p", world.at(ms));
        assert_eq!((paused_for(11_700), paused_for(12_200)), (Some(Duration::from_millis(500)), None));
        // Work that no poll has offered can be the trial, too. A trial can end without an outcome.
        let next = world.begin("c", 12_200).unwrap();
        assert!(!world.pauses.end_trial(&trial, world.at(12_300)));
        assert!(world.pauses.end_trial(&next, world.at(12_300)));
        assert!(world.begin("d", 12_300).is_some(), "another trial may begin at once");
    }

    /// Workers hang together, or are refused together within milliseconds.
    #[test]
    fn attempts_that_fail_together_cause_one_pause() {
        for duration_ms in [5, 10_000] {
            let world = World::new();
            let attempts: Vec<Attempt> =
                (0..16).map(|work| world.begin(&work.to_string(), 0).unwrap()).collect();
            for attempt in &attempts[..15] {
                world.pauses.record_failure(attempt, world.at(duration_ms));
            }
            assert_eq!(world.pauses.failures("p", world.at(duration_ms)), 2);
            let ms = duration_ms + 250;
            assert!(world.admit("a", ms));
            assert_eq!(world.pauses.record_failure(&attempts[15], world.at(ms)), Duration::ZERO);
            let trial = world.begin("a", ms).expect("an older failure ends no trial");
            assert_eq!(world.pauses.record_failure(&trial, world.at(ms)), 2 * PAUSE_FIRST);
        }
    }

    #[test]
    fn failures_from_before_an_answer_say_nothing_new() {
        let world = World::new();
        let old = [world.begin("a", 0).unwrap(), world.begin("b", 0).unwrap()];
        world.fail_twice(10);
        let trial = world.begin("c", 500).unwrap();
        world.pauses.record_answer(&trial, world.at(600));
        for attempt in &old {
            assert_eq!(world.pauses.record_failure(attempt, world.at(10_000)), Duration::ZERO);
        }
        assert_eq!(world.pauses.failures("p", world.at(10_000)), 0);
    }

    #[test]
    fn old_failures_are_forgotten() {
        let world = World::new();
        world.fail_twice(0);
        let attempts = [world.begin("a", 61_000).unwrap(), world.begin("b", 61_000).unwrap()];
        assert!(attempts.iter().all(|attempt| !attempt.is_trial()));
        assert_eq!(world.pauses.record_failure(&attempts[0], world.at(61_000)), Duration::ZERO);
        // A tolerated failure is forgotten, too.
        let later = world.begin("a", 122_000).unwrap();
        assert_eq!(world.pauses.record_failure(&later, world.at(122_000)), Duration::ZERO);
    }

    #[test]
    fn delays_pause_no_partition_and_count_as_the_first_failure() {
        let world = World::new();
        for work in ["a", "b", "c"] {
            world.pauses.record_delay(&world.begin(work, 0).unwrap(), world.at(0));
        }
        assert_eq!(world.pauses.failures("p", world.at(0)), 1);
        let attempt = world.begin("d", 0).unwrap();
        world.pauses.record_late_answer(&attempt, world.at(1));
        assert_eq!(world.pauses.failures("p", world.at(1)), 1, "the partition is still slow");
        world.pauses.record_answer(&attempt, world.at(2));
        assert_eq!(world.pauses.failures("p", world.at(2)), 0);
    }

    /// Locks in a partition that is throttled for long are written at last, long after their workers have
    /// gone. If they ended the pause or the trial that is under way, all workers would wait there again.
    #[test]
    fn answers_for_which_no_worker_waits_allow_one_trial_at_a_time() {
        let world = World::new();
        world.fail_twice(0);
        let trial = world.begin("b", 250).unwrap();
        world.pauses.record_failure(&trial, world.at(2_250));
        let next = world.begin("c", 15_000).unwrap();
        world.pauses.record_delay(&trial, world.at(15_500));
        assert!(next.is_trial() && world.begin("d", 15_500).is_none(), "the next trial is under way");
        assert!(world.pauses.record_answer(&next, world.at(16_000)));
        assert!(!world.begin("d", 16_000).unwrap().is_trial());
    }

    /// Several activities wait for the same session.
    #[test]
    fn a_trial_begins_once() {
        let world = World::new();
        world.fail_twice(0);
        let trial = world.begin("session", 250).unwrap();
        assert!(world.begin("session", 300).is_none());
        assert_eq!(world.pauses.record_failure(&trial, world.at(9_250)), 2 * PAUSE_FIRST);
    }

    #[test]
    fn the_number_of_partitions_is_limited() {
        let pauses = PartitionPauses::default();
        let now = Instant::now();
        let fail = |partition: &str, now| {
            let attempt = pauses.begin(partition, "a", TRIAL, now).unwrap();
            pauses.record_failure(&attempt, now)
        };
        for number in 0..PARTITIONS_MAX {
            let partition = number.to_string();
            fail(&partition, now);
            fail(&partition, now);
        }
        assert_eq!(fail("one more", now), Duration::ZERO);
        assert!(!lock(&pauses.0).failures.contains_key("one more"));
        fail("one more", now + PAUSE_MAX);
        assert_eq!(lock(&pauses.0).failures.len(), 1);
    }
}
