//! How far polls are in each partition. What is known here stays at the head of
//! a partition as long as nobody takes it: locked elsewhere, of another version,
//! without a start. While that is little, every poll pages over it. When it is
//! much, a poll begins behind what the one before has paged over, and what is
//! old of it is left alone for a while: new work is never that old.
//!
//! What always holds: what was asked for differently was not seen, so a new
//! question begins at the head; and so does a fetch that must not miss anything.

use std::collections::HashMap;
use std::time::Duration;

use perihelion_client::FeedRange;
use tokio::time::Instant;

use super::query::PollQuery;
use crate::documents::stamp::{SKEW_MAX, Stamp};

/// Between two looks at a head that is old and known.
const HEAD_EVERY: Duration = Duration::from_secs(30);

/// New work is stamped as far in the past as clocks may differ, by a clock that
/// may be as far behind.
const NEW_FOR: Duration = SKEW_MAX.saturating_mul(2);

/// Whoever has it polls.
#[derive(Debug, Default)]
pub(super) struct Cursors {
    question: PollQuery,
    cursors: HashMap<FeedRange, Cursor>,
}

/// What is known at the beginning of a partition.
#[derive(Debug, Clone, Copy)]
struct Cursor {
    /// It was paged over up to there.
    until: Stamp,
    /// From then on.
    since: Instant,
    /// There was more behind.
    is_open: bool,
}

impl Cursors {
    /// A poll begins. Partitions split and merge.
    pub(super) fn begin(&mut self, question: &PollQuery, ranges: &[FeedRange]) {
        if self.question != *question {
            (self.question, self.cursors) = (question.clone(), HashMap::new());
        }
        self.cursors.retain(|range, _| ranges.contains(range));
    }

    /// Where a poll begins in a partition, at `now` by documents and `at` by the
    /// clock that waiting goes by.
    pub(super) fn from(&self, range: &FeedRange, now: Stamp, at: Instant, is_eager: bool) -> Stamp {
        let Some(cursor) = self.cursors.get(range) else { return Stamp(0) };
        match (cursor.is_open, Self::is_quiet(cursor, at) && !is_eager) {
            (true, _) => cursor.until,
            (false, true) => cursor.until.min(now.before(NEW_FOR)),
            (false, false) => Stamp(0),
        }
    }

    /// Whether one that began behind the head must look at it still.
    pub(super) fn is_due(&self, range: &FeedRange, at: Instant, is_eager: bool) -> bool {
        is_eager || !self.cursors.get(range).is_some_and(|cursor| Self::is_quiet(cursor, at))
    }

    /// All was known from the beginning of the poll up to there.
    pub(super) fn paged(&mut self, range: &FeedRange, from: Stamp, until: Stamp, at: Instant) {
        let before = self.cursors.get(range).filter(|cursor| from > Stamp(0) && from <= cursor.until);
        let since = before.map_or(at, |cursor| cursor.since);
        // Of equal ones there may be more than a page.
        let until = if until > from { until } else { Stamp(until.0 + 1) };
        self.cursors.insert(range.clone(), Cursor { until, since, is_open: false });
    }

    /// The poll ended before it had seen all of a partition: the next goes on.
    pub(super) fn left(&mut self, range: &FeedRange) {
        if let Some(cursor) = self.cursors.get_mut(range) {
            cursor.is_open = true;
        }
    }

    fn is_quiet(cursor: &Cursor, at: Instant) -> bool {
        at.saturating_duration_since(cursor.since) < HEAD_EVERY
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Stamp = Stamp((10 * 3_600_000) << 12);

    fn ago(minutes: u64) -> Stamp {
        NOW.before(Duration::from_secs(60 * minutes))
    }

    fn cursors() -> (Cursors, FeedRange, Instant) {
        let (mut cursors, range) = (Cursors::default(), FeedRange::whole());
        cursors.begin(&PollQuery::default(), std::slice::from_ref(&range));
        (cursors, range, Instant::now())
    }

    #[test]
    fn what_is_old_and_known_is_left_alone_for_half_a_minute() {
        let (mut cursors, range, begun) = cursors();
        let after = |seconds| begun + Duration::from_secs(seconds);
        assert_eq!(cursors.from(&range, NOW, begun, false), Stamp(0));
        cursors.paged(&range, Stamp(0), ago(60), begun);
        assert_eq!(cursors.from(&range, NOW, after(1), false), ago(60));
        assert!(!cursors.is_due(&range, after(1), false));
        // Paging on from there makes it no younger.
        cursors.paged(&range, ago(60), ago(30), after(20));
        assert_eq!(cursors.from(&range, NOW, after(29), false), ago(30));
        assert_eq!(cursors.from(&range, NOW, after(30), false), Stamp(0));
        assert!(cursors.is_due(&range, after(30), false));
        assert_eq!(cursors.from(&range, NOW, after(1), true), Stamp(0), "who must not miss anything looks");
    }

    #[test]
    fn what_may_be_new_is_never_left_alone() {
        let (mut cursors, range, begun) = cursors();
        cursors.paged(&range, Stamp(0), ago(1), begun);
        assert_eq!(cursors.from(&range, NOW, begun, false), ago(4));
        // Unless the poll before went as far and had more before it.
        cursors.left(&range);
        assert_eq!(cursors.from(&range, NOW, begun, false), ago(1));
        cursors.paged(&range, ago(1), ago(1), begun);
        assert!(cursors.from(&range, NOW, begun, false) > Stamp(0), "equal ones do not hold it up");
    }

    #[test]
    fn another_question_begins_at_the_head() {
        let (mut cursors, range, begun) = cursors();
        cursors.paged(&range, Stamp(0), ago(60), begun);
        let other = PollQuery::of(&[crate::process::interest::Interest::Turns]);
        cursors.begin(&other, std::slice::from_ref(&range));
        assert_eq!(cursors.from(&range, NOW, begun, false), Stamp(0));
        cursors.paged(&range, Stamp(0), ago(60), begun);
        cursors.begin(&other, &[]);
        assert!(cursors.cursors.is_empty(), "a partition that is gone is forgotten");
    }
}
