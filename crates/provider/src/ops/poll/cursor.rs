//! The cursor of a physical partition ("partition" below): where its next poll begins. A
//! poll reads rows in the order of their `visibleAt`. Some rows stay at the head of that
//! order, because this process knows them and does not take them now: for example, their
//! instance is locked by another process, needs another version, or has not started. If these
//! rows fill less than a page, every poll reads them again. If they fill pages, the cursor
//! records how far they reach, and a poll has two parts:
//!
//! - The tail: the rows behind the known ones, and all rows whose stamp is so recent that they
//!   may be new work. Every poll begins with it, so that new work never waits for the known rows
//!   to be read.
//! - The head: from the first row on. It is read 30 seconds after it was last read, because
//!   known rows may have become work. A poll whose tail has no work goes on with the head. If that
//!   takes more pages than a poll may read, the next poll continues after its own tail.
//!
//! A part that stops before the end of the partition continues where it stopped. If the head is
//! due, and the tail has left no time for it, the next poll begins with the head. So neither part
//! waits for more than one poll of the other.
//!
//! Invariants: a poll with another query begins at the head, because it may see other
//! rows. A poll for a fetch that looks once (`is_eager`) does not skip the head for 30
//! seconds. It ends before the head only if it finds work, or has read as many pages as a poll may.

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
pub(super) struct PollCursor {
    /// The query of the last poll. The other members are valid for it only.
    query: PollQuery,
    /// `None` if the known rows at the head fill less than a page.
    known: Option<KnownRows>,
    /// Where the tail continues; `None` if its last scan reached the end.
    tail_next: Option<Stamp>,
    /// The head is due, and the last poll had no time for it: the next poll begins with it.
    is_head_first: bool,
}

/// The known rows at the head of a partition.
#[derive(Debug, Clone, Copy)]
struct KnownRows {
    /// All rows before this stamp were known when they were read.
    until: Stamp,
    /// When a full page of known rows was last read at the head.
    read_at: Instant,
    /// A scan of the head stopped before the end of the partition, and no later one has reached
    /// the end.
    is_scan_unfinished: bool,
}

impl KnownRows {
    /// Whether polls still skip these rows at the time `at`.
    fn is_skipped(&self, at: Instant) -> bool {
        at.saturating_duration_since(self.read_at) < HEAD_SKIPPED_FOR
    }
}

/// The part of the partition that a scan reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Head,
    Tail,
}

/// One pass over the rows from `from` on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Scan {
    part: Part,
    /// Where the scan begins; `Stamp(0)` is the first row.
    pub(super) from: Stamp,
    /// All rows before this stamp were read; `from` before the first page.
    read_until: Stamp,
}

impl Scan {
    fn new(part: Part, from: Stamp) -> Self {
        Scan { part, from, read_until: from }
    }
}

/// When a poll happens, and for whom.
#[derive(Debug, Clone, Copy)]
pub(super) struct PollTime {
    /// The time as a stamp of documents.
    pub(super) now: Stamp,
    /// The time on tokio's clock.
    pub(super) at: Instant,
    /// Whether a fetch looks once.
    pub(super) is_eager: bool,
}

impl PollCursor {
    /// Begins a poll and returns its first scan.
    pub(super) fn begin(&mut self, query: &PollQuery, time: PollTime) -> Scan {
        if self.query != *query {
            *self = PollCursor { query: query.clone(), ..PollCursor::default() };
        }
        let Some(known) = self.known else { return Scan::new(Part::Head, Stamp(0)) };
        let new_from = time.now.minus(NEW_WORK_AGE_MAX);
        // A scan of the head that has come to the tail reads the tail.
        let is_head_in_tail = known.is_scan_unfinished && known.until >= new_from;
        if is_head_in_tail || (self.is_head_first && self.is_head_due(time)) {
            return self.head_scan();
        }
        let from = match self.tail_next {
            Some(next) => next,
            None if known.is_scan_unfinished => new_from,
            None => known.until.min(new_from),
        };
        Scan::new(Part::Tail, from)
    }

    /// Records that all rows of a page were known, and that more pages follow. `until` is the
    /// stamp of its last row.
    pub(super) fn record_known_page(&mut self, scan: &mut Scan, until: Stamp, time: PollTime) {
        let from = scan.from;
        // If all rows of a page have the stamp that the scan began with, the next scan begins
        // behind that stamp. Otherwise it would read the same page again.
        let until = if until > from { until } else { Stamp(until.0 + 1) };
        scan.read_until = until;
        match (scan.part, &mut self.known) {
            (Part::Head, known) => {
                let before = known.filter(|known| from > Stamp(0) && from <= known.until);
                let read_at = before.map_or(time.at, |known| known.read_at);
                *known = Some(KnownRows { until, read_at, is_scan_unfinished: false });
            }
            (Part::Tail, Some(known)) if from <= known.until => known.until = known.until.max(until),
            // Before these rows there are rows that the scan of the head has not read yet.
            (Part::Tail, _) => {}
        }
    }

