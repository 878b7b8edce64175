//! The buffered merge, for results that need every row before the first one:
//! aggregates, GROUP BY, and sorts that the partitions do not perform.
//!
//! Each range has a buffer of its own. When a range is at its end, its buffer is
//! added to the merged buffer, in the order of the ranges.

use std::collections::HashMap;

use perihelion_model::json::Value;

use super::plan::GroupFormat;
use super::rows::{self, MergeRow};
use super::{MergeError, groups::Groups};
use crate::ast::Direction;
use crate::order::compare_order;

/// The most rows that one buffer of a sort may hold: the published SDKs' limit for a
/// query.
const SORTED_ROWS_MAX: usize = 50_000;

/// The buffers of a buffered merge.
#[derive(Debug)]
pub(super) struct Buffered {
    kind: BufferKind,
    merged: Buffer,
    /// The buffers of the ranges that are not at their end, by the index of the reader.
    buffers: HashMap<usize, Buffer>,
    /// The error that ended the merge. Later pages are refused with the same error, because a buffer
    /// may hold rows of the page that was refused.
    failure: Option<MergeError>,
}

/// The rows that the buffers hold: partial groups, or rows to sort.
#[derive(Debug)]
enum BufferKind {
    Groups(GroupFormat),
    /// Rows to sort. `rows_needed` is `None` when all of them are needed.
    Sorted {
        directions: Vec<Direction>,
        rows_needed: Option<usize>,
    },
}

#[derive(Debug)]
enum Buffer {
    Groups(Groups),
    Rows(Vec<MergeRow>),
}

impl Buffered {
    pub(super) fn groups(grouping: GroupFormat) -> Self {
        Buffered::new(BufferKind::Groups(grouping))
    }

    pub(super) fn sorted(directions: Vec<Direction>, rows_needed: Option<u64>) -> Self {
        let rows_needed = rows_needed.map(|rows| usize::try_from(rows).unwrap_or(usize::MAX));
        Buffered::new(BufferKind::Sorted { directions, rows_needed })
    }

    fn new(kind: BufferKind) -> Self {
        Buffered { merged: kind.new_buffer(), kind, buffers: HashMap::new(), failure: None }
    }

    /// Adds a page of a range to its buffer.
    pub(super) fn add(&mut self, reader: usize, page: Vec<Value>) -> Result<(), MergeError> {
        self.check()?;
        let buffer = self.buffers.entry(reader).or_insert_with(|| self.kind.new_buffer());
        let outcome = match (&self.kind, buffer) {
            (BufferKind::Groups(grouping), Buffer::Groups(groups)) => {
                page.into_iter().try_for_each(|row| groups.add(grouping, row))
            }
            (BufferKind::Sorted { directions, .. }, Buffer::Rows(buffered)) => {
                // A page with a row of the wrong form is fetched again, so it must leave no rows here.
                let rows = page.into_iter().map(|row| rows::ordered(row, directions.len()));
                buffered.extend(rows.collect::<Result<Vec<_>, _>>()?);
                self.kind.prune(buffered)
            }
            (BufferKind::Groups(_), Buffer::Rows(_)) | (BufferKind::Sorted { .. }, Buffer::Groups(_)) => {
                Ok(())
            }
        };
        self.end_at_error(outcome)
    }

    /// The error that ended the merge, if one did.
    fn check(&self) -> Result<(), MergeError> {
        self.failure.clone().map_or(Ok(()), Err)
    }

    fn end_at_error(&mut self, outcome: Result<(), MergeError>) -> Result<(), MergeError> {
        self.failure = outcome.err();
        self.check()
    }

    /// Merges the buffer of a range that is at its end. The ranges before it must be
    /// merged already.
    pub(super) fn close(&mut self, reader: usize) -> Result<(), MergeError> {
        self.check()?;
        let outcome = match (&self.kind, &mut self.merged, self.buffers.remove(&reader)) {
            (BufferKind::Groups(grouping), Buffer::Groups(merged), Some(Buffer::Groups(groups))) => {
                merged.merge(grouping, groups)
            }
            (BufferKind::Sorted { .. }, Buffer::Rows(merged), Some(Buffer::Rows(rows))) => {
                merged.extend(rows);
                self.kind.prune(merged)
            }
            _ => Ok(()),
        };
        self.end_at_error(outcome)
    }

    /// Discards the buffer of a range that is gone.
    pub(super) fn discard(&mut self, reader: usize) {
        self.buffers.remove(&reader);
    }

    /// The merged rows, after every range was closed. The buffer is empty afterwards.
    pub(super) fn finish(&mut self) -> Vec<Value> {
        match (&self.kind, std::mem::replace(&mut self.merged, self.kind.new_buffer())) {
            (BufferKind::Groups(grouping), Buffer::Groups(merged)) => merged.finish(grouping),
            (BufferKind::Sorted { directions, .. }, Buffer::Rows(mut merged)) => {
                merged.sort_by(|a, b| compare_order(&a.keys, &b.keys, directions));
                merged.into_iter().filter_map(|row| row.output).collect()
            }
            (BufferKind::Groups(_), Buffer::Rows(_)) | (BufferKind::Sorted { .. }, Buffer::Groups(_)) => {
                Vec::new()
            }
        }
    }
}

impl BufferKind {
    fn new_buffer(&self) -> Buffer {
        match self {
            BufferKind::Groups(_) => Buffer::Groups(Groups::default()),
            BufferKind::Sorted { .. } => Buffer::Rows(Vec::new()),
        }
    }

    /// Drops rows that cannot be in the result: rows without a value, and, when there
    /// are twice as many rows as needed, the last ones in the sort order. An error if too
    /// many rows are left.
    fn prune(&self, rows: &mut Vec<MergeRow>) -> Result<(), MergeError> {
        let BufferKind::Sorted { directions, rows_needed } = self else { return Ok(()) };
        rows.retain(|row| row.output.is_some());
        if let Some(rows_needed) = *rows_needed
            && rows.len() / 2 >= rows_needed
        {
            rows.sort_by(|a, b| compare_order(&a.keys, &b.keys, directions));
            rows.truncate(rows_needed);
        }
        if rows.len() > SORTED_ROWS_MAX {
            return Err(MergeError::TooLarge("more than 50,000 rows to sort"));
        }
        Ok(())
    }
}
