//! How far an ordered range was read, exact to the row.
//!
//! A continuation of the service stands between two of its pages, but a merge
//! may stop in the middle of one. What is remembered beside the continuation
//! is a [`Mark`]: the sort keys of the last row taken, and which documents
//! with just these keys were taken. That needs no assumption about the order
//! of equal keys, stays true when documents come and go, and can be handed to
//! both halves of a split range: a document is in one of them.

use std::cmp::Ordering;
use std::collections::VecDeque;

use perihelion_model::json::Value;

use crate::ast::Direction;
use crate::order::compare_order;

/// A row on its way through the merge.
#[derive(Debug)]
pub(super) struct MergeRow {
    /// The document's `_rid`; plain rows do not have it.
    pub(super) rid: Option<String>,
    pub(super) keys: Vec<Option<Value>>,
    /// `None`: undefined, not in the answer.
    pub(super) output: Option<Value>,
}

/// A place within a page.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Mark {
    pub(super) keys: Vec<Option<Value>>,
    /// Documents with these keys, and how many of their rows were taken.
    pub(super) ties: Vec<(String, u64)>,
}

#[derive(Debug, Default)]
pub(super) struct Progress {
    /// Taken before this merge began, and to be dropped when it comes again.
    inherited: Option<Mark>,
    /// A row came that is beyond the inherited mark: nothing more to drop. The
    /// mark itself holds as long as the page does.
    is_beyond: bool,
    /// The last rows taken since the page at hand began.
    since: Option<Mark>,
    /// A row without `_rid` was taken since: there is no mark for that.
    is_anonymous: bool,
}

impl Progress {
    pub(super) fn from_mark(mark: Option<Mark>) -> Self {
        Progress { inherited: mark, ..Progress::default() }
    }

    /// The rows of a new page without those that were taken before.
    pub(super) fn admit(&mut self, rows: Vec<MergeRow>, directions: &[Direction]) -> VecDeque<MergeRow> {
        rows.into_iter().filter_map(|row| self.admit_one(row, directions)).collect()
    }

    fn admit_one(&mut self, row: MergeRow, directions: &[Direction]) -> Option<MergeRow> {
        let Some(mark) = self.inherited.as_mut().filter(|_| !self.is_beyond) else { return Some(row) };
        match compare_order(&row.keys, &mark.keys, directions) {
            Ordering::Less => None,
            Ordering::Greater => {
                self.is_beyond = true;
                Some(row)
            }
            Ordering::Equal => {
                let tie = mark.ties.iter().position(|(rid, _)| Some(rid) == row.rid.as_ref());
                let Some(tie) = tie else { return Some(row) };
                mark.ties[tie].1 -= 1;
                if mark.ties[tie].1 == 0 {
                    mark.ties.swap_remove(tie);
                }
                self.take(row.rid, row.keys, directions);
                None
            }
        }
    }

    /// Notes a row that leaves the page.
    pub(super) fn take(&mut self, rid: Option<String>, keys: Vec<Option<Value>>, directions: &[Direction]) {
        let Some(rid) = rid else {
            self.is_anonymous = true;
            return;
        };
        match &mut self.since {
            Some(mark) if compare_order(&mark.keys, &keys, directions).is_eq() => {
                match mark.ties.last_mut() {
                    Some((last, count)) if *last == rid => *count += 1,
                    _ => mark.ties.push((rid, 1)),
                }
            }
            since => *since = Some(Mark { keys, ties: vec![(rid, 1)] }),
        }
    }

    /// The page has no more rows: its continuation says it all.
    pub(super) fn end_page(&mut self) {
        self.since = None;
        self.is_anonymous = false;
        if std::mem::take(&mut self.is_beyond) {
            self.inherited = None;
        }
    }

    /// What is to be dropped when the page at hand is read again.
    pub(super) fn mark(&self, directions: &[Direction]) -> Result<Option<Mark>, Unmarked> {
        if self.is_anonymous {
            return Err(Unmarked);
        }
        let (Some(since), Some(inherited)) = (&self.since, &self.inherited) else {
            return Ok(self.since.clone().or_else(|| self.inherited.clone()));
        };
        let mut mark = since.clone();
        if compare_order(&since.keys, &inherited.keys, directions).is_eq() {
            mark.ties.extend(inherited.ties.iter().cloned());
        }
        Ok(Some(mark))
    }

    /// The mark for the halves of a range that was split between two pages.
    pub(super) fn into_mark(self) -> Option<Mark> {
        self.inherited
    }
}

/// The place has no name.
#[derive(Debug)]
pub(super) struct Unmarked;
