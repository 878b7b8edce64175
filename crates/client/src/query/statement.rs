//! A query as the caller writes it: statement, parameters, scope and limits.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use perihelion_driver::OperationOptions;
use perihelion_driver::options::Priority;
use perihelion_model::partition_key::PartitionKey;
use serde::Serialize;

use super::exchange::WantedMetrics;
use crate::response::{encode, encode_error};
use crate::{Error, FeedRange};

/// A query: a statement, its parameters, and how to run it.
///
/// ```
/// use perihelion_client::Query;
///
/// let query = Query::new("SELECT * FROM c WHERE c.total > @least ORDER BY c.total DESC")
///     .with_parameter("@least", 100)
///     .in_partition("ada")
///     .with_max_items(50);
/// ```
///
/// A text converts to a query over all partitions.
#[derive(Debug, Clone)]
pub struct Query {
    pub(super) text: Arc<str>,
    pub(super) parameters: Vec<Parameter>,
    pub(super) scope: QueryScope,
    pub(super) max_items: Option<u32>,
    pub(super) parallel_max: Option<usize>,
    /// Whether each partition runs the statement unchanged: see
    /// [`Query::without_plan`].
    pub(super) is_run_by_each_partition: bool,
    /// Whether the service plans the query: see [`Query::with_service_plan`].
    pub(super) is_planned_by_service: bool,
    pub(super) continuation: Option<String>,
    pub(super) total_timeout: Option<Duration>,
    pub(super) metrics: WantedMetrics,
    pub(super) operation: OperationOptions,
}

/// The part of the container that a query reads.
#[derive(Debug, Clone)]
pub(super) enum QueryScope {
    Everywhere,
    /// A whole partition key, or a prefix of a hierarchical key.
    Partition(PartitionKey),
    Range(FeedRange),
}

#[derive(Debug, Clone, Serialize)]
pub(super) struct Parameter {
    name: String,
    value: serde_json::Value,
}

/// The request body.
#[derive(Serialize)]
struct Body<'a> {
    query: &'a str,
    parameters: &'a [Parameter],
}

impl Query {
    /// A query over all partitions, without parameters.
    pub fn new(text: impl Into<Arc<str>>) -> Self {
        Query {
            text: text.into(),
            parameters: Vec::new(),
            scope: QueryScope::Everywhere,
            max_items: None,
            parallel_max: None,
            is_run_by_each_partition: false,
            is_planned_by_service: false,
            continuation: None,
            total_timeout: None,
            metrics: WantedMetrics::default(),
            operation: OperationOptions::default(),
        }
    }

    /// Sets a parameter; `name` includes the `@`.
    pub fn with_parameter(mut self, name: impl Into<String>, value: impl Into<serde_json::Value>) -> Self {
        self.parameters.push(Parameter { name: name.into(), value: value.into() });
        self
    }

    /// Sets a parameter to a value that is serialized to JSON.
    pub fn with_serialized<T: Serialize + ?Sized>(
        self,
        name: impl Into<String>,
        value: &T,
    ) -> Result<Self, Error> {
        let value = serde_json::to_value(value).map_err(|error| encode_error::<T>(&error))?;
        Ok(self.with_parameter(name, value))
    }

    /// Reads one logical partition. If `key` has only the first levels of a hierarchical
    /// key, reads all logical partitions whose keys begin with these levels.
    pub fn in_partition(mut self, key: impl Into<PartitionKey>) -> Self {
        self.scope = QueryScope::Partition(key.into());
        self
    }

    /// Reads one part of the container; see
    /// [`Container::feed_ranges`](crate::Container::feed_ranges).
    pub fn in_range(mut self, range: FeedRange) -> Self {
        self.scope = QueryScope::Range(range);
        self
    }

    /// Sets the most rows per page, at least 1. The default is 100 for a query that the
    /// client merges. For other queries the service decides.
    pub fn with_max_items(mut self, max_items: u32) -> Self {
        self.max_items = Some(max_items.max(1));
        self
    }

    /// Sets how many partitions the client queries at the same time, at least 1. The
    /// default is eight when the first row needs all partitions. Otherwise the default is
    /// one, so that no unnecessary page is fetched.
    ///
    /// With more than one, the client queries the partitions itself even if the service
    /// alone could answer the query. A query of one whole partition key is not affected.
    pub fn with_parallel_max(mut self, parallel_max: usize) -> Self {
        self.parallel_max = Some(parallel_max.max(1));
        self
    }

    /// Runs the statement unchanged on each physical partition, without a query
    /// plan and without the request for it. The rows of the partitions are
    /// concatenated; ORDER BY, TOP, OFFSET, DISTINCT and aggregates apply to each
    /// partition separately. If [`in_range`](Query::in_range) restricts the query to one
    /// physical partition, the result is exact. A query of one whole partition key is not
    /// affected.
    pub fn without_plan(mut self) -> Self {
        self.is_run_by_each_partition = true;
        self
    }

