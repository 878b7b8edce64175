//! Polls of a partition that is a list of stamps. The tests simulate the pages of a poll, and check
//! which rows the poll reads.

use super::*;

const PAGE_ROWS: usize = 64;
const SECOND: Duration = Duration::from_secs(1);
/// The time of the first poll, as a stamp: 1,000 hours after 1970.
const BEGUN: Stamp = Stamp((1000 * 3_600_000) << 12);

/// A partition, and the polls of one process.
struct Partition {
    /// The known rows, in order.
    rows: Vec<Stamp>,
    /// The rows that the process can take.
    work: Vec<Stamp>,
    cursors: PollCursors,
    begun_at: Instant,
    elapsed: Duration,
    is_eager: bool,
}

/// What one poll did.
#[derive(Debug, Default)]
struct Polled {
    pages: usize,
    /// The work that it found.
    work: Vec<Stamp>,
    /// Where its scans began.
    scans: Vec<Stamp>,
}

fn ago(seconds: u64) -> Stamp {
    BEGUN.minus(SECOND * u32::try_from(seconds).unwrap())
}

impl Partition {
    fn new(rows: impl IntoIterator<Item = Stamp>) -> Self {
        Partition {
            rows: rows.into_iter().collect(),
            work: Vec::new(),
            cursors: PollCursors::default(),
            begun_at: Instant::now(),
            elapsed: Duration::ZERO,
            is_eager: false,
        }
    }

    /// A partition with `count` known rows. The first is a day old, and each is a second newer
    /// than the one before.
    fn with_old_rows(count: usize) -> Self {
        Partition::new((0..count as u64).map(|number| ago(24 * 3600 - number)))
    }

    fn now(&self) -> Stamp {
        BEGUN.plus(self.elapsed)
    }

    /// Adds new work, stamped as writers do. Returns its stamp.
    fn add_work(&mut self) -> Stamp {
        let stamp = Stamp(self.now().minus(SKEW_MAX).0 + 1);
        self.work.push(stamp);
        stamp
    }

    fn pass(&mut self, time: Duration) {
        self.elapsed += time;
    }

    fn poll(&mut self) -> Polled {
        self.poll_with(&PollQuery::default())
    }

    /// Polls, and takes the work of the page that has some.
    fn poll_with(&mut self, query: &PollQuery) -> Polled {
        let time = PollTime { now: self.now(), at: self.begun_at + self.elapsed, is_eager: self.is_eager };
        let mut all: Vec<Stamp> = self.rows.iter().chain(&self.work).copied().collect();
        all.sort();
        let mut polled = Polled::default();
        let mut poll = self.cursors.begin(query, time);
        let mut rest: Vec<Stamp> = all.iter().filter(|row| **row >= poll.from()).copied().collect();
        polled.scans.push(poll.from());
        loop {
            let page: Vec<Stamp> = rest.drain(..rest.len().min(PAGE_ROWS)).collect();
            polled.pages += 1;
            polled.work = page.iter().filter(|row| self.work.contains(row)).copied().collect();
            let step = poll.record_page(PageRead {
                last: page.last().copied(),
                is_end: rest.is_empty(),
                has_work: !polled.work.is_empty(),
                has_left_work: false,
            });
            match step {
                NextStep::Page => {}
                NextStep::Scan => {
                    rest = all.iter().filter(|row| **row >= poll.from()).copied().collect();
                    polled.scans.push(poll.from());
                }
                NextStep::End => break,
            }
        }
        assert!(polled.pages <= PAGES_MAX, "{polled:?}");
        self.work.retain(|row| !polled.work.contains(row));
        polled
    }
}

#[test]
fn old_known_rows_are_skipped_for_half_a_minute() {
    let mut partition = Partition::with_old_rows(100);
    assert_eq!(partition.poll().scans, [Stamp(0)]);
    for _ in 0..29 {
        partition.pass(SECOND);
        let polled = partition.poll();
        assert_eq!((polled.pages, polled.scans[0] > Stamp(0)), (1, true), "{polled:?}");
    }
    partition.pass(SECOND);
    let polled = partition.poll();
    assert_eq!(polled.scans[1..], [Stamp(0)], "the head is read after the tail");
}

#[test]
fn a_poll_of_few_known_rows_is_one_page_even_if_they_were_many_before() {
    let mut partition = Partition::with_old_rows(1000);
    for _ in 0..10 {
        partition.poll();
    }
    partition.rows.truncate(10);
    partition.pass(SECOND * 31);
    partition.poll();
    for _ in 0..100 {
        partition.pass(SECOND);
        assert_eq!(partition.poll().pages, 1);
    }
}

/// A day's parked rows fill hundreds of pages. New work is found by one of the next two polls, whatever
/// part of these rows the polls are reading.
#[test]
fn new_work_is_found_within_two_polls_however_many_rows_are_known() {
    let mut partition = Partition::with_old_rows(20_000);
    // Nothing is known at the first poll.
    partition.poll();
    for _ in 0..500 {
        partition.pass(SECOND * 2);
        let work = partition.add_work();
        // Of two polls, at most one begins with the head.
        let found = [partition.poll().work, partition.poll().work].concat();
        assert!(found.contains(&work));
    }
}