    /// Records that a scan has found work, or has no room for more. The poll ends.
    pub(super) fn record_work(&mut self, scan: &Scan, time: PollTime) {
        self.is_head_first = scan.part == Part::Tail && self.is_head_due(time);
    }

    /// Records that a scan has read as many pages as a poll may. The poll ends.
    pub(super) fn record_unfinished(&mut self, scan: &Scan, time: PollTime) {
        match (scan.part, &mut self.known) {
            (Part::Head, Some(known)) => known.is_scan_unfinished = true,
            (Part::Head, None) => {}
            (Part::Tail, _) => self.tail_next = Some(scan.read_until),
        }
        self.is_head_first = scan.part == Part::Tail && self.is_head_due(time);
    }

    /// Records that a scan reached the end of the partition. Returns the next scan of the poll,
    /// if the head has to be read too.
    pub(super) fn record_end(&mut self, scan: &Scan, time: PollTime) -> Option<Scan> {
        self.is_head_first = false;
        match scan.part {
            Part::Tail => {
                self.tail_next = None;
                self.is_head_due(time).then(|| self.head_scan())
            }
            Part::Head => {
                if let Some(known) = &mut self.known {
                    known.is_scan_unfinished = false;
                }
                let has_skipped_head = scan.from > Stamp(0);
                (has_skipped_head && time.is_eager).then(|| Scan::new(Part::Head, Stamp(0)))
            }
        }
    }

    /// Whether the head has to be read, or its scan has to be continued.
    fn is_head_due(&self, PollTime { at, is_eager, .. }: PollTime) -> bool {
        self.known.is_some_and(|known| known.is_scan_unfinished || is_eager || !known.is_skipped(at))
    }

