//! Who takes work that a poll has found, and when. Work that arose in this
//! process has hints and needs no poll; what is left is another's, which most
//! likely is about to take it. So it must be a little old: less for the process
//! whose slot it is in, more for all others, one after the other. Nothing is
//! left to anyone for good.

use std::time::Duration;

use crate::documents::stamp::Stamp;
use crate::process::membership::Rank;

/// Whoever made it has taken it by then, unless they are busy or dead.
const OWNER_WAITS: Duration = Duration::from_millis(250);

/// The owner has taken it by then, unless it is busy or dead.
const OTHERS_WAIT: Duration = Duration::from_secs(1);

/// The same for a lock that has run out: its holder is dead or slow, and who
/// owns the slot may be the holder.
const OTHERS_WAIT_FOR_LOCKS: Duration = Duration::from_millis(250);

/// Between one who does not own it and the next, so that they do not race; at
/// most the last.
const EACH_WAITS: Duration = Duration::from_millis(50);
const EACH_WAITS_LAST: Duration = Duration::from_millis(200);

/// What there is to know of work in storage.
#[derive(Debug, Clone, Copy)]
pub(super) struct Age {
    pub(super) enq: Stamp,
    pub(super) visible_at: Stamp,
    /// Somebody had it, and the lock has run out.
    pub(super) was_locked: bool,
}

/// How long a process of that rank leaves it to others from now on; zero when
/// it may take it.
pub(super) fn wait(rank: Rank, age: Age, now: Stamp) -> Duration {
    let age_wanted = match (rank, age.was_locked) {
        (Rank::Alone, _) | (Rank::Owner, true) => return Duration::ZERO,
        (Rank::Owner, false) => OWNER_WAITS,
        (Rank::Behind(others), was_locked) => {
            let place = u32::try_from(others.saturating_sub(1)).unwrap_or(u32::MAX);
            let first = if was_locked { OTHERS_WAIT_FOR_LOCKS } else { OTHERS_WAIT };
            first + EACH_WAITS.saturating_mul(place).min(EACH_WAITS_LAST)
        }
    };
    // What is seen at once is stamped in the past; timers and locks that run out
    // are stamped when they do.
    let born = age.enq.max(age.visible_at);
    match now.ms().checked_sub(born.ms()) {
        Some(age) => age_wanted.saturating_sub(Duration::from_millis(age)),
        // Its maker's clock is ahead of ours: its age cannot be told.
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
    fn the_owner_comes_first_and_the_others_one_after_the_other() {
        let made = Age { enq: at(0), visible_at: at(0).at_once(), was_locked: false };
        let wait = |rank, now| wait(rank, made, at(now)).as_millis();
        assert_eq!(wait(Rank::Alone, 0), 0);
        assert_eq!((wait(Rank::Owner, 0), wait(Rank::Owner, 100), wait(Rank::Owner, 250)), (250, 150, 0));
        assert_eq!((wait(Rank::Behind(1), 0), wait(Rank::Behind(1), 1000)), (1000, 0));
        assert_eq!((wait(Rank::Behind(3), 1000), wait(Rank::Behind(99), 1000)), (100, 200));
        assert_eq!(wait(Rank::Behind(99), 1200), 0, "nothing is left to others for good");
    }

    #[test]
    fn a_timer_is_as_old_as_it_is_visible_and_a_clock_ahead_hides_nothing() {
        let timer = Age { enq: at(0), visible_at: at(5000), was_locked: false };
        assert_eq!(wait(Rank::Owner, timer, at(5100)), Duration::from_millis(150));
        let ahead = Age { enq: at(700), visible_at: at(0), was_locked: false };
        assert_eq!(wait(Rank::Behind(1), ahead, at(100)), Duration::ZERO);
    }

    #[test]
    fn a_lock_that_has_run_out_is_left_to_nobody_for_long() {
        let orphan = Age { enq: at(0), visible_at: at(2000), was_locked: true };
        assert_eq!(wait(Rank::Owner, orphan, at(2000)), Duration::ZERO);
        assert_eq!(wait(Rank::Behind(1), orphan, at(2100)), Duration::from_millis(150));
    }
}
