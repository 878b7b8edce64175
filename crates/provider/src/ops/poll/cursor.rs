//! The cursors of a physical partition ("partition" below): where its next poll begins. A
//! poll reads rows in the order of their `visibleAt`. Some rows stay at the head of that
//! order, because this process knows them and does not take them now: for example, their
//! instance is locked by another process, needs another version, or has not started. If these
//! rows fill less than a page, every poll reads them again. If they fill pages, a cursor
//! records how far they reach, and a poll has two parts:
//!
//! - The tail: the rows behind the known ones, and all rows whose stamp is so recent that they
//!   may be new work. A poll begins with it, so that new work does not wait until the known rows
//!   are read.
//! - The head: the rows from the first one to the tail. It is read 30 seconds after it was last
//!   read, because known rows may have become work. A poll whose tail has no work goes on with the
//!   head. A head that takes more pages than a poll may read is continued by the next polls, each
//!   after its own tail.
//!
//! A tail that takes more pages than a poll may read is continued too. If a tail has work while the
//! head is due, the next poll begins with the head. So both parts make progress under any load.
//!
//! Invariants: each query has a cursor of its own, because another query may see other rows. A
//! poll for a fetch that looks once (`is_eager`) also reads a head that was read less than 30 seconds
//! ago. It ends before the head only if it finds work, or has read as many pages as a poll may.

use std::time::Duration;

use tokio::time::Instant;

use super::query::PollQuery;
use crate::documents::stamp::Stamp;
use crate::timing::SKEW_MAX;

/// The most pages that one poll reads while it finds no new work.
pub(super) const PAGES_MAX: usize = 8;

/// The most of these pages that the tail takes while the head is due.
const TAIL_PAGES_MAX: usize = PAGES_MAX / 2;

/// How long known rows at the head of a partition are skipped, counted from the last poll
/// that began with the first of them.
const HEAD_SKIPPED_FOR: Duration = Duration::from_secs(30);

/// The longest time for which polls that find work continue a tail. After that, the next poll reads
/// the tail from its start, because newer work may be before the place of the continuation.
const TAIL_CONTINUED_FOR: Duration = Duration::from_secs(2);

/// How far the stamp of new work can be in the past. Writers stamp work [`SKEW_MAX`] in the
/// past, and their clock may be behind by as much again. Work that returns to its old place
/// in the queue, such as an abandoned activity, can have an older stamp. Polls may skip it
/// for [`HEAD_SKIPPED_FOR`].
const NEW_WORK_AGE_MAX: Duration = SKEW_MAX.saturating_mul(2);

/// The most queries whose cursors are kept. A busy process polls for its dispatchers, for its
/// workers, or for both.
const QUERIES_MAX: usize = 4;

/// The cursors of one partition. The most recently used cursor comes first.
#[derive(Debug, Default)]
pub(super) struct PollCursors(Vec<(PollQuery, PollCursor)>);

impl PollCursors {
    /// Records that some of the known rows may be work again, so the heads are due at once.
    pub(super) fn record_left_work(&mut self) {
        self.0.iter_mut().filter_map(|(_, cursor)| cursor.known.as_mut()).for_each(|known| {
            known.has_left_work = true;
        });
    }

    /// Begins a poll.
    pub(super) fn begin(&mut self, query: &PollQuery, time: PollTime) -> Poll<'_> {
        let position = self.0.iter().position(|(other, _)| other == query);
        let cursor = position
            .map(|index| self.0.remove(index))
            .unwrap_or_else(|| (query.clone(), PollCursor::default()));
        self.0.truncate(QUERIES_MAX - 1);
        self.0.insert(0, cursor);
        self.0[0].1.begin(time)
    }
}

/// Where the next poll with one query begins.
#[derive(Debug, Default)]
struct PollCursor {
    /// `None` if the known rows at the head fill less than a page.
    known: Option<KnownRows>,
    /// Where the tail is continued; `None` if it begins at its start.
    tail: Option<Continuation>,
    /// Whether the next poll begins with the head: the head was due, and the last poll ended with the
    /// tail, before it read the head.
    is_head_first: bool,
}

/// The known rows at the head of a partition.
#[derive(Debug, Clone, Copy)]
struct KnownRows {
    /// All rows before this stamp were known when they were read.
    until: Stamp,
    /// When the head was last read from the first row on.
    read_at: Instant,
    /// Where the scan of the head is continued; `None` if the last scan has reached the tail.
    head_next: Option<Stamp>,
    /// Whether some of these rows are work that was left: the hints had no room for it, its partition
    /// is paused, or the outcome of its lock is in doubt. If so, the head is due at once.
    has_left_work: bool,
}

impl KnownRows {
    /// Whether polls still skip these rows at the time `at`.
    fn is_skipped(&self, at: Instant) -> bool {
        at.saturating_duration_since(self.read_at) < HEAD_SKIPPED_FOR
    }
}

/// Where a tail is continued, and when it was last read from its start.
#[derive(Debug, Clone, Copy)]
struct Continuation {
    next: Stamp,
    begun_at: Instant,
}