    /// The scan of the head: a new one, or the rest of an unfinished one.
    fn head_scan(&self) -> Scan {
        let unfinished = self.known.filter(|known| known.is_scan_unfinished);
        Scan::new(Part::Head, unfinished.map_or(Stamp(0), |known| known.until))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Stamp = Stamp((10 * 3_600_000) << 12);

    fn ago(minutes: u64) -> Stamp {
        NOW.minus(Duration::from_secs(60 * minutes))
    }

    fn time(at: Instant, is_eager: bool) -> PollTime {
        PollTime { now: NOW, at, is_eager }
    }

    /// The first scan of a poll with the default query.
    fn begin(cursor: &mut PollCursor, time: PollTime) -> Scan {
        cursor.begin(&PollQuery::default(), time)
    }

    /// A cursor whose scan of the head has read known rows up to `until`, and then the end.
    fn cursor_that_knows(until: Stamp, begun: Instant) -> PollCursor {
        let (mut cursor, time) = (PollCursor::default(), time(begun, false));
        let mut scan = begin(&mut cursor, time);
        assert_eq!(scan, Scan::new(Part::Head, Stamp(0)));
        cursor.record_known_page(&mut scan, until, time);
        assert_eq!(cursor.record_end(&scan, time), None);
        cursor
    }

    #[test]
    fn old_known_rows_are_skipped_for_half_a_minute() {
        let begun = Instant::now();
        let after = |seconds| time(begun + Duration::from_secs(seconds), false);
        let mut cursor = cursor_that_knows(ago(60), begun);
        let scan = begin(&mut cursor, after(1));
        assert_eq!(scan, Scan::new(Part::Tail, ago(60)));
        assert_eq!(cursor.record_end(&scan, after(1)), None);
        // A poll that finds further known rows does not extend the half minute.
        let mut scan = begin(&mut cursor, after(20));
        cursor.record_known_page(&mut scan, ago(30), after(20));
        assert_eq!(cursor.record_end(&scan, after(20)), None);
        let scan = begin(&mut cursor, after(29));
        assert_eq!((scan.from, cursor.record_end(&scan, after(29))), (ago(30), None));
        // Then the head is read, after the tail.
        let scan = begin(&mut cursor, after(30));
        assert_eq!(scan, Scan::new(Part::Tail, ago(30)));
        assert_eq!(cursor.record_end(&scan, after(30)), Some(Scan::new(Part::Head, Stamp(0))));
    }

    #[test]
    fn a_fetch_that_looks_once_reads_the_head_too() {
        let begun = Instant::now();
        let mut cursor = cursor_that_knows(ago(60), begun);
        let eager = time(begun, true);
        let scan = begin(&mut cursor, eager);
        assert_eq!(scan.part, Part::Tail);
        let mut scan = cursor.record_end(&scan, eager).expect("a scan of the head");
        assert_eq!(scan, Scan::new(Part::Head, Stamp(0)));
        cursor.record_known_page(&mut scan, ago(50), eager);
        cursor.record_unfinished(&scan, eager);
        // The next poll reads the rest of the head, and then its beginning.
        let scan = begin(&mut cursor, eager);
        let rest = cursor.record_end(&scan, eager).expect("the rest of the head");
        assert_eq!(rest, Scan::new(Part::Head, ago(50)));
        assert_eq!(cursor.record_end(&rest, eager), Some(Scan::new(Part::Head, Stamp(0))));
    }

    #[test]
    fn rows_that_may_be_new_are_read_by_every_poll() {
        let begun = Instant::now();
        let mut cursor = cursor_that_knows(ago(1), begun);
        assert_eq!(begin(&mut cursor, time(begun, false)), Scan::new(Part::Tail, ago(4)));
    }

    /// Rows that were parked long ago can fill thousands of pages. The tail behind them is read by
    /// each poll, before the next pages of the head.
    #[test]
    fn new_work_does_not_wait_for_an_unfinished_scan_of_the_head() {
        let (begun, mut cursor) = (Instant::now(), PollCursor::default());
        let now = time(begun, false);
        let mut scan = begin(&mut cursor, now);
        for minutes in [600, 500, 400] {
            cursor.record_known_page(&mut scan, ago(minutes), now);
            cursor.record_unfinished(&scan, now);
            let tail = begin(&mut cursor, now);
            assert_eq!(tail, Scan::new(Part::Tail, ago(4)));
            scan = cursor.record_end(&tail, now).expect("the rest of the head");
            assert_eq!(scan, Scan::new(Part::Head, ago(minutes)));
        }
        assert_eq!(cursor.record_end(&scan, now), None);
        assert_eq!(begin(&mut cursor, now), Scan::new(Part::Tail, ago(400)), "the scan is finished");
    }

    #[test]
    fn the_head_comes_first_after_a_poll_whose_tail_left_no_time_for_it() {
        let begun = Instant::now();
        let later = time(begun + HEAD_SKIPPED_FOR, false);
        let stops: [fn(&mut PollCursor, &Scan, PollTime); 2] =
            [PollCursor::record_work, PollCursor::record_unfinished];
        for stop in stops {
            let mut cursor = cursor_that_knows(ago(60), begun);
            let tail = begin(&mut cursor, later);
            assert_eq!(tail.part, Part::Tail);
            stop(&mut cursor, &tail, later);
            let head = begin(&mut cursor, later);
            assert_eq!(head, Scan::new(Part::Head, Stamp(0)));
            // The head found work, and the tail comes first again.
            stop(&mut cursor, &head, later);
            assert_eq!(begin(&mut cursor, later).part, Part::Tail);
        }
    }

    #[test]
    fn a_tail_that_fills_more_pages_than_a_poll_may_read_continues_behind_them() {
        let begun = Instant::now();
        let now = time(begun, false);
        let mut cursor = cursor_that_knows(ago(60), begun);
        let mut scan = begin(&mut cursor, now);
        cursor.record_known_page(&mut scan, ago(2), now);
        cursor.record_unfinished(&scan, now);
        let mut scan = begin(&mut cursor, now);
        assert_eq!(scan, Scan::new(Part::Tail, ago(2)));
        // All rows of the next pages have one stamp. They are not read again.
        cursor.record_known_page(&mut scan, ago(2), now);
        cursor.record_unfinished(&scan, now);
        let scan = begin(&mut cursor, now);
        assert!(scan.from > ago(2));
        assert_eq!(cursor.record_end(&scan, now), None);
        assert_eq!(begin(&mut cursor, now).from, ago(4), "a scan that reached the end is finished");
    }

    #[test]
    fn a_scan_of_the_head_that_has_come_to_the_tail_replaces_it() {
        let (begun, mut cursor) = (Instant::now(), PollCursor::default());
        let now = time(begun, false);
        let mut scan = begin(&mut cursor, now);
        cursor.record_known_page(&mut scan, ago(3), now);
        cursor.record_unfinished(&scan, now);
        assert_eq!(begin(&mut cursor, now), Scan::new(Part::Head, ago(3)));
    }

    #[test]
    fn another_query_begins_at_the_head() {
        let begun = Instant::now();
        let now = time(begun, false);
        let mut cursor = cursor_that_knows(ago(60), begun);
        let other = PollQuery::of(&[crate::process::interest::Interest::Instances]);
        assert_eq!(cursor.begin(&other, now), Scan::new(Part::Head, Stamp(0)));
        assert_eq!(begin(&mut cursor, now), Scan::new(Part::Head, Stamp(0)), "what it knew is forgotten");
    }
}