    /// Fetches the query plan from the service, with one request more. By default the client
    /// plans a query that it merges, and fetches the service's plan only when it cannot plan the
    /// statement, or when the service refuses the statement that the client has rewritten. Use this
    /// if the client and the service understand a statement in different ways.
    pub fn with_service_plan(mut self) -> Self {
        self.is_planned_by_service = true;
        self
    }

    /// Continues after the page that returned this
    /// [`Page::continuation`](crate::Page::continuation). Statement, parameters,
    /// scope and [`without_plan`](Query::without_plan) must be the same as in the query
    /// of that page.
    pub fn with_continuation(mut self, token: impl Into<String>) -> Self {
        self.continuation = Some(token.into());
        self
    }

    /// Sets the time for the whole query, from the request for the first page to the last
    /// page (default: no limit). When the time is up, the call for the next page fails with
    /// [`Error::is_timeout`]. The time in which the caller does not wait for a page counts,
    /// too. [`OperationOptions::timeout`] is the time for one request.
    pub fn with_total_timeout(mut self, timeout: Duration) -> Self {
        self.total_timeout = Some(timeout);
        self
    }

    /// Asks the service what it did for the query: times, documents that it loaded, and how
    /// well the index fits. [`Page::query_metrics`](crate::Page::query_metrics) has the answer.
    /// The service does more work for such a query.
    ///
    /// ```no_run
    /// # use perihelion_client::{Query, QueryMetrics};
    /// # async fn example(orders: perihelion_client::Container) -> Result<(), perihelion_client::Error> {
    /// let query = Query::new("SELECT * FROM c WHERE c.total > 100").with_query_metrics();
    /// let mut feed = orders.query::<serde_json::Value>(query);
    /// let mut metrics = QueryMetrics::default();
    /// while let Some(page) = feed.next_page().await? {
    ///     metrics += page.query_metrics().unwrap_or_default();
    /// }
    /// println!("{} of {} documents matched", metrics.output_documents, metrics.retrieved_documents);
    /// # Ok(())
    /// # }
    /// ```
    pub fn with_query_metrics(mut self) -> Self {
        self.metrics.query = true;
        self
    }

    /// Asks the service which indexes it used for the query, and which would have helped.
    /// [`Page::index_metrics`](crate::Page::index_metrics) has the answer. Use this while you
    /// develop a query, and not in production: it costs the service time.
    pub fn with_index_metrics(mut self) -> Self {
        self.metrics.index = true;
        self
    }

    /// Sets the priority of the query. Under load, the service throttles requests of low
    /// priority first.
    pub fn with_priority(mut self, priority: Priority) -> Self {
        self.operation.priority = Some(priority);
        self
    }

    /// Sets the throughput bucket of the query, 1 to 5.
    pub fn with_throughput_bucket(mut self, bucket: u8) -> Self {
        self.operation.throughput_bucket = Some(bucket);
        self
    }

    /// Sets the maximum age of an answer that the query may take from the cache of a dedicated
    /// gateway.
    pub fn with_dedicated_gateway_staleness_max(mut self, staleness: Duration) -> Self {
        self.operation.dedicated_gateway_staleness_max = Some(staleness);
        self
    }

    /// Sets whether the query bypasses the cache of a dedicated gateway.
    pub fn with_dedicated_gateway_bypass(mut self, is_bypassed: bool) -> Self {
        self.operation.dedicated_gateway_bypass = Some(is_bypassed);
        self
    }

    /// Adds a header of the caller's own. Headers that the client sets itself are refused.
    pub fn with_header(mut self, name: &str, value: &str) -> Result<Self, Error> {
        self.operation = self.operation.with_header(name, value)?;
        Ok(self)
    }

    /// Sets timeouts, regions, hedging and consistency of each request of the query. An option
    /// that `options` does not set keeps its value, for example that of
    /// [`with_priority`](Query::with_priority).
    pub fn with_operation(mut self, options: OperationOptions) -> Self {
        self.operation = options.or(self.operation);
        self
    }

    /// The statement.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The request body for a statement: the text of the query, or the rewritten
    /// statement of its plan.
    pub(super) fn body(&self, statement: &str) -> Result<Bytes, Error> {
        encode(&Body { query: statement, parameters: &self.parameters })
    }
}

impl From<&str> for Query {
    fn from(text: &str) -> Self {
        Query::new(text)
    }
}

impl From<String> for Query {
    fn from(text: String) -> Self {
        Query::new(text)
    }
}
