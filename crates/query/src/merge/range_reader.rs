//! The reader of one interval: its current page and the continuation of the
//! next one.
//!
//! A reader has either one page in memory or at most one fetch in flight. So
//! when a fetch reports that the range is gone, no rows are left to return, and
//! the ranges in its place go on where the reader was.

use std::collections::VecDeque;

use perihelion_model::json::Value;

use super::position::{NoPosition, PositionTracker, RowPosition};
use super::range::RangeSlice;
use super::rows::MergeRow;
use crate::ast::Direction;

#[derive(Debug)]
pub(super) struct RangeReader {
    pub(super) slice: RangeSlice,
    /// The continuation before the current page, or before the next one when
    /// there is no current page.
    start: Option<String>,
    /// The continuation after the current page.
    next: Next,
    rows: VecDeque<MergeRow>,
    tracker: PositionTracker,
    pub(super) is_fetching: bool,
    /// The index in range order, for rows with equal keys.
    pub(super) rank: usize,
    /// Rows were taken from the current page.
    is_begun: bool,
    /// How often the range was gone, its parents included.
    pub(super) times_gone: u32,
}

/// The continuation after the current page.
#[derive(Debug)]
enum Next {
    /// There is no current page.
    Unknown,
    After(String),
    /// The current page is the last one.
    Nothing,
}

/// The point from which an interval is read on.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct ResumePoint {
    pub(super) continuation: Option<String>,
    pub(super) position: Option<RowPosition>,
}

impl RangeReader {
    pub(super) fn new(slice: RangeSlice, resume_point: ResumePoint, rank: usize) -> Self {
        RangeReader {
            slice,
            start: resume_point.continuation,
            next: Next::Unknown,
            rows: VecDeque::new(),
            tracker: PositionTracker::from_position(resume_point.position),
            is_fetching: false,
            rank,
            is_begun: false,
            times_gone: 0,
        }
    }

    /// Sets how often the range and its parents were gone.
    pub(super) fn with_times_gone(self, times_gone: u32) -> Self {
        RangeReader { times_gone, ..self }
    }

    /// The continuation to fetch with.
    pub(super) fn continuation(&self) -> Option<&str> {
        self.start.as_deref()
    }

    pub(super) fn is_finished(&self) -> bool {
        self.rows.is_empty() && matches!(self.next, Next::Nothing)
    }

    pub(super) fn needs_page(&self) -> bool {
        self.rows.is_empty() && !self.is_finished()
    }

    pub(super) fn rows_held(&self) -> usize {
        self.rows.len()
    }

    /// Takes a page.
    pub(super) fn put(
        &mut self,
        rows: Vec<MergeRow>,
        continuation: Option<String>,
        directions: &[Direction],
    ) {
        self.rows = self.tracker.admit(rows, directions);
        self.next = continuation.map_or(Next::Nothing, Next::After);
        self.end_empty_page();
    }

    /// The first row in memory.
    pub(super) fn head(&self) -> Option<&MergeRow> {
        self.rows.front()
    }

    /// Removes the first row and returns its output.
    pub(super) fn take(&mut self, directions: &[Direction]) -> Option<Option<Value>> {
        let row = self.rows.pop_front()?;
        self.is_begun = true;
        self.tracker.take(row.rid, row.keys, directions);
        self.end_empty_page();
        Some(row.output)
    }

    /// Ends the current page when it has no more rows.
    fn end_empty_page(&mut self) {
        if !self.rows.is_empty() {
            return;
        }
        self.is_begun = false;
        self.tracker.end_page();
        if let Next::After(continuation) = &mut self.next {
            self.start = Some(std::mem::take(continuation));
            self.next = Next::Unknown;
        }
    }

    /// From where to read on. Without sort keys only the ends of pages have a
    /// resume point.
    pub(super) fn resume_point(&self, directions: &[Direction]) -> Result<ResumePoint, NoPosition> {
        if self.is_begun && directions.is_empty() {
            return Err(NoPosition);
        }
        Ok(ResumePoint { continuation: self.start.clone(), position: self.tracker.position(directions)? })
    }

    /// Ends the reader between two pages; returns from where the ranges in its
    /// place read on.
    pub(super) fn end(&mut self) -> ResumePoint {
        self.next = Next::Nothing;
        let tracker = std::mem::take(&mut self.tracker);
        ResumePoint { continuation: self.start.take(), position: tracker.into_position() }
    }
}
