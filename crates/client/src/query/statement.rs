//! A query as the caller writes it: statement, parameters, where, how much.

use std::sync::Arc;

use bytes::Bytes;
use perihelion_driver::OperationOptions;
use perihelion_model::partition_key::PartitionKey;
use serde::Serialize;

use crate::answer::{encode, unwritable};
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
/// A text alone is a query too, over all partitions.
#[derive(Debug, Clone)]
pub struct Query {
    pub(super) text: Arc<str>,
    pub(super) parameters: Vec<Parameter>,
    pub(super) scope: QueryScope,
    pub(super) max_items: Option<u32>,
    pub(super) parallel_max: Option<usize>,
    pub(super) is_unplanned: bool,
    pub(super) continuation: Option<String>,
    pub(super) operation: OperationOptions,
}

/// Where a query looks.
#[derive(Debug, Clone)]
pub(super) enum QueryScope {
    Everywhere,
    Partition(PartitionKey),
    Range(FeedRange),
}

#[derive(Debug, Clone, Serialize)]
pub(super) struct Parameter {
    name: String,
    value: serde_json::Value,
}

/// What is posted.
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
            is_unplanned: false,
            continuation: None,
            operation: OperationOptions::default(),
        }
    }

    /// Gives `@name` a value; the sign is part of the name.
    pub fn with_parameter(mut self, name: impl Into<String>, value: impl Into<serde_json::Value>) -> Self {
        self.parameters.push(Parameter { name: name.into(), value: value.into() });
        self
    }

    /// Gives `@name` anything that can be written as JSON.
    pub fn with_serialized<T: Serialize + ?Sized>(
        self,
        name: impl Into<String>,
        value: &T,
    ) -> Result<Self, Error> {
        let value = serde_json::to_value(value).map_err(|error| unwritable::<T>(&error))?;
        Ok(self.with_parameter(name, value))
    }

    /// Looks in one partition only, or, with the first levels of a hierarchical
    /// key, in those that begin with them.
    pub fn in_partition(mut self, key: impl Into<PartitionKey>) -> Self {
        self.scope = QueryScope::Partition(key.into());
        self
    }

    /// Looks in one part of the container only; see
    /// [`Container::feed_ranges`](crate::Container::feed_ranges).
    pub fn in_range(mut self, range: FeedRange) -> Self {
        self.scope = QueryScope::Range(range);
        self
    }

    /// At most this many rows in a page. Without it the service decides where
    /// it can, and a page has up to 100 rows elsewhere.
    pub fn with_max_items(mut self, max_items: u32) -> Self {
        self.max_items = Some(max_items.max(1));
        self
    }

    /// How many partitions may be asked at the same time. Without it: one where
    /// answers follow one another, so that nothing is fetched in vain, and
    /// eight where all of them are needed for the first row.
    pub fn with_parallel_max(mut self, parallel_max: usize) -> Self {
        self.parallel_max = Some(parallel_max.max(1));
        self
    }

    /// Asks each physical partition the statement as it is, without a plan and
    /// without the request that it takes: answers follow one another, and order,
    /// TOP, DISTINCT and aggregates hold within each partition only. For
    /// [`in_range`](Query::in_range) with the range of one partition that is the
    /// whole answer.
    pub fn without_plan(mut self) -> Self {
        self.is_unplanned = true;
        self
    }

    /// Goes on where [`Page::continuation`](crate::Page::continuation) points.
    /// Statement, parameters and place must be those of that page's query.
    pub fn with_continuation(mut self, token: impl Into<String>) -> Self {
        self.continuation = Some(token.into());
        self
    }

    /// Timeouts, regions, hedging, consistency; for each request of the query.
    pub fn with_operation(mut self, options: OperationOptions) -> Self {
        self.operation = options;
        self
    }

    /// The statement.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The body that asks `statement`, which is the text or a plan's.
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
