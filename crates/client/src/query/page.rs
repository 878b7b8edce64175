//! A page of a query result, with its cost.

use http::HeaderMap;
use perihelion_driver::Response;
use perihelion_driver::diagnostics::Diagnostics;

use super::metrics::{IndexMetrics, QueryMetrics};
use crate::Error;

/// The most responses whose diagnostics and headers a page keeps. A page seldom takes more
/// than one request per physical partition. For further responses the page keeps only their
/// number, charge and metrics.
const DIAGNOSTICS_MAX: usize = 64;

/// A page of a query result. It has at least one row, except the page of
/// [`QueryFeed::rest`](crate::QueryFeed::rest).
#[derive(Debug, Clone)]
pub struct Page<T> {
    /// The rows.
    pub items: Vec<T>,
    continuation: Continuation,
    cost: PageCost,
}

/// How a query continues after a page.
#[derive(Debug, Clone)]
pub(super) enum Continuation {
    Token(String),
    /// The result ends with this page.
    End,
    /// There may be more rows, but a result of this kind has no token here.
    Unavailable,
    /// A merge cannot be continued here, because its token would have this many bytes.
    TooLong(usize),
}

impl From<Option<String>> for Continuation {
    fn from(token: Option<String>) -> Self {
        token.map_or(Continuation::End, Continuation::Token)
    }
}

impl<T> Page<T> {
    pub(super) fn new(items: Vec<T>, continuation: Continuation, cost: PageCost) -> Self {
        Page { items, continuation, cost }
    }

    /// The continuation token for
    /// [`Query::with_continuation`](crate::Query::with_continuation):
    ///
    /// - `Some` if the query can be continued after this page. When only pages without rows follow,
    ///   the last page has a token too.
    /// - `None` at the end of the result. [`Page::is_last`] is true then.
    /// - `None` also where rows may follow, but the client cannot continue the result with a token:
    ///   aggregates, groups, DISTINCT unless it is sorted by the distinct value, sorts that the
    ///   partitions do not perform, and rows without `_rid`. `Page::is_last` is false then. Read on
    ///   with this feed.
    /// - An error if the token of a query that the client merges would have more than 256 KiB, because
    ///   of long values of ORDER BY or very many partitions. The feed itself can go on, and a later
    ///   page may have a token.
    ///
    /// A token is valid for the statement, the feed range and the container that it was made for. If
    /// the container was deleted and created again, the token of a merged query is refused.
    pub fn continuation(&self) -> Result<Option<&str>, Error> {
        match &self.continuation {
            Continuation::Token(token) => Ok(Some(token)),
            Continuation::End | Continuation::Unavailable => Ok(None),
            Continuation::TooLong(bytes) => Err(Error::input(format!(
                "the query has no continuation token after this page: the token would have {bytes} bytes, and \
                 262144 are allowed. Sort by shorter values, query single feed ranges, or read on with this feed"
            ))),
        }
    }

    /// Whether the result ends with this page. [`Page::continuation`] is `None` also for a result that
    /// goes on and has no token. If `is_last` is false, a further page may follow, or the feed may end
    /// without one: the service does not always know whether a row is left.
    pub fn is_last(&self) -> bool {
        matches!(self.continuation, Continuation::End)
    }

    /// Request units of the responses that were received since the previous page. They
    /// include responses without rows and responses for later pages. They do not include
    /// failed requests, the request for a query plan, and responses to a statement that was
    /// given up because the service refused it in another partition.
    pub fn charge(&self) -> f64 {
        self.cost.charge
    }

    /// Diagnostics of the requests in [`Page::charge`], 64 at most.
    pub fn diagnostics(&self) -> &[Diagnostics] {
        &self.cost.diagnostics
    }

    /// All headers of the responses in [`Page::charge`], 64 at most, in the order of
    /// [`Page::diagnostics`].
    pub fn headers(&self) -> &[HeaderMap] {
        &self.cost.headers
    }

    /// The number of requests in [`Page::charge`].
    pub fn requests(&self) -> usize {
        self.cost.requests
    }

    /// The work of the service for this page, summed over its responses; `None` unless the query
    /// asks for it by [`with_query_metrics`](crate::Query::with_query_metrics).
    pub fn query_metrics(&self) -> Option<QueryMetrics> {
        self.cost.query_metrics.as_deref().copied()
    }

    /// The indexes that the service used for this page, and those that would have helped;
    /// `None` unless the query asks for them by
    /// [`with_index_metrics`](crate::Query::with_index_metrics), and the service sends them.
    pub fn index_metrics(&self) -> Option<&IndexMetrics> {
        self.cost.index_metrics.as_deref()
    }
}

impl<T> IntoIterator for Page<T> {
    type Item = T;
    type IntoIter = std::vec::IntoIter<T>;

    fn into_iter(self) -> Self::IntoIter {
        self.items.into_iter()
    }
}

/// The responses that a page needed: their number, their total charge and metrics, and the
/// diagnostics and headers of the first [`DIAGNOSTICS_MAX`].
#[derive(Debug, Clone, Default)]
pub(super) struct PageCost {
    charge: f64,
    requests: usize,
    diagnostics: Vec<Diagnostics>,
    headers: Vec<HeaderMap>,
    query_metrics: Option<Box<QueryMetrics>>,
    index_metrics: Option<Box<IndexMetrics>>,
}

impl PageCost {
    /// The cost as a page without rows; `None` if there was no response.
    pub(super) fn into_page<T>(self) -> Option<Page<T>> {
        (self.requests > 0).then(|| Page::new(Vec::new(), Continuation::End, self))
    }

    /// Adds the responses of another page.
    pub(super) fn merge(&mut self, other: PageCost) {
        self.charge += other.charge;
        self.requests += other.requests;
        if let Some(metrics) = other.query_metrics {
            **self.query_metrics.get_or_insert_default() += *metrics;
        }
        if let Some(metrics) = other.index_metrics {
            self.index_metrics.get_or_insert_default().merge(*metrics);
        }
        let room = DIAGNOSTICS_MAX.saturating_sub(self.diagnostics.len());
        self.diagnostics.extend(other.diagnostics.into_iter().take(room));
        self.headers.extend(other.headers.into_iter().take(room));
    }

    /// Adds a response whose body was read.
    pub(super) fn add(&mut self, response: Response) {
        self.charge += response.charge();
        self.requests += 1;
        if let Some(metrics) = QueryMetrics::of(&response.headers) {
            **self.query_metrics.get_or_insert_default() += metrics;
        }
        if let Some(metrics) = IndexMetrics::of(&response.headers) {
            self.index_metrics.get_or_insert_default().merge(metrics);
        }
        if self.diagnostics.len() < DIAGNOSTICS_MAX {
            self.diagnostics.push(response.diagnostics);
            self.headers.push(response.headers);
        }
    }
}
