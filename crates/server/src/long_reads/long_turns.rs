//! `LongTurns`: the turns of reads that have run for long and cannot end their page.
//!
//! Few such reads run at a time. The others wait on their threads, because a read in the middle of a
//! scan cannot leave its thread. So the number of waiting reads is bounded too, and further reads
//! are refused.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The most reads that wait for a long turn. Each of them holds its rows and one of the
/// runtime's 512 blocking threads.
const WAITING_MAX: usize = 16;
/// How long a read may wait for a long turn. Clients give up soon after this time.
const WAIT_MAX: Duration = Duration::from_secs(30);
/// How often a waiting read checks whether its client has left. A read that has left keeps its place
/// for at most this time, which costs the reads behind it little.
const LEFT_CHECK_PAUSE: Duration = Duration::from_millis(100);

/// The long turns.
#[derive(Debug)]
pub(super) struct LongTurns {
    counts: Mutex<Counts>,
    turn_ended: Condvar,
}

#[derive(Debug)]
struct Counts {
    free: usize,
    waiting: usize,
}

/// A long turn. Dropping it gives the turn back.
#[derive(Debug)]
pub(super) struct LongTurn<'a> {
    turns: &'a LongTurns,
}

impl LongTurns {
    pub(super) fn new(turns: usize) -> LongTurns {
        LongTurns { counts: Mutex::new(Counts { free: turns, waiting: 0 }), turn_ended: Condvar::new() }
    }

    /// Blocks until a long turn is free. `None` if too many reads wait, if the wait takes too long, or
    /// if the client has left.
    pub(super) fn wait(&self, has_left: &dyn Fn() -> bool) -> Option<LongTurn<'_>> {
        self.wait_for(WAIT_MAX, has_left)
    }

    fn wait_for(&self, time_max: Duration, has_left: &dyn Fn() -> bool) -> Option<LongTurn<'_>> {
        let until = Instant::now() + time_max;
        let mut counts = self.lock();
        if counts.free == 0 && counts.waiting >= WAITING_MAX {
            return None;
        }
        counts.waiting += 1;
        while counts.free == 0 {
            let time_left = until.saturating_duration_since(Instant::now());
            if time_left.is_zero() || has_left() {
                counts.waiting -= 1;
                return None;
            }
            let woken = self.turn_ended.wait_timeout(counts, time_left.min(LEFT_CHECK_PAUSE));
            counts = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        counts.waiting -= 1;
        counts.free -= 1;
        Some(LongTurn { turns: self })
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for LongTurn<'_> {
    fn drop(&mut self) {
        self.turns.lock().free += 1;
        self.turns.turn_ended.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    /// For a read whose client does not leave.
    const STAYS: fn() -> bool = || false;

    #[test]
    fn a_long_turn_is_waited_for_and_given_back() {
        let turns = LongTurns::new(1);
        let first = turns.wait(&STAYS).unwrap();
        assert!(turns.wait_for(Duration::from_millis(5), &STAYS).is_none());
        std::thread::scope(|scope| {
            let second = scope.spawn(|| turns.wait(&STAYS).is_some());
            while turns.lock().waiting == 0 {
                std::thread::yield_now();
            }
            drop(first);
            assert!(second.join().unwrap());
        });
        let counts = turns.lock();
        assert_eq!((counts.free, counts.waiting), (1, 0));
    }

    #[test]
    fn a_read_beyond_the_waiting_limit_is_refused_at_once() {
        let turns = LongTurns::new(1);
        let first = turns.wait(&STAYS).unwrap();
        std::thread::scope(|scope| {
            let waiting: Vec<_> =
                (0..WAITING_MAX).map(|_| scope.spawn(|| turns.wait(&STAYS).is_some())).collect();
            while turns.lock().waiting < WAITING_MAX {
                std::thread::yield_now();
            }
            assert!(turns.wait(&STAYS).is_none());
            drop(first);
            assert!(waiting.into_iter().all(|read| read.join().unwrap()));
        });
    }

    /// Story of a bug: reads whose clients had left kept their places for 30 s, and other reads were
    /// refused.
    #[test]
    fn a_read_whose_client_leaves_gives_up_its_place() {
        let turns = LongTurns::new(1);
        let _first = turns.wait(&STAYS).unwrap();
        let has_left = AtomicBool::new(false);
        let began_at = Instant::now();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| turns.wait(&|| has_left.load(Ordering::SeqCst)).is_none());
            while turns.lock().waiting == 0 {
                std::thread::yield_now();
            }
            has_left.store(true, Ordering::SeqCst);
            assert!(waiting.join().unwrap());
        });
        assert_eq!(turns.lock().waiting, 0);
        assert!(began_at.elapsed() < WAIT_MAX / 2, "{:?}", began_at.elapsed());
    }
}