/// The first page of the head is known, and the second has work. The thousands of rows behind that
/// work must not count as the tail: polls would read them before the new work.
#[test]
fn rows_behind_work_in_the_head_do_not_delay_new_work() {
    let mut partition = Partition::with_old_rows(20_000);
    let takeable_row = partition.rows.remove(100);
    partition.work.push(takeable_row);
    assert_eq!(partition.poll().work, [takeable_row]);
    for _ in 0..20 {
        partition.pass(SECOND);
        let work = partition.add_work();
        let found = [partition.poll().work, partition.poll().work].concat();
        assert!(found.contains(&work));
    }
}

#[test]
fn a_known_row_that_becomes_work_is_found_while_there_is_steady_work() {
    for (known, place) in [(540, 3), (540, 530), (5_000, 3), (5_000, 4_000)] {
        let mut partition = Partition::with_old_rows(known);
        partition.poll();
        let takeable_row = partition.rows[place];
        let mut is_found = false;
        for number in 0..1000 {
            partition.pass(SECOND);
            partition.add_work();
            if number == 100 {
                partition.rows.retain(|row| *row != takeable_row);
                partition.work.push(takeable_row);
            }
            is_found |= partition.poll().work.contains(&takeable_row);
        }
        assert!(is_found, "{known} known rows, row {place}");
    }
}

/// Rows that were parked in the last minutes may be new work: every poll reads them, and they may
/// fill exactly the pages that a poll may read.
#[test]
fn the_head_and_all_recent_rows_are_read_however_long_the_tail_is() {
    for recent in [400, 448, 460, 500, 512, 600, 2000] {
        let old = (0..100).map(|number| ago(24 * 3600 - number));
        let recent_rows = (0..recent).map(|number| Stamp(ago(110).0 + number));
        let mut partition = Partition::new(old.chain(recent_rows));
        for round in 0..20 {
            // Row 50 is in the head, and row 300 is one of the recent rows.
            let takeable_row = partition.rows.remove(if round % 2 == 0 { 50 } else { 300 });
            partition.work.push(takeable_row);
            let mut polls = 0;
            while !partition.work.is_empty() {
                partition.pass(SECOND / 5);
                partition.poll();
                polls += 1;
                assert!(polls <= 200, "{recent} recent rows: a row is not found in 40 s");
            }
        }
    }
}

#[test]
fn a_fetch_that_looks_once_reads_the_head_too() {
    let mut partition = Partition::with_old_rows(200);
    partition.poll();
    partition.is_eager = true;
    let takeable_row = partition.rows.remove(5);
    partition.work.push(takeable_row);
    assert_eq!(partition.poll().work, [takeable_row]);
}

#[test]
fn alternating_queries_have_their_own_cursors() {
    let mut partition = Partition::with_old_rows(5_000);
    let queries = [PollQuery::default(), PollQuery::of(&[crate::process::interest::Interest::Instances])];
    for query in &queries {
        assert_eq!(partition.poll_with(query).scans, [Stamp(0)], "a new query begins at the head");
    }
    for number in 0..20 {
        let work = partition.add_work();
        let query = &queries[number % 2];
        let found = [partition.poll_with(query).work, partition.poll_with(query).work].concat();
        assert!(found.contains(&work));
    }
}

#[test]
fn new_work_is_found_within_two_polls_after_failed_polls() {
    let mut partition = Partition::with_old_rows(5_000);
    partition.poll();
    partition.pass(SECOND * 31);
    for number in 0..20 {
        // The poll fails after its first page, whose rows are known.
        let time =
            PollTime { now: partition.now(), at: partition.begun_at + partition.elapsed, is_eager: false };
        let mut poll = partition.cursors.begin(&PollQuery::default(), time);
        let last = Some(Stamp(poll.from().0 + 1));
        poll.record_page(PageRead { last, is_end: false, has_work: false, has_left_work: false });
        partition.pass(SECOND);
        let work = partition.add_work();
        let found = [partition.poll().work, partition.poll().work].concat();
        assert!(found.contains(&work), "after {number} failures");
    }
}

#[test]
fn work_that_was_left_for_lack_of_room_is_read_again_at_once() {
    let mut partition = Partition::with_old_rows(200);
    let time = PollTime { now: partition.now(), at: partition.begun_at, is_eager: false };
    let mut poll = partition.cursors.begin(&PollQuery::default(), time);
    let page = |last, is_end| PageRead { last: Some(last), is_end, has_work: false, has_left_work: true };
    assert_eq!(poll.record_page(page(partition.rows[63], false)), NextStep::Page);
    assert_eq!(poll.record_page(page(partition.rows[199], true)), NextStep::End);
    let takeable_row = partition.rows.remove(5);
    partition.work.push(takeable_row);
    assert_eq!(partition.poll().work, [takeable_row]);
}

#[test]
fn work_that_the_hints_forget_is_read_again_at_once() {
    let mut partition = Partition::with_old_rows(200);
    partition.poll();
    partition.pass(SECOND);
    let forgotten = partition.rows.remove(0);
    partition.work.push(forgotten);
    assert_eq!(partition.poll().work, [], "known rows are skipped");
    partition.cursors.record_left_work();
    assert_eq!(partition.poll().work, [forgotten]);
}
