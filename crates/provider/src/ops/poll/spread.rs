//! `Spread` chooses where the polls of a helper begin. A helper is a process that helps with the
//! slice of another process. A slice that others help with usually has a backlog: many activities
//! that were created long enough ago for every process to take them. If each helper began with
//! the oldest, all of them would try to lock the same activities, and only one would succeed. So
//! each helper begins at its own part of the backlog, and the owner of the slice at the head.
//!
//! The backlog reaches from the stamp of the first row of the slice to the stamp of its last row. The
//! helper with the place `p`, between 0 and 1, begins at the part `p` of that time. The activities of
//! one turn are divided too, because each has a later stamp than the one before. From its place the
//! helper reads on to the end of the slice. Rows that other processes have locked are not visible, so
//! the helper does not read them.
//!
//! Invariants: a place only orders the work. A helper that has reached the end of the slice, or
//! has had its place for [`PLACE_KEPT_FOR`], begins its next poll at the head, and takes what it
//! finds there. So the oldest work does not depend on the owner of the slice alone.

use std::time::Duration;

use perihelion_client::Query;
use serde_json::Value;
use tokio::time::Instant;

use crate::documents::DocumentType;
use crate::documents::stamp::Stamp;

/// If a page at the head has at least this many activities, and is not the last page, it is the head
/// of a backlog.
const BACKLOG_FROM: usize = 48;

/// How long a place in the backlog is kept. Then the head is read again, and a new place is chosen,
/// because the backlog may have become shorter.
const PLACE_KEPT_FOR: Duration = Duration::from_secs(4);

/// The latest `visibleAt` among the visible activities of a range.
const LAST: &str = "SELECT TOP 1 VALUE c.visibleAt FROM c WHERE c.type = 'worker_queue' AND \
    c.visibleAt <= @now ORDER BY c.visibleAt DESC";

/// Where the polls of one range begin, if this process helps with the range.
#[derive(Debug, Default)]
pub(super) struct Spread {
    /// The place of this process among the helpers, from 0 to 1; `None` if it does not help.
    place: Option<f64>,
    /// The stamp at which polls begin, and the time until which they begin there; `None` if they
    /// begin at the head.
    begin: Option<(Stamp, Instant)>,
    /// Whether the last poll reached the end of the range. The next poll takes from the head.
    was_at_end: bool,
}

impl Spread {
    /// Sets the place of this process among the helpers; `None` if it does not help.
    pub(super) fn set_place(&mut self, place: Option<f64>) {
        if place.is_none() {
            *self = Spread::default();
        }
        self.place = place;
    }

    /// Where a poll at the time `at` begins; `None` for the head.
    pub(super) fn begin_at(&self, at: Instant) -> Option<Stamp> {
        self.begin.filter(|(_, until)| at < *until).map(|(from, _)| from)
    }

    /// Whether this process chooses a place, now that a poll has read this page at the head. If the
    /// polls before this one had a place, this process first takes from the head once.
    pub(super) fn is_wanted(&mut self, rows: &[Value]) -> bool {
        let had_place = self.begin.take().is_some() || self.was_at_end;
        self.was_at_end = false;
        let activities = rows.iter().filter(|row| DocumentType::of(row) == Some(DocumentType::Activity));
        self.place.is_some() && !had_place && activities.count() >= BACKLOG_FROM
    }

    /// Chooses a place in the backlog from `first` to `last`, and returns its stamp.
    pub(super) fn choose(&mut self, first: Stamp, last: Stamp, at: Instant) -> Stamp {
        let length = last.0.saturating_sub(first.0);
        // The product is not above `length`, which a double holds exactly.
        let from = Stamp(first.0 + (length as f64 * self.place.unwrap_or_default().clamp(0.0, 1.0)) as u64);
        self.begin = Some((from, at + PLACE_KEPT_FOR));
        from
    }

    /// Records that a poll from the chosen place reached the end of the range.
    pub(super) fn record_end(&mut self) {
        (self.begin, self.was_at_end) = (None, true);
    }
}

/// The query for the stamp of the last activity that is visible at `now`.
pub(super) fn last_query(now: Stamp) -> Query {
    Query::new(LAST).with_parameter("@now", now.0).with_max_items(1).without_plan()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rows(count: usize) -> Vec<Value> {
        vec![json!({"type": "worker_queue"}); count]
    }

    #[test]
    fn helpers_begin_at_their_own_part_of_the_backlog() {
        let at = Instant::now();
        for (place, expected) in [(0.0, 1000), (0.25, 1100), (0.5, 1200), (0.75, 1300)] {
            let mut spread = Spread::default();
            spread.set_place(Some(place));
            assert!(spread.is_wanted(&rows(BACKLOG_FROM)));
            assert_eq!(spread.choose(Stamp(1000), Stamp(1400), at), Stamp(expected));
            assert_eq!(spread.begin_at(at), Some(Stamp(expected)));
            assert_eq!(spread.begin_at(at + PLACE_KEPT_FOR), None, "the head is read again");
            assert!(!spread.is_wanted(&rows(BACKLOG_FROM)), "work is taken from the head once");
            assert!(spread.is_wanted(&rows(BACKLOG_FROM)));
        }
    }

    #[test]
    fn at_the_end_of_the_slice_a_helper_takes_from_the_head() {
        let (mut spread, at) = (Spread::default(), Instant::now());
        spread.set_place(Some(0.5));
        assert!(!spread.is_wanted(&rows(BACKLOG_FROM - 1)), "a short queue is not a backlog");
        spread.choose(Stamp(0), Stamp(10), at);
        spread.record_end();
        assert_eq!(spread.begin_at(at), None);
        assert!(!spread.is_wanted(&rows(BACKLOG_FROM)), "the next poll takes from the head once");
        assert!(spread.is_wanted(&rows(BACKLOG_FROM)));
        spread.set_place(None);
        assert!(!spread.is_wanted(&rows(BACKLOG_FROM)), "the owner begins at the head");
    }
}
