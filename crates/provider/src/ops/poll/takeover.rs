//! Takeover: when this process may take work that a poll found. This process has hints
//! about its own work. So work without a hint usually belongs to another process, which is
//! probably about to take it, and must have a minimum age: a short one for the process that
//! owns the slot, a longer one for each of the others, in order.
//!
//! There is no minimum age if no other live process takes this kind of work. The owner of
//! the slot takes an activity with an expired lock at once.

use std::time::Duration;

use crate::documents::stamp::Stamp;
use crate::process::membership::Rank;
use crate::timing::{
    EXPIRED_LOCK_TAKEOVER_AFTER, OTHERS_TAKEOVER_AFTER, OWNER_TAKEOVER_AFTER, TAKEOVER_STEP,
    TAKEOVER_STEP_MAX,
};

/// The stamps from which the age of work follows.
#[derive(Debug, Clone, Copy)]
pub(super) struct Age {
    pub(super) enqueued_at: Stamp,
    pub(super) visible_at: Stamp,
    /// The work is an activity that had a lock. `visible_at` is the end of the lock.
    pub(super) was_locked: bool,
}

/// How long a process of this rank must still wait; zero when it may take the work.
pub(super) fn takeover_wait(rank: Rank, age: Age, now: Stamp) -> Duration {
    let age_wanted = match (rank, age.was_locked) {
        (Rank::Alone, _) | (Rank::Owner, true) => return Duration::ZERO,
        (Rank::Owner, false) => OWNER_TAKEOVER_AFTER,
        (Rank::Behind(others), was_locked) => {
            let place = u32::try_from(others.saturating_sub(1)).unwrap_or(u32::MAX);
            let first = if was_locked { EXPIRED_LOCK_TAKEOVER_AFTER } else { OTHERS_TAKEOVER_AFTER };
            first + TAKEOVER_STEP.saturating_mul(place).min(TAKEOVER_STEP_MAX)
        }
    };
    // The later stamp counts. Work that is visible at once has a `visible_at` in the past,
    // so its age counts from `enqueued_at`. A timer ages from its due time, and an expired
    // lock from its end: both are in `visible_at`.
    let aged_from = age.enqueued_at.max(age.visible_at);
    match now.ms().checked_sub(aged_from.ms()) {
        Some(age) => age_wanted.saturating_sub(Duration::from_millis(age)),
        // The stamp is in the future, because the writer's clock is ahead: the age is
        // unknown.
        None => Duration::ZERO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Stamp {
        Stamp::at_ms(1_000_000 + ms)
    }

    #[test]
    fn the_slot_owner_comes_first_and_the_others_in_order() {
        let message = Age { enqueued_at: at(0), visible_at: at(0).visible_at_once(), was_locked: false };
        let wait = |rank, now| takeover_wait(rank, message, at(now)).as_millis();
        assert_eq!(wait(Rank::Alone, 0), 0);
        assert_eq!((wait(Rank::Owner, 0), wait(Rank::Owner, 100), wait(Rank::Owner, 250)), (250, 150, 0));
        assert_eq!((wait(Rank::Behind(1), 0), wait(Rank::Behind(1), 1000)), (1000, 0));
        assert_eq!((wait(Rank::Behind(3), 1000), wait(Rank::Behind(99), 1000)), (100, 200));
        assert_eq!(wait(Rank::Behind(99), 1200), 0, "after some time every process may take work");
    }

    #[test]
    fn a_timer_ages_from_its_due_time_and_work_with_a_future_stamp_is_taken_at_once() {
        let timer = Age { enqueued_at: at(0), visible_at: at(5000), was_locked: false };
        assert_eq!(takeover_wait(Rank::Owner, timer, at(5100)), Duration::from_millis(150));
        let ahead = Age { enqueued_at: at(700), visible_at: at(0), was_locked: false };
        assert_eq!(takeover_wait(Rank::Behind(1), ahead, at(100)), Duration::ZERO);
    }

    #[test]
    fn an_expired_lock_is_taken_over_soon() {
        let orphan = Age { enqueued_at: at(0), visible_at: at(2000), was_locked: true };
        assert_eq!(takeover_wait(Rank::Owner, orphan, at(2000)), Duration::ZERO);
        assert_eq!(takeover_wait(Rank::Behind(1), orphan, at(2100)), Duration::from_millis(150));
    }
}
