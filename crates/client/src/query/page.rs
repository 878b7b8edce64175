//! A page of a query result, with its cost.

use perihelion_driver::Response;
use perihelion_driver::diagnostics::Diagnostics;

/// Requests whose diagnostics a page keeps. A page seldom takes more than one
/// request per physical partition; further requests are only counted.
const DIAGNOSTICS_MAX: usize = 64;

/// A page of a query result. It has at least one row.
#[derive(Debug, Clone)]
pub struct Page<T> {
    /// The rows.
    pub items: Vec<T>,
    continuation: Option<String>,
    cost: PageCost,
}

impl<T> Page<T> {
    pub(super) fn new(items: Vec<T>, continuation: Option<String>, cost: PageCost) -> Self {
        Page { items, continuation, cost }
    }

    /// The continuation token for
    /// [`Query::with_continuation`](crate::Query::with_continuation). `None` on the
    /// last page, and for results that cannot be resumed: aggregates, groups, and
    /// DISTINCT without ORDER BY over several partitions.
    pub fn continuation(&self) -> Option<&str> {
        self.continuation.as_deref()
    }

    /// Request units of all requests since the previous page.
    pub fn charge(&self) -> f64 {
        self.cost.charge
    }

    /// Diagnostics of the requests since the previous page, 64 at most.
    pub fn diagnostics(&self) -> &[Diagnostics] {
        &self.cost.diagnostics
    }

    /// The number of requests since the previous page.
    pub fn requests(&self) -> usize {
        self.cost.requests
    }
}

impl<T> IntoIterator for Page<T> {
    type Item = T;
    type IntoIter = std::vec::IntoIter<T>;

    fn into_iter(self) -> Self::IntoIter {
        self.items.into_iter()
    }
}

/// The requests of a page and their total charge.
#[derive(Debug, Clone, Default)]
pub(super) struct PageCost {
    charge: f64,
    requests: usize,
    diagnostics: Vec<Diagnostics>,
}

impl PageCost {
    pub(super) fn add(&mut self, response: &Response) {
        self.charge += response.charge();
        self.requests += 1;
        if self.diagnostics.len() < DIAGNOSTICS_MAX {
            self.diagnostics.push(response.diagnostics.clone());
        }
    }
}
