//! `Pace` spreads the wait for a running checkpoint over many commits.
//!
//! When the log is full, a commit has to wait until the running checkpoint ends. Under many writes
//! that one commit waited for most of a checkpoint (155 ms were measured). So while a checkpoint
//! runs, the second half of the log file is filled no faster than the checkpoint is expected to
//! proceed: each commit there waits a little. The first half is filled at any speed.

use std::time::Duration;

/// How long a checkpoint is expected to take before one was measured in this process.
const EXPECTED_AT_FIRST: Duration = Duration::from_millis(300);

/// The most that a checkpoint is expected to take, however slow the last one was. This bounds the sum
/// of all waits during one checkpoint.
const EXPECTED_MAX: Duration = Duration::from_secs(2);

/// The measured speed of checkpoints, and from it the wait after a commit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Pace {
    expected: Duration,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace { expected: EXPECTED_AT_FIRST }
    }
}

impl Pace {
    /// Records how long a checkpoint took. The next one is expected to take up to a quarter more. A
    /// short checkpoint, such as one of few removals, lowers the expectation by a quarter at most.
    pub(super) fn record(&mut self, took: Duration) {
        self.expected = (took * 5 / 4).max(self.expected * 3 / 4).min(EXPECTED_MAX);
    }

    /// How long a commit waits for the running checkpoint, at most, after it was appended to the log.
    /// `fill` is the part of the log file that is used then (1 is a full file), and `elapsed` the time
    /// since the checkpoint began.
    pub(super) fn wait(&self, fill: f64, elapsed: Duration) -> Duration {
        let part_of_second_half = (2.0 * fill - 1.0).clamp(0.0, 1.0);
        self.expected.mul_f64(part_of_second_half).saturating_sub(elapsed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Fills a log file with commits of equal size while a checkpoint runs. Returns the wait of each
    /// commit, and last the wait for the end of the checkpoint when the file is full.
    fn waits(pace: Pace, commits: u32, commit_takes: Duration, checkpoint_takes: Duration) -> Vec<Duration> {
        let mut elapsed = Duration::ZERO;
        let mut waits = Vec::new();
        for commit in 1..=commits {
            elapsed += commit_takes;
            let left = checkpoint_takes.saturating_sub(elapsed);
            let wait = pace.wait(f64::from(commit) / f64::from(commits), elapsed).min(left);
            elapsed += wait;
            waits.push(wait);
        }
        waits.push(checkpoint_takes.saturating_sub(elapsed));
        waits
    }

    fn pace_of(checkpoint_takes: Duration) -> Pace {
        let mut pace = Pace::default();
        for _ in 0..20 {
            pace.record(checkpoint_takes);
        }
        pace
    }

    #[test]
    fn a_fast_writer_waits_for_a_checkpoint_in_many_small_steps() {
        let waits = waits(pace_of(400 * MS), 200, MS, 400 * MS);
        assert!(waits[..100].iter().all(Duration::is_zero), "the first half of the file is free: {waits:?}");
        let longest = waits.iter().max().expect("waits");
        assert!(*longest <= 5 * MS, "the longest of {waits:?}");
        assert_eq!(waits.last(), Some(&Duration::ZERO), "the checkpoint ends before the file is full");
    }

    #[test]
    fn a_writer_that_is_slower_than_checkpoints_never_waits() {
        let waits = waits(pace_of(400 * MS), 200, 5 * MS, 400 * MS);
        assert!(waits.iter().all(Duration::is_zero), "{waits:?}");
    }

    #[test]
    fn a_checkpoint_that_is_slower_than_expected_delays_only_the_commit_after_a_full_file() {
        let waits = waits(pace_of(100 * MS), 200, MS, 400 * MS);
        // Expected were 125 ms, and the commits themselves take 200 ms.
        assert_eq!(*waits.last().expect("a wait"), 200 * MS);
    }

    #[test]
    fn one_short_checkpoint_hardly_changes_the_expectation() {
        let mut pace = pace_of(400 * MS);
        pace.record(MS);
        assert_eq!(pace.wait(1.0, Duration::ZERO), 375 * MS);
        pace.record(Duration::from_secs(3600));
        assert_eq!(pace.wait(1.0, Duration::ZERO), EXPECTED_MAX, "the wait is bounded");
    }
}