/// When a poll happens, and whether an eager fetch waits for it.
#[derive(Debug, Clone, Copy)]
pub(super) struct PollTime {
    /// The time as a stamp of documents.
    pub(super) now: Stamp,
    /// The time on tokio's clock.
    pub(super) at: Instant,
    /// Whether the poll is for a fetch that looks for work only once.
    pub(super) is_eager: bool,
}

impl PollCursor {
    fn begin(&mut self, time: PollTime) -> Poll<'_> {
        let new_from = time.now.minus(NEW_WORK_AGE_MAX);
        let is_head_first = std::mem::take(&mut self.is_head_first);
        let scan = match self.known {
            None => Scan::new(Part::All, Stamp(0)),
            Some(_) if is_head_first && self.is_head_due(time.at) => self.head_scan(),
            Some(known) => self.tail_scan(known, new_from),
        };
        let is_tail_read = scan.part != Part::Head;
        Poll { cursor: self, time, new_from, scan, pages: 0, is_tail_read }
    }

    /// The scan of the tail: a new one, or the rest of an unfinished one.
    fn tail_scan(&self, known: KnownRows, new_from: Stamp) -> Scan {
        // An unfinished scan of the head will read all rows before `new_from`, so the tail begins there.
        let start = if known.head_next.is_some() { new_from } else { known.until.min(new_from) };
        Scan::new(Part::Tail, self.tail.map_or(start, |tail| tail.next))
    }

    /// Whether the head has to be read, or its scan has to be continued.
    fn is_head_due(&self, at: Instant) -> bool {
        let is_due =
            |known: &KnownRows| known.head_next.is_some() || known.has_left_work || !known.is_skipped(at);
        self.known.as_ref().is_some_and(is_due)
    }

    /// The scan of the head: a new one, or the rest of an unfinished one.
    fn head_scan(&self) -> Scan {
        Scan::new(Part::Head, self.known.and_then(|known| known.head_next).unwrap_or(Stamp(0)))
    }
}

/// The part of the partition that a scan reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// All rows, because no known rows are recorded.
    All,
    Head,
    Tail,
}

/// One pass over rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Scan {
    part: Part,
    /// Where the scan begins; `Stamp(0)` is the first row.
    from: Stamp,
    /// All rows before this stamp were read and are known. Before the first page, this is `from`.
    read_until: Stamp,
    pages: usize,
}

impl Scan {
    fn new(part: Part, from: Stamp) -> Self {
        Scan { part, from, read_until: from, pages: 0 }
    }

    fn has_progress(&self) -> bool {
        self.read_until > self.from
    }
}

/// A page of rows that a poll has read.
#[derive(Debug, Clone, Copy)]
pub(super) struct PageRead {
    /// The stamp of the last row; `None` if the page is empty.
    pub(super) last: Option<Stamp>,
    /// Whether no page follows.
    pub(super) is_end: bool,
    /// Whether the poll ends with this page: it has new work, or there is no room for more.
    pub(super) has_work: bool,
    /// Whether some of the rows are work that was left for a later poll.
    pub(super) has_left_work: bool,
}

/// The next step of a poll.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NextStep {
    /// Read the next page.
    Page,
    /// Read from [`Poll::from`] on.
    Scan,
    End,
}

/// A poll that is under way. A poll that fails is dropped, and the next poll continues from the
/// cursor.
#[derive(Debug)]
pub(super) struct Poll<'c> {
    cursor: &'c mut PollCursor,
    time: PollTime,
    /// The least stamp that new work may have.
    new_from: Stamp,
    scan: Scan,
    pages: usize,
    /// Whether this poll has read the tail, or is reading it.
    is_tail_read: bool,
}

