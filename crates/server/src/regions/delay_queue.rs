//! `DelayQueue`: the times at which the entries of an outbox were seen, so that
//! no entry is replicated before its delay is over. An entry is due when its delay is
//! over; in a full queue it can be due later.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

/// The most times that are stored. In a full queue a new time replaces the newest stored
/// one. The entries that had the replaced time get the new time, and are replicated too
/// late by at most one delay.
const TIMES_MAX: usize = 1024;

/// The entries of an outbox that wait for their delay.
#[derive(Debug, Default)]
pub(super) struct DelayQueue {
    /// Pairs of an outbox entry and the time at which it was seen, oldest first. An
    /// entry without a pair has the time of the next pair.
    waiting: VecDeque<(u64, Instant)>,
    /// The last entry that has waited long enough; 0 before the first one.
    last_due: u64,
}

impl DelayQueue {
    /// Records that the entries up to `last` were seen at `now`. Entries that were
    /// recorded before keep their times.
    pub(super) fn push(&mut self, last: u64, now: Instant) {
        let newest = self.waiting.back().map_or(self.last_due, |(entry, _)| *entry);
        if last <= newest {
            return;
        }
        if self.waiting.len() >= TIMES_MAX {
            self.waiting.pop_back();
        }
        self.waiting.push_back((last, now));
    }

    /// The last entry that has waited for `delay`, at `now` or in an earlier call; 0 if
    /// there is none.
    pub(super) fn last_due(&mut self, now: Instant, delay: Duration) -> u64 {
        while let Some((entry, seen_at)) = self.waiting.front()
            && *seen_at + delay <= now
        {
            self.last_due = *entry;
            self.waiting.pop_front();
        }
        self.last_due
    }

    /// When the oldest entry that still waits was seen.
    pub(super) fn oldest_seen_at(&self) -> Option<Instant> {
        self.waiting.front().map(|(_, seen_at)| *seen_at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DELAY: Duration = Duration::from_millis(50);

    #[test]
    fn a_write_is_due_after_its_own_delay() {
        let begun = Instant::now();
        let at = |millis| begun + Duration::from_millis(millis);
        let mut queue = DelayQueue::default();
        queue.push(3, at(0));
        queue.push(3, at(20));
        queue.push(5, at(30));
        assert_eq!(queue.last_due(at(49), DELAY), 0);
        assert_eq!(queue.oldest_seen_at(), Some(at(0)));
        assert_eq!(queue.last_due(at(50), DELAY), 3);
        assert_eq!(queue.last_due(at(79), DELAY), 3);
        assert_eq!(queue.last_due(at(79), Duration::ZERO), 5);
        assert_eq!(queue.oldest_seen_at(), None);
    }

    #[test]
    fn the_queue_is_bounded_and_loses_no_write() {
        let begun = Instant::now();
        let mut queue = DelayQueue::default();
        for entry in 1..=3 * TIMES_MAX as u64 {
            queue.push(entry, begun);
        }
        assert_eq!(queue.waiting.len(), TIMES_MAX);
        assert_eq!(queue.last_due(begun, Duration::ZERO), 3 * TIMES_MAX as u64);
    }
}
