//! Cursors: where the next poll begins in each physical partition ("partition" below). A
//! poll reads rows in the order of their `visibleAt`. The *head* is the beginning of that
//! order. *Known rows* are rows that give this process no new work now. For example, their
//! instance is locked by another process, needs another version, or has not started. Known
//! rows may stay at the head for a long time. If they fill less than a page, every poll reads
//! them again. If they fill pages, a cursor records how far they reach:
//!
//! - A poll that stops before the end of the partition leaves its scan unfinished. The next
//!   polls begin at the cursor, until a poll reads another full page of known rows. A poll
//!   that began at the cursor and reaches the end of the partition also reads the head, if
//!   the head was not read for 30 seconds.
//! - If no scan is unfinished, polls skip the known rows until 30 seconds after the head was
//!   read. They do not skip rows whose stamp is so recent that the rows may be new work.
//!
//! Invariants:
//!
//! - A poll with another query begins at the head, because other rows may match.
//! - A poll for a fetch that looks once (`is_eager`) reads the head even if 30 seconds have not
//!   passed. It begins at the head, or it finishes an unfinished scan first. It ends before
//!   the head only if it finds work, or has read as many pages as a poll may.

use std::collections::HashMap;
use std::time::Duration;

use perihelion_client::FeedRange;
use tokio::time::Instant;

use super::query::PollQuery;
use crate::documents::stamp::Stamp;
use crate::timing::SKEW_MAX;

/// How long known rows at the head of a partition are skipped, counted from the last poll
/// that read a full page of them at the head.
const HEAD_SKIPPED_FOR: Duration = Duration::from_secs(30);

/// How far the stamp of new work can be in the past. Writers stamp work [`SKEW_MAX`] in the
/// past, and their clock may be behind by another [`SKEW_MAX`]. Work that returns to its old
/// place in the queue, such as an abandoned activity, can have an older stamp. Polls may skip
/// such work for [`HEAD_SKIPPED_FOR`].
const NEW_WORK_AGE_MAX: Duration = SKEW_MAX.saturating_mul(2);

/// One cursor for each partition with at least a page of known rows at its head.
#[derive(Debug, Default)]
pub(super) struct Cursors {
    /// The query of the last poll. The cursors are valid for this query only.
    query: PollQuery,
    cursors: HashMap<FeedRange, Cursor>,
}

/// The known rows at the head of a partition.
#[derive(Debug, Clone, Copy)]
struct Cursor {
    /// All rows before this stamp were known when they were read.
    known_until: Stamp,
    /// When a full page of known rows was last read at the head.
    read_at: Instant,
    /// Whether a poll stopped before the end of the partition, and no page of known rows was
    /// recorded since.
    is_scan_unfinished: bool,
}

impl Cursors {
    /// Begins a poll. Forgets all cursors if the query has changed, and the cursors of
    /// partitions that were split or merged.
    pub(super) fn begin(&mut self, query: &PollQuery, ranges: &[FeedRange]) {
        if self.query != *query {
            (self.query, self.cursors) = (query.clone(), HashMap::new());
        }
        self.cursors.retain(|range, _| ranges.contains(range));
    }

    /// Where a poll begins in a partition; `Stamp(0)` is the head. `now` and `at` are the
    /// time of the poll: `now` as a stamp of documents, `at` on tokio's clock.
    pub(super) fn start_of_scan(&self, range: &FeedRange, now: Stamp, at: Instant, is_eager: bool) -> Stamp {
        let Some(cursor) = self.cursors.get(range) else { return Stamp(0) };
        match (cursor.is_scan_unfinished, Self::is_head_skipped(cursor, at) && !is_eager) {
            (true, _) => cursor.known_until,
            (false, true) => cursor.known_until.min(now.minus(NEW_WORK_AGE_MAX)),
            (false, false) => Stamp(0),
        }
    }

