//! Answers that need every row before their first: aggregates, GROUP BY, and
//! sorts whose partitions do not sort.
//!
//! Each range fills a bin of its own; bins are emptied into the whole in the
//! order of the ranges, each once its range was read to its end.

use std::collections::HashMap;

use perihelion_model::json::Value;

use super::plan::Grouping;
use super::progress::MergeRow;
use super::{MergeError, groups::Groups, rows};
use crate::ast::Direction;
use crate::order::compare_order;

/// Rows that a sort may hold: the published SDKs' limit for such queries.
const SORTED_ROWS_MAX: usize = 50_000;

#[derive(Debug)]
pub(super) struct Drain {
    kind: Kind,
    whole: Bin,
    bins: HashMap<usize, Bin>,
}

#[derive(Debug)]
enum Kind {
    Groups(Grouping),
    /// Sort, and keep no more than that many where it is known.
    Sorted {
        directions: Vec<Direction>,
        enough: Option<usize>,
    },
}

#[derive(Debug)]
enum Bin {
    Groups(Groups),
    Rows(Vec<MergeRow>),
}

impl Drain {
    pub(super) fn groups(grouping: Grouping) -> Self {
        Drain::new(Kind::Groups(grouping))
    }

    pub(super) fn sorted(directions: Vec<Direction>, enough: Option<u64>) -> Self {
        let enough = enough.map(|enough| usize::try_from(enough).unwrap_or(usize::MAX));
        Drain::new(Kind::Sorted { directions, enough })
    }

    fn new(kind: Kind) -> Self {
        Drain { whole: kind.bin(), kind, bins: HashMap::new() }
    }

    /// Takes a page of a range.
    pub(super) fn add(&mut self, source: usize, page: Vec<Value>) -> Result<(), MergeError> {
        let bin = self.bins.entry(source).or_insert_with(|| self.kind.bin());
        match (&self.kind, bin) {
            (Kind::Groups(grouping), Bin::Groups(groups)) => {
                page.into_iter().try_for_each(|row| groups.add(grouping, row))
            }
            (Kind::Sorted { directions, .. }, Bin::Rows(held)) => {
                for row in page {
                    held.push(rows::ordered(row, directions.len())?);
                }
                self.kind.prune(held)
            }
            (Kind::Groups(_), Bin::Rows(_)) | (Kind::Sorted { .. }, Bin::Groups(_)) => Ok(()),
        }
    }

    /// The range was read to its end, and so were those before it.
    pub(super) fn close(&mut self, source: usize) -> Result<(), MergeError> {
        match (&self.kind, &mut self.whole, self.bins.remove(&source)) {
            (Kind::Groups(grouping), Bin::Groups(whole), Some(Bin::Groups(groups))) => {
                whole.absorb(grouping, groups)
            }
            (Kind::Sorted { .. }, Bin::Rows(whole), Some(Bin::Rows(rows))) => {
                whole.extend(rows);
                self.kind.prune(whole)
            }
            _ => Ok(()),
        }
    }

    /// The range is gone: what it gave does not count.
    pub(super) fn discard(&mut self, source: usize) {
        self.bins.remove(&source);
    }

    /// The merged rows, once every range is closed.
    pub(super) fn finish(&mut self) -> Vec<Value> {
        match (&self.kind, std::mem::replace(&mut self.whole, self.kind.bin())) {
            (Kind::Groups(grouping), Bin::Groups(whole)) => whole.finish(grouping),
            (Kind::Sorted { directions, .. }, Bin::Rows(mut whole)) => {
                whole.sort_by(|a, b| compare_order(&a.keys, &b.keys, directions));
                whole.into_iter().filter_map(|row| row.output).collect()
            }
            (Kind::Groups(_), Bin::Rows(_)) | (Kind::Sorted { .. }, Bin::Groups(_)) => Vec::new(),
        }
    }
}

impl Kind {
    fn bin(&self) -> Bin {
        match self {
            Kind::Groups(_) => Bin::Groups(Groups::default()),
            Kind::Sorted { .. } => Bin::Rows(Vec::new()),
        }
    }

    /// Drops the rows that cannot be in the answer, now and then.
    fn prune(&self, held: &mut Vec<MergeRow>) -> Result<(), MergeError> {
        let Kind::Sorted { directions, enough } = self else { return Ok(()) };
        held.retain(|row| row.output.is_some());
        if let Some(enough) = *enough
            && held.len() / 2 >= enough
        {
            held.sort_by(|a, b| compare_order(&a.keys, &b.keys, directions));
            held.truncate(enough);
        }
        if held.len() > SORTED_ROWS_MAX {
            return Err(MergeError::TooLarge("more than 50,000 rows to sort"));
        }
        Ok(())
    }
}