impl Poll<'_> {
    /// Where the current scan begins; `Stamp(0)` is the first row.
    pub(super) fn from(&self) -> Stamp {
        self.scan.from
    }

    /// Records a page and returns what to read next.
    pub(super) fn record_page(&mut self, page: PageRead) -> NextStep {
        self.pages += 1;
        self.scan.pages += 1;
        if page.has_work {
            self.record_work(page.is_end);
            return NextStep::End;
        }
        let has_reached_tail = page.last.is_some_and(|last| last >= self.new_from);
        if page.is_end || (self.scan.part == Part::Head && has_reached_tail) {
            return self.end_scan(page.is_end);
        }
        if let Some(last) = page.last {
            self.record_known_rows(last, page.has_left_work);
        }
        self.next_page()
    }

    /// The next step after a page of known rows that is not the last page.
    fn next_page(&mut self) -> NextStep {
        let is_at_page_limit = self.pages >= PAGES_MAX;
        let Scan { part, read_until, pages, .. } = self.scan;
        match part {
            Part::Tail if !is_at_page_limit && pages >= TAIL_PAGES_MAX && self.is_head_due() => {
                self.continue_tail();
                self.begin_head()
            }
            Part::Tail if is_at_page_limit => {
                self.continue_tail();
                self.cursor.is_head_first = self.is_head_due();
                NextStep::End
            }
            Part::All | Part::Head if is_at_page_limit => {
                // A scan that has come to the recent rows is continued as the tail.
                if read_until >= self.new_from {
                    self.continue_tail();
                    if let Some(known) = &mut self.cursor.known {
                        known.head_next = None;
                    }
                }
                NextStep::End
            }
            Part::All | Part::Head | Part::Tail => NextStep::Page,
        }
    }

    /// Records that all rows of a page are known, and that more rows follow. `last` is the stamp of
    /// the page's last row.
    fn record_known_rows(&mut self, last: Stamp, has_left_work: bool) {
        let Scan { part, from, .. } = self.scan;
        // If all rows of a page have the stamp that the scan began with, the next scan begins
        // behind that stamp. Otherwise it would read the same page again.
        let until = if last > from { last } else { Stamp(last.0 + 1) };
        self.scan.read_until = until;
        match (part, &mut self.cursor.known) {
            (Part::All | Part::Head, known) => {
                // A scan that begins behind the first row continues an earlier scan of the head.
                let continued = known.filter(|_| from > Stamp(0));
                *known = Some(KnownRows {
                    until,
                    read_at: continued.map_or(self.time.at, |known| known.read_at),
                    head_next: Some(until),
                    has_left_work: has_left_work || continued.is_some_and(|known| known.has_left_work),
                });
            }
            (Part::Tail, Some(known)) => {
                if known.head_next.is_none() && from <= known.until {
                    known.until = known.until.max(until);
                }
                known.has_left_work |= has_left_work;
            }
            (Part::Tail, None) => {}
        }
    }

    /// Ends a scan that has read its part. `is_end` tells whether it has read all rows.
    fn end_scan(&mut self, is_end: bool) -> NextStep {
        match self.scan.part {
            Part::Tail => {
                self.cursor.tail = None;
                let is_wanted = self.is_head_due() || (self.time.is_eager && self.cursor.known.is_some());
                if is_wanted { self.begin_head() } else { NextStep::End }
            }
            Part::All | Part::Head => {
                let has_skipped_rows = self.scan.from > Stamp(0);
                self.end_head(is_end);
                match self.cursor.known {
                    Some(known) if !self.is_tail_read && !is_end => self.begin_tail(known),
                    Some(_) if has_skipped_rows && self.time.is_eager => self.begin_head(),
                    Some(_) | None => NextStep::End,
                }
            }
        }
    }

    /// Records that a scan of the head has reached the tail, or the end of the partition.
    fn end_head(&mut self, is_end: bool) {
        let Scan { from, .. } = self.scan;
        let is_first_page = from == Stamp(0) && !self.scan.has_progress();
        if is_end {
            self.cursor.tail = None;
        }
        if is_end && is_first_page {
            self.cursor.known = None;
        }
        if let Some(known) = &mut self.cursor.known {
            known.head_next = None;
            if is_first_page {
                (known.read_at, known.has_left_work) = (self.time.at, false);
            }
        }
    }

    /// Records that the last page had work. `is_end` tells whether no page follows.
    fn record_work(&mut self, is_end: bool) {
        let PollTime { at, .. } = self.time;
        match self.scan.part {
            Part::Tail => {
                let is_old =
                    |tail: Continuation| at.saturating_duration_since(tail.begun_at) >= TAIL_CONTINUED_FOR;
                if self.cursor.tail.is_some_and(is_old) {
                    self.cursor.tail = None;
                } else if self.scan.has_progress() {
                    self.continue_tail();
                }
                self.cursor.is_head_first = self.is_head_due();
            }
            Part::All | Part::Head if is_end => self.end_head(is_end),
            Part::All | Part::Head => {
                let is_stuck = self.scan.from > Stamp(0) && !self.scan.has_progress();
                if let Some(known) = &mut self.cursor.known
                    && is_stuck
                    && !known.is_skipped(at)
                {
                    // While polls find work at this place, the rows before it may become work too.
                    // So the head is read from its first row again.
                    known.head_next = Some(Stamp(0));
                }
            }
        }
    }

    /// Lets the next poll continue the tail behind the rows that were read.
    fn continue_tail(&mut self) {
        let begun_at = self.cursor.tail.map_or(self.time.at, |tail| tail.begun_at);
        self.cursor.tail = Some(Continuation { next: self.scan.read_until, begun_at });
    }

    /// Continues this poll with the head. If this poll may read no more pages, the next poll begins
    /// with the head.
    fn begin_head(&mut self) -> NextStep {
        if self.pages >= PAGES_MAX {
            self.cursor.is_head_first = true;
            return NextStep::End;
        }
        self.scan = self.cursor.head_scan();
        NextStep::Scan
    }

    /// Continues this poll with the tail, unless this poll may read no more pages.
    fn begin_tail(&mut self, known: KnownRows) -> NextStep {
        if self.pages >= PAGES_MAX {
            return NextStep::End;
        }
        (self.scan, self.is_tail_read) = (self.cursor.tail_scan(known, self.new_from), true);
        NextStep::Scan
    }

    fn is_head_due(&self) -> bool {
        self.cursor.is_head_due(self.time.at)
    }
}

#[cfg(test)]
mod tests;
