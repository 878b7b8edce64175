//! `DelayQueue`: remembers when each write of an outbox was seen, so that
//! replication is late by exactly its delay at any rate of writes.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

/// The most entries. A full queue merges the newest ones: those writes arrive a
/// little later than they should.
const ENTRIES_MAX: usize = 1024;

/// When the parcels of an outbox were seen, oldest first.
#[derive(Debug, Default)]
pub(super) struct DelayQueue {
    seen: VecDeque<(u64, Instant)>,
    due: u64,
}

impl DelayQueue {
    /// Records that all parcels up to `written` exist at `now`.
    pub(super) fn push(&mut self, written: u64, now: Instant) {
        let newest = self.seen.back().map_or(self.due, |(written, _)| *written);
        if written <= newest {
            return;
        }
        if self.seen.len() >= ENTRIES_MAX {
            self.seen.pop_back();
        }
        self.seen.push_back((written, now));
    }

    /// The last parcel that has waited for `delay`.
    pub(super) fn due(&mut self, now: Instant, delay: Duration) -> u64 {
        while let Some((written, seen)) = self.seen.front()
            && *seen + delay <= now
        {
            self.due = *written;
            self.seen.pop_front();
        }
        self.due
    }

    /// When the oldest parcel that still waits was seen.
    pub(super) fn oldest(&self) -> Option<Instant> {
        self.seen.front().map(|(_, seen)| *seen)
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
        assert_eq!(queue.due(at(49), DELAY), 0);
        assert_eq!(queue.oldest(), Some(at(0)));
        assert_eq!(queue.due(at(50), DELAY), 3);
        assert_eq!(queue.due(at(79), DELAY), 3);
        assert_eq!(queue.due(at(79), Duration::ZERO), 5);
        assert_eq!(queue.oldest(), None);
    }

    #[test]
    fn the_queue_is_bounded_and_loses_no_write() {
        let begun = Instant::now();
        let mut queue = DelayQueue::default();
        for written in 1..=3 * ENTRIES_MAX as u64 {
            queue.push(written, begun);
        }
        assert_eq!(queue.seen.len(), ENTRIES_MAX);
        assert_eq!(queue.due(begun, Duration::ZERO), 3 * ENTRIES_MAX as u64);
    }
}
