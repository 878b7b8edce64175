//! The reader of one interval: its current page and the continuation of the
//! next one.
//!
//! A reader has either one page in memory or at most one fetch in flight. So when the
//! range of a fetch is gone, the reader has no rows in memory. The ranges that replace
//! the range are then read from the position of the reader.

use std::collections::VecDeque;

use perihelion_model::json::Value;

use super::position::{NoPosition, PositionTracker, RowPosition};
use super::range::RangeSlice;
use super::rows::MergeRow;
use crate::ast::Direction;

/// The reader of one interval of effective keys, which one range holds.
#[derive(Debug)]
pub(super) struct RangeReader {
    pub(super) slice: RangeSlice,
    /// The continuation with which the current page was fetched. Without a current page:
    /// the continuation for the next fetch.
    page_start: Option<String>,
    /// The continuation after the current page.
    page_end: PageEnd,
    /// The rows of the current page that were not taken yet.
    rows: VecDeque<MergeRow>,
    tracker: PositionTracker,
    pub(super) is_fetching: bool,
    /// The index in range order. It orders rows with equal keys.
    pub(super) rank: usize,
    /// Whether rows were taken from the current page.
    is_page_begun: bool,
    /// How often the range and its parents together were reported gone.
    pub(super) times_gone: u32,
}

/// The continuation after the current page.
#[derive(Debug)]
enum PageEnd {
    /// There is no current page.
    Unknown,
    Continuation(String),
    /// The current page is the last one.
    EndOfRange,
}

/// The point from which the rest of an interval is read.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct ResumePoint {
    pub(super) continuation: Option<String>,
    pub(super) position: Option<RowPosition>,
}

impl RangeReader {
    pub(super) fn new(slice: RangeSlice, resume_point: ResumePoint, rank: usize) -> Self {
        RangeReader {
            slice,
            page_start: resume_point.continuation,
            page_end: PageEnd::Unknown,
            rows: VecDeque::new(),
            tracker: PositionTracker::from_position(resume_point.position),
            is_fetching: false,
            rank,
            is_page_begun: false,
            times_gone: 0,
        }
    }

    /// Sets how often the range and its parents were reported gone.
    pub(super) fn with_times_gone(self, times_gone: u32) -> Self {
        RangeReader { times_gone, ..self }
    }

    /// The continuation to fetch with.
    pub(super) fn continuation(&self) -> Option<&str> {
        self.page_start.as_deref()
    }

    pub(super) fn is_finished(&self) -> bool {
        self.rows.is_empty() && matches!(self.page_end, PageEnd::EndOfRange)
    }

    pub(super) fn needs_page(&self) -> bool {
        self.rows.is_empty() && !self.is_finished()
    }

    pub(super) fn rows_in_memory(&self) -> usize {
        self.rows.len()
    }

    /// Receives a page.
    pub(super) fn add_page(
        &mut self,
        rows: Vec<MergeRow>,
        continuation: Option<String>,
        directions: &[Direction],
    ) {
        self.rows = self.tracker.without_taken(rows, directions);
        self.page_end = continuation.map_or(PageEnd::EndOfRange, PageEnd::Continuation);
        self.end_empty_page();
    }

    /// The first row in memory.
    pub(super) fn first_row(&self) -> Option<&MergeRow> {
        self.rows.front()
    }

    /// Removes the first row and returns its output: `None` if no row is in memory,
    /// `Some(None)` if the output is undefined.
    pub(super) fn take_row(&mut self, directions: &[Direction]) -> Option<Option<Value>> {
        let row = self.rows.pop_front()?;
        self.is_page_begun = true;
        self.tracker.record_taken(row.rid, row.keys, directions);
        self.end_empty_page();
        Some(row.output)
    }

    /// Ends the current page when it has no more rows.
    fn end_empty_page(&mut self) {
        if !self.rows.is_empty() {
            return;
        }
        self.is_page_begun = false;
        self.tracker.end_page();
        if let PageEnd::Continuation(continuation) = &mut self.page_end {
            self.page_start = Some(std::mem::take(continuation));
            self.page_end = PageEnd::Unknown;
        }
    }

    /// The point from which another reader can read the rest. Without sort keys such a
    /// point exists only between two pages.
    pub(super) fn resume_point(&self, directions: &[Direction]) -> Result<ResumePoint, NoPosition> {
        if self.is_page_begun && directions.is_empty() {
            return Err(NoPosition);
        }
        let position = self.tracker.position(directions)?;
        Ok(ResumePoint { continuation: self.page_start.clone(), position })
    }

    /// Ends the reader, which must be between two pages. Returns the point from which the
    /// ranges that replace its range are read.
    pub(super) fn finish(&mut self) -> ResumePoint {
        self.page_end = PageEnd::EndOfRange;
        let tracker = std::mem::take(&mut self.tracker);
        ResumePoint { continuation: self.page_start.take(), position: tracker.into_position() }
    }
}
