//! When which write was there to be carried: what makes replication late by
//! exactly its delay, whatever the rate of writes.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

/// Marks kept. When there are more, the youngest are taken together: those
/// writes arrive a little later than they should.
const MARKS_MAX: usize = 1024;

/// Sightings of an outbox, oldest first.
#[derive(Debug, Default)]
pub(super) struct Marks {
    seen: VecDeque<(u64, Instant)>,
    due: u64,
}

impl Marks {
    /// Notes that everything up to `written` is there.
    pub(super) fn note(&mut self, written: u64, now: Instant) {
        let newest = self.seen.back().map_or(self.due, |(written, _)| *written);
        if written <= newest {
            return;
        }
        if self.seen.len() >= MARKS_MAX {
            self.seen.pop_back();
        }
        self.seen.push_back((written, now));
    }

    /// Up to which write everything has waited long enough.
    pub(super) fn due(&mut self, now: Instant, delay: Duration) -> u64 {
        while let Some((written, seen)) = self.seen.front()
            && *seen + delay <= now
        {
            self.due = *written;
            self.seen.pop_front();
        }
        self.due
    }

    /// When the oldest one that still waits was seen.
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
        let mut marks = Marks::default();
        marks.note(3, at(0));
        marks.note(3, at(20));
        marks.note(5, at(30));
        assert_eq!(marks.due(at(49), DELAY), 0);
        assert_eq!(marks.oldest(), Some(at(0)));
        assert_eq!(marks.due(at(50), DELAY), 3);
        assert_eq!(marks.due(at(79), DELAY), 3);
        assert_eq!(marks.due(at(79), Duration::ZERO), 5);
        assert_eq!(marks.oldest(), None);
    }

    #[test]
    fn marks_are_bounded_and_none_is_forgotten() {
        let begun = Instant::now();
        let mut marks = Marks::default();
        for written in 1..=3 * MARKS_MAX as u64 {
            marks.note(written, begun);
        }
        assert_eq!(marks.seen.len(), MARKS_MAX);
        assert_eq!(marks.due(begun, Duration::ZERO), 3 * MARKS_MAX as u64);
    }
}
