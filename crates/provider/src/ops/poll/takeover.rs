//! Takeover: when this process may take work that a poll found. This process has hints about
//! its own work. So work without a hint usually belongs to another process, and that process
//! is probably about to take the work. Therefore this process takes the work only from a
//! minimum age. The minimum age is short for the process that owns the slice of the work. In a
//! shared slice it is equally short for one other process, the helper. For the remaining processes
//! the minimum age is longer, and it grows with their rank. It is longest for a process that has given
//! the work back.
//!
//! Under throttling the minimum age is longer (`process::congestion`): the other process may be
//! about to commit.
//!
//! There is no minimum age if no other live process takes this kind of work. The owner of
//! the slice takes an activity with an expired lock at once.

use std::time::Duration;

use crate::documents::stamp::Stamp;
use crate::process::membership::Rank;
use crate::timing::{
    EXPIRED_LOCK_TAKEOVER_AFTER, LAST_TAKEOVER_AFTER, OTHERS_TAKEOVER_AFTER, OWNER_TAKEOVER_AFTER,
    TAKEOVER_STEP, TAKEOVER_STEP_MAX,
};

/// The stamps of a piece of work, from which its age follows.
#[derive(Debug, Clone, Copy)]
pub(super) struct WorkStamps {
    pub(super) enqueued_at: Stamp,
    pub(super) visible_at: Stamp,
    /// Whether the work is an activity with an expired lock. If so, `visible_at` is the end of
    /// the lock.
    pub(super) was_locked: bool,
    /// Whether the work is a message whose creator leaves the turn to the owner of the slice
    /// (`Message::is_left_to_owner`). Then no process takes the message without a poll.
    pub(super) is_left_to_owner: bool,
}

/// When a poll ran. A poll that is throttled may take seconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct PollSpan {
    pub(super) began: Stamp,
    /// When its rows arrived.
    pub(super) arrived: Stamp,
}

