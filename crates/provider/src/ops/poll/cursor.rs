//! The cursor of a physical partition ("partition" below): where its next poll begins. A
//! poll reads rows in the order of their `visibleAt`. Some rows stay at the head of that
//! order, because this process knows them and does not take them now: for example, their
//! instance is locked by another process, needs another version, or has not started. If these
//! rows fill less than a page, every poll reads them again. If they fill pages, the cursor
//! records how far they reach:
//!
//! - A poll that stops before the end of the partition leaves its scan unfinished. The next
//!   poll begins at the cursor. At the end of the partition it also reads the head, if the
//!   head was not read for 30 seconds.
//! - If no scan is unfinished, polls skip the known rows until 30 seconds after the head was
//!   read, except rows whose stamp is so recent that they may be new work.
//!
//! Invariants: a poll with another query begins at the head, because it may see other
//! rows. A poll for a fetch that looks once (`is_eager`) does not skip the head for 30
//! seconds: it begins there, or it first finishes an unfinished scan and then reads the
//! head. It ends earlier only if it finds work, or has read as many pages as a poll may.

use std::time::Duration;

use tokio::time::Instant;

use super::query::PollQuery;
use crate::documents::stamp::Stamp;
use crate::timing::SKEW_MAX;

/// How long known rows at the head of a partition are skipped, counted from the last poll
/// that read a full page of them at the head.
const HEAD_SKIPPED_FOR: Duration = Duration::from_secs(30);

/// How far the stamp of new work can be in the past. Writers stamp work [`SKEW_MAX`] in the
/// past, and their clock may be behind by as much again. Work that returns to its old place
/// in the queue, such as an abandoned activity, can have an older stamp. Polls may skip it
/// for [`HEAD_SKIPPED_FOR`].
const NEW_WORK_AGE_MAX: Duration = SKEW_MAX.saturating_mul(2);

/// Where the next poll of one partition begins.
#[derive(Debug, Default)]
pub(super) struct HeadCursor {
    /// The query of the last poll. `known` is valid for it only.
    query: PollQuery,
    /// `None` if the known rows at the head fill less than a page.
    known: Option<KnownRows>,
}

/// The known rows at the head of a partition.
#[derive(Debug, Clone, Copy)]
struct KnownRows {
    /// All rows before this stamp were known when they were read.
    until: Stamp,
    /// When a full page of known rows was last read at the head.
    read_at: Instant,
    /// A poll stopped before the end of the partition, and no later one has reached it.
    is_scan_unfinished: bool,
}

impl KnownRows {
    /// Whether polls still skip these rows at the time `at`.
    fn is_skipped(&self, at: Instant) -> bool {
        at.saturating_duration_since(self.read_at) < HEAD_SKIPPED_FOR
    }
}

impl HeadCursor {
    /// Begins a poll and returns where it starts; `Stamp(0)` is the head. `now` and `at` are
    /// the time of the poll: `now` as a stamp of documents, `at` on tokio's clock.
    pub(super) fn begin(&mut self, query: &PollQuery, now: Stamp, at: Instant, is_eager: bool) -> Stamp {
        if self.query != *query {
            *self = HeadCursor { query: query.clone(), known: None };
        }
        let Some(known) = self.known else { return Stamp(0) };
        match (known.is_scan_unfinished, known.is_skipped(at) && !is_eager) {
            (true, _) => known.until,
            (false, true) => known.until.min(now.minus(NEW_WORK_AGE_MAX)),
            (false, false) => Stamp(0),
        }
    }

    /// Whether a poll that began behind the head must read the head too, when it has
    /// reached the end of the partition.
    pub(super) fn must_read_head(&self, at: Instant, is_eager: bool) -> bool {
        is_eager || !self.known.is_some_and(|known| known.is_skipped(at))
    }

    /// Records that all rows from `from`, where the scan began, up to `until`, the last row
    /// of a page, were known. `at` is the time of the poll.
    pub(super) fn record_known_page(&mut self, from: Stamp, until: Stamp, at: Instant) {
        let before = self.known.filter(|known| from > Stamp(0) && from <= known.until);
        let read_at = before.map_or(at, |known| known.read_at);
        // If all rows of a page have the stamp that the scan began with, the next scan begins
        // behind that stamp. Otherwise it would read the same page again.
        let until = if until > from { until } else { Stamp(until.0 + 1) };
        self.known = Some(KnownRows { until, read_at, is_scan_unfinished: false });
    }

    /// Records that the poll stopped before the end of the partition. The next poll
    /// continues there.
    pub(super) fn record_unfinished_scan(&mut self) {
        if let Some(known) = &mut self.known {
            known.is_scan_unfinished = true;
        }
    }

    /// Records that the poll reached the end of the partition.
    pub(super) fn record_end(&mut self) {
        if let Some(known) = &mut self.known {
            known.is_scan_unfinished = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Stamp = Stamp((10 * 3_600_000) << 12);

    fn ago(minutes: u64) -> Stamp {
        NOW.minus(Duration::from_secs(60 * minutes))
    }

    /// Where a poll with the default query begins.
    fn start(cursor: &mut HeadCursor, at: Instant, is_eager: bool) -> Stamp {
        cursor.begin(&PollQuery::default(), NOW, at, is_eager)
    }

    #[test]
    fn old_known_rows_are_skipped_for_half_a_minute() {
        let (mut cursor, begun) = (HeadCursor::default(), Instant::now());
        let after = |seconds| begun + Duration::from_secs(seconds);
        assert_eq!(start(&mut cursor, begun, false), Stamp(0));
        cursor.record_known_page(Stamp(0), ago(60), begun);
        assert_eq!(start(&mut cursor, after(1), false), ago(60));
        assert!(!cursor.must_read_head(after(1), false));
        // A poll that continues from there does not extend the half minute.
        cursor.record_known_page(ago(60), ago(30), after(20));
        assert_eq!(start(&mut cursor, after(29), false), ago(30));
        assert_eq!(start(&mut cursor, after(30), false), Stamp(0));
        assert!(cursor.must_read_head(after(30), false));
        assert_eq!(start(&mut cursor, after(1), true), Stamp(0), "a fetch that looks once reads the head");
    }

    #[test]
    fn rows_that_may_be_new_are_skipped_only_by_an_unfinished_scan() {
        let (mut cursor, begun) = (HeadCursor::default(), Instant::now());
        start(&mut cursor, begun, false);
        cursor.record_known_page(Stamp(0), ago(1), begun);
        assert_eq!(start(&mut cursor, begun, false), ago(4));
        // An unfinished scan continues behind them: an earlier poll has read them.
        cursor.record_unfinished_scan();
        assert_eq!(start(&mut cursor, begun, false), ago(1));
        cursor.record_known_page(ago(1), ago(1), begun);
        cursor.record_unfinished_scan();
        assert!(
            start(&mut cursor, begun, false) > ago(1),
            "a page whose rows all have the same stamp is not read again"
        );
        cursor.record_end();
        assert_eq!(start(&mut cursor, begun, false), ago(4), "a scan that reached the end is finished");
    }

    #[test]
    fn another_query_begins_at_the_head() {
        let (mut cursor, begun) = (HeadCursor::default(), Instant::now());
        start(&mut cursor, begun, false);
        cursor.record_known_page(Stamp(0), ago(60), begun);
        let other = PollQuery::of(&[crate::process::interest::Interest::Instances]);
        assert_eq!(cursor.begin(&other, NOW, begun, false), Stamp(0));
        assert_eq!(start(&mut cursor, begun, false), Stamp(0), "what it knew is forgotten");
    }
}
