//! One interval being read: its page at hand and where the next one starts.
//!
//! At most one page is held and at most one fetch is under way, and that only
//! while no page is held. So a range that is gone never leaves rows behind:
//! its halves simply go on where it stood.

use std::collections::VecDeque;

use super::progress::{Mark, MergeRow, Progress, Unmarked};
use super::range::Home;
use crate::ast::Direction;

#[derive(Debug)]
pub(super) struct Source {
    pub(super) home: Home,
    /// The continuation that the page at hand, or the next one, is read with.
    start: Option<String>,
    /// The continuation after the page at hand.
    next: Next,
    rows: VecDeque<MergeRow>,
    progress: Progress,
    pub(super) is_fetching: bool,
    /// Its place among the sources, for rows with equal keys.
    pub(super) rank: usize,
    /// Rows were taken from the page at hand.
    is_begun: bool,
    /// How often the range was gone, its parents included.
    pub(super) times_gone: u32,
}

#[derive(Debug)]
enum Next {
    /// No page is at hand.
    Unknown,
    After(String),
    Nothing,
}

/// Where a source stands, enough to go on from there.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Standing {
    pub(super) continuation: Option<String>,
    pub(super) mark: Option<Mark>,
}

impl Source {
    pub(super) fn new(home: Home, standing: Standing, rank: usize) -> Self {
        Source {
            home,
            start: standing.continuation,
            next: Next::Unknown,
            rows: VecDeque::new(),
            progress: Progress::from_mark(standing.mark),
            is_fetching: false,
            rank,
            is_begun: false,
            times_gone: 0,
        }
    }

    /// Takes the place of a source whose range was gone that often.
    pub(super) fn after(self, times_gone: u32) -> Self {
        Source { times_gone, ..self }
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

    pub(super) fn put(
        &mut self,
        rows: Vec<MergeRow>,
        continuation: Option<String>,
        directions: &[Direction],
    ) {
        self.rows = self.progress.admit(rows, directions);
        self.next = continuation.map_or(Next::Nothing, Next::After);
        self.turn_page();
    }

    pub(super) fn head(&self) -> Option<&MergeRow> {
        self.rows.front()
    }

    /// Takes the first row and returns what it says.
    pub(super) fn take(&mut self, directions: &[Direction]) -> Option<Option<perihelion_model::json::Value>> {
        let row = self.rows.pop_front()?;
        self.is_begun = true;
        self.progress.take(row.rid, row.keys, directions);
        self.turn_page();
        Some(row.output)
    }

    /// An empty page gives way to the one after it.
    fn turn_page(&mut self) {
        if !self.rows.is_empty() {
            return;
        }
        self.is_begun = false;
        self.progress.end_page();
        if let Next::After(continuation) = &mut self.next {
            self.start = Some(std::mem::take(continuation));
            self.next = Next::Unknown;
        }
    }

    /// Where to go on. Without sort keys only the ends of pages have a name.
    pub(super) fn standing(&self, directions: &[Direction]) -> Result<Standing, Unmarked> {
        if self.is_begun && directions.is_empty() {
            return Err(Unmarked);
        }
        Ok(Standing { continuation: self.start.clone(), mark: self.progress.mark(directions)? })
    }

    /// Ends a source between two pages, and says where its halves go on.
    pub(super) fn end(&mut self) -> Standing {
        self.next = Next::Nothing;
        let progress = std::mem::take(&mut self.progress);
        Standing { continuation: self.start.take(), mark: progress.into_mark() }
    }
}