/// How long a process of this rank must still wait; zero if it may take the work now. `extra_wait`
/// is what throttling adds to the minimum age.
pub(super) fn takeover_wait(
    rank: Rank,
    stamps: WorkStamps,
    poll: PollSpan,
    extra_wait: Duration,
) -> Duration {
    let age_min = match (rank, stamps.was_locked) {
        (Rank::Alone, _) | (Rank::Owner, true) => return Duration::ZERO,
        (Rank::Owner, false) if stamps.is_left_to_owner => return Duration::ZERO,
        (Rank::Owner, false) | (Rank::Helper, _) => OWNER_TAKEOVER_AFTER,
        (Rank::Behind(others), was_locked) => {
            let steps = u32::try_from(others.saturating_sub(1)).unwrap_or(u32::MAX);
            let first = if was_locked { EXPIRED_LOCK_TAKEOVER_AFTER } else { OTHERS_TAKEOVER_AFTER };
            first + TAKEOVER_STEP.saturating_mul(steps).min(TAKEOVER_STEP_MAX)
        }
        (Rank::Last, _) => LAST_TAKEOVER_AFTER,
    };
    // The age counts from the later stamp. For work that is visible at once this is
    // `enqueued_at`, because its `visible_at` is in the past. For a timer and for an expired
    // lock it is `visible_at`: the due time, or the end of the lock.
    let aged_from = stamps.enqueued_at.max(stamps.visible_at);
    match poll.began.ms().checked_sub(aged_from.ms()) {
        Some(age_ms) => (age_min + extra_wait).saturating_sub(Duration::from_millis(age_ms)),
        // The work came while the poll was under way, so it is new.
        None if aged_from <= poll.arrived => age_min + extra_wait,
        // The stamp is in the future, because the clock of the writer is ahead. So the age is
        // unknown, and this process does not wait.
        None => Duration::ZERO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Stamp {
        Stamp::at_ms(1_000_000 + ms)
    }

    /// A poll that took no time.
    fn poll_at(ms: u64) -> PollSpan {
        PollSpan { began: at(ms), arrived: at(ms) }
    }

    #[test]
    fn the_owner_of_the_slice_comes_first_and_the_others_in_order() {
        let message = WorkStamps {
            enqueued_at: at(0),
            visible_at: at(0).visible_at_once(),
            was_locked: false,
            is_left_to_owner: false,
        };
        let wait = |rank, now| takeover_wait(rank, message, poll_at(now), Duration::ZERO).as_millis();
        assert_eq!(wait(Rank::Alone, 0), 0);
        assert_eq!((wait(Rank::Owner, 0), wait(Rank::Owner, 100), wait(Rank::Owner, 250)), (250, 150, 0));
        assert_eq!((wait(Rank::Behind(1), 0), wait(Rank::Behind(1), 1000)), (1000, 0));
        assert_eq!((wait(Rank::Behind(3), 1000), wait(Rank::Behind(99), 1000)), (100, 200));
        assert_eq!(wait(Rank::Behind(99), 1200), 0, "after some time every process may take work");
    }

    #[test]
    fn a_timer_ages_from_its_due_time_and_work_with_a_future_stamp_is_taken_at_once() {
        let timer = WorkStamps {
            enqueued_at: at(0),
            visible_at: at(5000),
            was_locked: false,
            is_left_to_owner: false,
        };
        assert_eq!(
            takeover_wait(Rank::Owner, timer, poll_at(5100), Duration::ZERO),
            Duration::from_millis(150)
        );
        let future_work = WorkStamps {
            enqueued_at: at(700),
            visible_at: at(0),
            was_locked: false,
            is_left_to_owner: false,
        };
        assert_eq!(takeover_wait(Rank::Behind(1), future_work, poll_at(100), Duration::ZERO), Duration::ZERO);
    }

    /// Under throttling, a poll may take longer than the minimum age of the work that it finds. The creator
    /// of such work is about to take it.
    #[test]
    fn work_that_came_while_a_slow_poll_was_under_way_is_not_taken_at_once() {
        let message = WorkStamps {
            enqueued_at: at(700),
            visible_at: at(700).visible_at_once(),
            was_locked: false,
            is_left_to_owner: false,
        };
        let slow = PollSpan { began: at(0), arrived: at(1000) };
        let wait = |rank| takeover_wait(rank, message, slow, Duration::from_millis(500)).as_millis();
        assert_eq!((wait(Rank::Owner), wait(Rank::Behind(1)), wait(Rank::Alone)), (750, 1500, 0));
    }

    #[test]
    fn an_activity_with_an_expired_lock_is_taken_over_at_once_or_soon() {
        let expired = WorkStamps {
            enqueued_at: at(0),
            visible_at: at(2000),
            was_locked: true,
            is_left_to_owner: false,
        };
        assert_eq!(takeover_wait(Rank::Owner, expired, poll_at(2000), Duration::ZERO), Duration::ZERO);
        assert_eq!(
            takeover_wait(Rank::Behind(1), expired, poll_at(2100), Duration::ZERO),
            Duration::from_millis(150)
        );
    }

    #[test]
    fn under_throttling_takeovers_wait_longer_unless_a_process_is_alone() {
        let message = WorkStamps {
            enqueued_at: at(0),
            visible_at: at(0).visible_at_once(),
            was_locked: false,
            is_left_to_owner: false,
        };
        let extra_wait = Duration::from_secs(2);
        let wait = |rank, now| takeover_wait(rank, message, poll_at(now), extra_wait).as_millis();
        assert_eq!((wait(Rank::Owner, 0), wait(Rank::Owner, 2250)), (2250, 0));
        assert_eq!(wait(Rank::Behind(1), 1000), 2000);
        assert_eq!(wait(Rank::Alone, 0), 0);
        let expired = WorkStamps {
            enqueued_at: at(0),
            visible_at: at(2000),
            was_locked: true,
            is_left_to_owner: false,
        };
        assert_eq!(takeover_wait(Rank::Owner, expired, poll_at(2000), extra_wait), Duration::ZERO);
    }
}
