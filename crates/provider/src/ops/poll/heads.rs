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

use super::question::Question;
use crate::clock::{SKEW_MAX, Stamp};

/// Between two looks at a head that is old and known.
const HEAD_EVERY: Duration = Duration::from_secs(30);

/// New work is stamped as far in the past as clocks may differ, by a clock that
/// may be as far behind.
const NEW_FOR: Duration = SKEW_MAX.saturating_mul(2);

/// Whoever has it polls.
#[derive(Debug, Default)]
pub(super) struct Heads {
    question: Question,
    heads: HashMap<FeedRange, Head>,
}

/// What is known at the beginning of a partition.
#[derive(Debug, Clone, Copy)]
struct Head {
    /// It was paged over up to there.
    until: Stamp,
    /// From then on.
    since: Instant,
    /// There was more behind.
    is_open: bool,
}

impl Heads {
    /// A poll begins. Partitions split and merge.
    pub(super) fn begin(&mut self, question: &Question, ranges: &[FeedRange]) {
        if self.question != *question {
            (self.question, self.heads) = (question.clone(), HashMap::new());
        }
        self.heads.retain(|range, _| ranges.contains(range));
    }

    /// Where a poll begins in a partition, at `now` by documents and `at` by the
    /// clock that waiting goes by.
    pub(super) fn from(&self, range: &FeedRange, now: Stamp, at: Instant, is_eager: bool) -> Stamp {
        let Some(head) = self.heads.get(range) else { return Stamp(0) };
        match (head.is_open, Self::is_quiet(head, at) && !is_eager) {
            (true, _) => head.until,
            (false, true) => head.until.min(now.before(NEW_FOR)),
            (false, false) => Stamp(0),
        }
    }

    /// Whether one that began behind the head must look at it still.
    pub(super) fn is_due(&self, range: &FeedRange, at: Instant, is_eager: bool) -> bool {
        is_eager || !self.heads.get(range).is_some_and(|head| Self::is_quiet(head, at))
    }

    /// All was known from the beginning of the poll up to there.
    pub(super) fn paged(&mut self, range: &FeedRange, from: Stamp, until: Stamp, at: Instant) {
        let before = self.heads.get(range).filter(|head| from > Stamp(0) && from <= head.until);
        let since = before.map_or(at, |head| head.since);
        // Of equal ones there may be more than a page.
        let until = if until > from { until } else { Stamp(until.0 + 1) };
        self.heads.insert(range.clone(), Head { until, since, is_open: false });
    }

    /// The poll ended before it had seen all of a partition: the next goes on.
    pub(super) fn left(&mut self, range: &FeedRange) {
        if let Some(head) = self.heads.get_mut(range) {
            head.is_open = true;
        }
    }

    fn is_quiet(head: &Head, at: Instant) -> bool {
        at.saturating_duration_since(head.since) < HEAD_EVERY
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Stamp = Stamp((10 * 3_600_000) << 12);

    fn ago(minutes: u64) -> Stamp {
        NOW.before(Duration::from_secs(60 * minutes))
    }

    fn heads() -> (Heads, FeedRange, Instant) {
        let (mut heads, range) = (Heads::default(), FeedRange::whole());
        heads.begin(&Question::default(), std::slice::from_ref(&range));
        (heads, range, Instant::now())
    }

    #[test]
    fn what_is_old_and_known_is_left_alone_for_half_a_minute() {
        let (mut heads, range, begun) = heads();
        let after = |seconds| begun + Duration::from_secs(seconds);
        assert_eq!(heads.from(&range, NOW, begun, false), Stamp(0));
        heads.paged(&range, Stamp(0), ago(60), begun);
        assert_eq!(heads.from(&range, NOW, after(1), false), ago(60));
        assert!(!heads.is_due(&range, after(1), false));
        // Paging on from there makes it no younger.
        heads.paged(&range, ago(60), ago(30), after(20));
        assert_eq!(heads.from(&range, NOW, after(29), false), ago(30));
        assert_eq!(heads.from(&range, NOW, after(30), false), Stamp(0));
        assert!(heads.is_due(&range, after(30), false));
        assert_eq!(heads.from(&range, NOW, after(1), true), Stamp(0), "who must not miss anything looks");
    }

    #[test]
    fn what_may_be_new_is_never_left_alone() {
        let (mut heads, range, begun) = heads();
        heads.paged(&range, Stamp(0), ago(1), begun);
        assert_eq!(heads.from(&range, NOW, begun, false), ago(4));
        // Unless the poll before went as far and had more before it.
        heads.left(&range);
        assert_eq!(heads.from(&range, NOW, begun, false), ago(1));
        heads.paged(&range, ago(1), ago(1), begun);
        assert!(heads.from(&range, NOW, begun, false) > Stamp(0), "equal ones do not hold it up");
    }

    #[test]
    fn another_question_begins_at_the_head() {
        let (mut heads, range, begun) = heads();
        heads.paged(&range, Stamp(0), ago(60), begun);
        let other = Question::of(&[super::super::Interest::Turns]);
        heads.begin(&other, std::slice::from_ref(&range));
        assert_eq!(heads.from(&range, NOW, begun, false), Stamp(0));
        heads.paged(&range, Stamp(0), ago(60), begun);
        heads.begin(&other, &[]);
        assert!(heads.heads.is_empty(), "a partition that is gone is forgotten");
    }
}
