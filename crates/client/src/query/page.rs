//! One page of an answer, and what it took.

use perihelion_driver::Response;
use perihelion_driver::diagnostics::Diagnostics;

/// Requests whose diagnostics a page keeps. One page seldom takes more than
/// one request per physical partition; what is beyond is only counted.
const DIAGNOSTICS_MAX: usize = 64;

/// Some rows of an answer; never none.
#[derive(Debug, Clone)]
pub struct Page<T> {
    /// The rows.
    pub items: Vec<T>,
    continuation: Option<String>,
    bill: Bill,
}

impl<T> Page<T> {
    pub(super) fn new(items: Vec<T>, continuation: Option<String>, bill: Bill) -> Self {
        Page { items, continuation, bill }
    }

    /// Where the next page begins, for
    /// [`Query::with_continuation`](crate::Query::with_continuation); `None` on the
    /// last page, and for answers that cannot be interrupted: aggregates, groups
    /// and DISTINCT without an order over several partitions.
    pub fn continuation(&self) -> Option<&str> {
        self.continuation.as_deref()
    }

    /// Request units of all requests since the page before.
    pub fn charge(&self) -> f64 {
        self.bill.charge
    }

    /// The requests since the page before, as far as they are kept.
    pub fn diagnostics(&self) -> &[Diagnostics] {
        &self.bill.diagnostics
    }

    /// How many requests were made since the page before.
    pub fn requests(&self) -> usize {
        self.bill.requests
    }
}

impl<T> IntoIterator for Page<T> {
    type Item = T;
    type IntoIter = std::vec::IntoIter<T>;

    fn into_iter(self) -> Self::IntoIter {
        self.items.into_iter()
    }
}

/// What the requests of a page cost together.
#[derive(Debug, Clone, Default)]
pub(super) struct Bill {
    charge: f64,
    requests: usize,
    diagnostics: Vec<Diagnostics>,
}

impl Bill {
    pub(super) fn add(&mut self, response: &Response) {
        self.charge += response.charge();
        self.requests += 1;
        if self.diagnostics.len() < DIAGNOSTICS_MAX {
            self.diagnostics.push(response.diagnostics.clone());
        }
    }
}
