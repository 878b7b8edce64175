//! A page of a query result, with its cost.

use perihelion_driver::Response;
use perihelion_driver::diagnostics::Diagnostics;

/// The most diagnostics that a page keeps. A page seldom takes more than one request
/// per physical partition. Of further requests the page has the number and the charge,
/// but no diagnostics.
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
    /// [`Query::with_continuation`](crate::Query::with_continuation). `None` at the end
    /// of the result. Also `None` for results that the client merges and cannot resume:
    /// aggregates, groups, and DISTINCT unless it is sorted by the distinct value. When
    /// only pages without rows follow, the last page has a token too.
    pub fn continuation(&self) -> Option<&str> {
        self.continuation.as_deref()
    }

    /// Request units of the responses that were received since the previous page. They
    /// include responses without rows and responses for later pages. They do not include
    /// failed requests and the request for a query plan.
    pub fn charge(&self) -> f64 {
        self.cost.charge
    }

    /// Diagnostics of the requests in [`Page::charge`], 64 at most.
    pub fn diagnostics(&self) -> &[Diagnostics] {
        &self.cost.diagnostics
    }

    /// The number of requests in [`Page::charge`].
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

/// The responses that a page needed: their number, their total charge, and the
/// diagnostics of the first [`DIAGNOSTICS_MAX`].
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
