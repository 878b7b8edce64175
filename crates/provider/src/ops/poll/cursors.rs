//! Cursors: where the next poll begins in each partition. Some rows stay at the head of
//! a partition, because this process knows them and cannot take them: their instance is
//! locked by another process, needs another version, or has not started. If they fit
//! into a page, every poll reads them again. If not, the next poll begins behind them,
//! and those that are too old to be new work are skipped for a while.
//!
//! Invariants: a poll with another query begins at the head, because it may see other
//! rows. So does the poll of a fetch that looks once.

use std::collections::HashMap;
use std::time::Duration;

use perihelion_client::FeedRange;
use tokio::time::Instant;

use super::query::PollQuery;
use crate::documents::stamp::Stamp;
use crate::timing::SKEW_MAX;

/// How long old and known rows at the head of a partition are skipped.
const HEAD_EVERY: Duration = Duration::from_secs(30);

/// The greatest age in the stamp of new work. Writers stamp work [`SKEW_MAX`] in the
/// past, and their clock may be behind by as much again.
const NEW_FOR: Duration = SKEW_MAX.saturating_mul(2);

/// One cursor for each partition with known rows.
#[derive(Debug, Default)]
pub(super) struct Cursors {
    query: PollQuery,
    cursors: HashMap<FeedRange, Cursor>,
}

/// The known rows at the head of a partition.
#[derive(Debug, Clone, Copy)]
struct Cursor {
    /// All rows before this stamp were known.
    until: Stamp,
    /// When these rows were read.
    since: Instant,
    /// The poll stopped before the end of the partition.
    is_open: bool,
}

impl Cursors {
    /// Begins a poll. Forgets partitions that were split or merged.
    pub(super) fn begin(&mut self, query: &PollQuery, ranges: &[FeedRange]) {
        if self.query != *query {
            (self.query, self.cursors) = (query.clone(), HashMap::new());
        }
        self.cursors.retain(|range, _| ranges.contains(range));
    }

    /// Where a poll begins in a partition. `now` is the stamp of documents, `at` the time
    /// on tokio's clock.
    pub(super) fn from(&self, range: &FeedRange, now: Stamp, at: Instant, is_eager: bool) -> Stamp {
        let Some(cursor) = self.cursors.get(range) else { return Stamp(0) };
        match (cursor.is_open, Self::is_quiet(cursor, at) && !is_eager) {
            (true, _) => cursor.until,
            (false, true) => cursor.until.min(now.minus(NEW_FOR)),
            (false, false) => Stamp(0),
        }
    }

    /// Whether a poll that began behind the head must read the head too.
    pub(super) fn is_due(&self, range: &FeedRange, at: Instant, is_eager: bool) -> bool {
        is_eager || !self.cursors.get(range).is_some_and(|cursor| Self::is_quiet(cursor, at))
    }

    /// Records that all rows of a page, from `from` up to `until`, were known.
    pub(super) fn paged(&mut self, range: &FeedRange, from: Stamp, until: Stamp, at: Instant) {
        let before = self.cursors.get(range).filter(|cursor| from > Stamp(0) && from <= cursor.until);
        let since = before.map_or(at, |cursor| cursor.since);
        // More rows than one page may have the same stamp.
        let until = if until > from { until } else { Stamp(until.0 + 1) };
        self.cursors.insert(range.clone(), Cursor { until, since, is_open: false });
    }

    /// Records that the poll stopped before the end of a partition. The next poll
    /// continues there.
    pub(super) fn left(&mut self, range: &FeedRange) {
        if let Some(cursor) = self.cursors.get_mut(range) {
            cursor.is_open = true;
        }
    }

    /// Whether the known rows at the head are still skipped.
    fn is_quiet(cursor: &Cursor, at: Instant) -> bool {
        at.saturating_duration_since(cursor.since) < HEAD_EVERY
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Stamp = Stamp((10 * 3_600_000) << 12);

    fn ago(minutes: u64) -> Stamp {
        NOW.minus(Duration::from_secs(60 * minutes))
    }

    fn cursors() -> (Cursors, FeedRange, Instant) {
        let (mut cursors, range) = (Cursors::default(), FeedRange::whole());
        cursors.begin(&PollQuery::default(), std::slice::from_ref(&range));
        (cursors, range, Instant::now())
    }

    #[test]
    fn old_known_rows_are_skipped_for_half_a_minute() {
        let (mut cursors, range, begun) = cursors();
        let after = |seconds| begun + Duration::from_secs(seconds);
        assert_eq!(cursors.from(&range, NOW, begun, false), Stamp(0));
        cursors.paged(&range, Stamp(0), ago(60), begun);
        assert_eq!(cursors.from(&range, NOW, after(1), false), ago(60));
        assert!(!cursors.is_due(&range, after(1), false));
        // A poll that continues from there does not extend the half minute.
        cursors.paged(&range, ago(60), ago(30), after(20));
        assert_eq!(cursors.from(&range, NOW, after(29), false), ago(30));
        assert_eq!(cursors.from(&range, NOW, after(30), false), Stamp(0));
        assert!(cursors.is_due(&range, after(30), false));
        assert_eq!(
            cursors.from(&range, NOW, after(1), true),
            Stamp(0),
            "a fetch that looks once reads the head"
        );
    }

    #[test]
    fn rows_that_may_be_new_are_never_skipped() {
        let (mut cursors, range, begun) = cursors();
        cursors.paged(&range, Stamp(0), ago(1), begun);
        assert_eq!(cursors.from(&range, NOW, begun, false), ago(4));
        // They are skipped only when the poll before has read them and stopped there.
        cursors.left(&range);
        assert_eq!(cursors.from(&range, NOW, begun, false), ago(1));
        cursors.paged(&range, ago(1), ago(1), begun);
        assert!(
            cursors.from(&range, NOW, begun, false) > Stamp(0),
            "rows with the same stamp do not stop it"
        );
    }

    #[test]
    fn another_query_begins_at_the_head() {
        let (mut cursors, range, begun) = cursors();
        cursors.paged(&range, Stamp(0), ago(60), begun);
        let other = PollQuery::of(&[crate::process::interest::Interest::Instances]);
        cursors.begin(&other, std::slice::from_ref(&range));
        assert_eq!(cursors.from(&range, NOW, begun, false), Stamp(0));
        cursors.paged(&range, Stamp(0), ago(60), begun);
        cursors.begin(&other, &[]);
        assert!(cursors.cursors.is_empty(), "a partition that is gone is forgotten");
    }
}