    /// Whether a poll that began behind the head must also read the head after it has reached
    /// the end of the partition.
    pub(super) fn must_read_head(&self, range: &FeedRange, at: Instant, is_eager: bool) -> bool {
        is_eager || !self.cursors.get(range).is_some_and(|cursor| Self::is_head_skipped(cursor, at))
    }

    /// Records that a full page of rows was known. `from` is the stamp at which the scan began,
    /// `until` is the stamp of the last row of the page, and `at` is the time of the poll.
    pub(super) fn record_known_page(&mut self, range: &FeedRange, from: Stamp, until: Stamp, at: Instant) {
        let continued =
            self.cursors.get(range).filter(|cursor| from > Stamp(0) && from <= cursor.known_until);
        let read_at = continued.map_or(at, |cursor| cursor.read_at);
        // If all rows of the page have the stamp `from`, the next scan begins behind that
        // stamp. Otherwise the next scan would read the same page again.
        let known_until = if until > from { until } else { Stamp(until.0 + 1) };
        self.cursors.insert(range.clone(), Cursor { known_until, read_at, is_scan_unfinished: false });
    }

    /// Records that the poll stopped before the end of a partition. The next poll
    /// continues there.
    pub(super) fn record_unfinished_scan(&mut self, range: &FeedRange) {
        if let Some(cursor) = self.cursors.get_mut(range) {
            cursor.is_scan_unfinished = true;
        }
    }

    /// Whether the known rows at the head are still skipped at the time `at`.
    fn is_head_skipped(cursor: &Cursor, at: Instant) -> bool {
        at.saturating_duration_since(cursor.read_at) < HEAD_SKIPPED_FOR
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
        assert_eq!(cursors.start_of_scan(&range, NOW, begun, false), Stamp(0));
        cursors.record_known_page(&range, Stamp(0), ago(60), begun);
        assert_eq!(cursors.start_of_scan(&range, NOW, after(1), false), ago(60));
        assert!(!cursors.must_read_head(&range, after(1), false));
        // A poll that begins behind the known rows does not extend the half minute.
        cursors.record_known_page(&range, ago(60), ago(30), after(20));
        assert_eq!(cursors.start_of_scan(&range, NOW, after(29), false), ago(30));
        assert_eq!(cursors.start_of_scan(&range, NOW, after(30), false), Stamp(0));
        assert!(cursors.must_read_head(&range, after(30), false));
        assert_eq!(
            cursors.start_of_scan(&range, NOW, after(1), true),
            Stamp(0),
            "a fetch that looks once reads the head"
        );
    }

    #[test]
    fn rows_that_may_be_new_are_skipped_only_by_an_unfinished_scan() {
        let (mut cursors, range, begun) = cursors();
        cursors.record_known_page(&range, Stamp(0), ago(1), begun);
        assert_eq!(cursors.start_of_scan(&range, NOW, begun, false), ago(4));
        // An unfinished scan continues behind these rows: an earlier poll has read them.
        cursors.record_unfinished_scan(&range);
        assert_eq!(cursors.start_of_scan(&range, NOW, begun, false), ago(1));
        cursors.record_known_page(&range, ago(1), ago(1), begun);
        cursors.record_unfinished_scan(&range);
        assert!(
            cursors.start_of_scan(&range, NOW, begun, false) > ago(1),
            "a page whose rows all have the same stamp is not read again"
        );
    }

    #[test]
    fn another_query_begins_at_the_head() {
        let (mut cursors, range, begun) = cursors();
        cursors.record_known_page(&range, Stamp(0), ago(60), begun);
        let other = PollQuery::of(&[crate::process::interest::Interest::Instances]);
        cursors.begin(&other, std::slice::from_ref(&range));
        assert_eq!(cursors.start_of_scan(&range, NOW, begun, false), Stamp(0));
        cursors.record_known_page(&range, Stamp(0), ago(60), begun);
        cursors.begin(&other, &[]);
        assert!(cursors.cursors.is_empty(), "a partition that is gone is forgotten");
    }
}
