//! The requests of a query: for a page, and for a query plan.

use bytes::Bytes;
use http::HeaderValue;
use perihelion_driver::operation::{Operation, Scope, Target, Verb};
use perihelion_driver::{OperationOptions, Response};
use perihelion_wire::headers;

use crate::Error;
use crate::handle::ContainerHandle;

/// The query features that the client's merge supports. The service refuses to plan a
/// query that needs another feature.
pub(super) const SUPPORTED_FEATURES: &str = "Aggregate,CompositeAggregate,CountIf,DCount,Distinct,GroupBy,HybridSearch,ListAndSetAggregate,\
     MultipleAggregates,MultipleOrderBy,NonStreamingOrderBy,NonValueAggregate,OffsetAndLimit,OrderBy,Top,\
     WeightedRankFusion";

/// The version of query plans that the client requests.
const QUERY_VERSION: HeaderValue = HeaderValue::from_static("1.4");

/// The request for one page.
#[derive(Debug, Clone)]
pub(super) struct PageRequest {
    pub(super) scope: Scope,
    pub(super) body: Bytes,
    pub(super) continuation: Option<String>,
    /// The most rows in the page. With `None` the service decides.
    pub(super) rows_max: Option<u32>,
    pub(super) metrics: WantedMetrics,
}

/// The metrics that a query asks the service for.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct WantedMetrics {
    pub(super) query: bool,
    pub(super) index: bool,
}

const TRUE: HeaderValue = HeaderValue::from_static("True");

pub(super) async fn fetch_page(
    container: &ContainerHandle,
    request: PageRequest,
    options: &OperationOptions,
) -> Result<Response, Error> {
    let target = Target::items(container.driver_container());
    let mut operation = Operation::new(Verb::Query, target, request.scope, request.body);
    if let Some(token) = request.continuation {
        operation = operation.with_header(headers::CONTINUATION, continuation_header(token)?);
    }
    if let Some(rows_max) = request.rows_max {
        operation = operation.with_header(headers::MAX_ITEM_COUNT, rows_max.into());
    }
    if request.metrics.query {
        operation = operation.with_header(headers::POPULATE_QUERY_METRICS, TRUE);
    }
    if request.metrics.index {
        operation = operation.with_header(headers::POPULATE_INDEX_METRICS, TRUE);
    }
    container.execute(&operation, options).await
}

pub(super) async fn fetch_plan(
    container: &ContainerHandle,
    body: Bytes,
    options: &OperationOptions,
) -> Result<Response, Error> {
    let target = Target::items(container.driver_container());
    let operation = Operation::new(Verb::QueryPlan, target, Scope::Everywhere, body)
        .with_header(headers::SUPPORTED_QUERY_FEATURES, HeaderValue::from_static(SUPPORTED_FEATURES))
        .with_header(headers::QUERY_VERSION, QUERY_VERSION);
    container.execute(&operation, options).await
}

/// The header for a continuation token. A token that cannot be a header is refused,
/// because without the header the service would start the query again.
fn continuation_header(token: String) -> Result<HeaderValue, Error> {
    let header = HeaderValue::try_from(token).ok().filter(|header| header.to_str().is_ok());
    header.ok_or_else(|| Error::input("the continuation token is not printable ASCII"))
}
