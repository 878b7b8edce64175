//! Decides how a query is run: by the service alone, or on each partition with a
//! merge by the client.
//!
//! The service alone answers a query of one whole partition key, even if only the filter names the
//! key. The service alone also answers a query over the whole container that needs no merging,
//! unless the container has very many ranges or the caller asks for parallel requests or for no
//! plan. The client merges all other queries, and every query of a range or of a key prefix.
//!
//! The parser of `perihelion-query` tells whether a query needs merging, and finds a
//! filter that allows only one partition key. A statement over the whole container
//! that the parser does not understand is sent to the service unchanged. When the
//! service refuses the statement because it needs a plan, the plan is taken from the
//! refusal, or fetched. For a range or a key prefix the plan of a statement that the
//! parser does not understand is fetched first.

use std::sync::Arc;

use perihelion_driver::ContainerMetadata;
use perihelion_driver::operation::{KeyScope, Scope};
use perihelion_driver::status;
use perihelion_model::json::{self, Value};
use perihelion_model::partition_key::PartitionKey;
use perihelion_query::merge::{HybridSearch, MergeError, MergePlan};
use perihelion_query::{GatewayVerdict, Now, Parameters, PartitionKeyFilter, compile, parse, partition_keys};
use serde::Deserialize;

use super::Execution;
use super::direct::Direct;
use super::exchange;
use super::hybrid::Hybrid;
use super::merged::{Merged, client_error};
use super::statement::{Query, QueryScope};
use crate::handle::ContainerHandle;
use crate::{Error, FeedRange};

/// The most ranges of a container that the service queries alone. Its one request has the
/// session token of all ranges, which is at most 12 KB long: 48 bytes for each range.
const DIRECT_RANGES_MAX: usize = 256;

/// The beginning of the continuation tokens of a merge. The service's tokens never
/// begin with it.
const MERGE_TOKEN_PREFIX: &str = "{\"perihelion\":";

/// Decides how to run a query before its feed requests the first page. A query with a
/// continuation token is run in the way that produced the token.
pub(super) async fn decide(container: &ContainerHandle, query: &Query) -> Result<Execution, Error> {
    let metadata = container.metadata().await?;
    let parsed = ParsedQuery::of(query);
    let range = match &query.scope {
        QueryScope::Range(range) => range.clone(),
        QueryScope::Partition(key) if metadata.partition_key.is_prefix(key) => {
            FeedRange::of(&metadata.partition_key.effective_range(key))
        }
        QueryScope::Partition(key) => return direct_execution(query, Scope::Key(KeyScope::new(key.clone()))),
        QueryScope::Everywhere => match parsed.as_ref().and_then(|parsed| parsed.only_key(&metadata)) {
            Some(key) => return direct_execution(query, Scope::Key(KeyScope::new(key))),
            None if query.is_unplanned || is_merged(query, parsed.as_ref()) => FeedRange::whole(),
            None if query.continuation.is_none()
                && parsed.is_some()
                && metadata.ranges.iter().count() > DIRECT_RANGES_MAX =>
            {
                FeedRange::whole()
            }
            None => return direct_execution(query, Scope::Everywhere),
        },
    };
    let plan = match parsed.map(|parsed| parsed.verdict) {
        _ if query.is_unplanned => Plan::Merge(MergePlan::concatenation()),
        Some(GatewayVerdict::Served) => Plan::Merge(MergePlan::concatenation()),
        Some(GatewayVerdict::NeedsPlan | GatewayVerdict::AggregateNotValue) | None => {
            fetch_plan(container, query).await?
        }
    };
    planned_execution(query, plan, range, &metadata)
}

/// Whether the client merges a query over the whole container. `parsed` is `None`
/// when the parser does not understand the statement. Such a query is merged only if
/// its continuation token comes from a merge.
fn is_merged(query: &Query, parsed: Option<&ParsedQuery>) -> bool {
    match (parsed.map(|parsed| parsed.verdict), query.continuation.as_deref()) {
        (Some(GatewayVerdict::NeedsPlan | GatewayVerdict::AggregateNotValue), _) => true,
        (_, Some(token)) => token.starts_with(MERGE_TOKEN_PREFIX),
        (Some(GatewayVerdict::Served), None) => {
            query.parallel_max.is_some_and(|parallel_max| parallel_max > 1)
        }
        (None, None) => false,
    }
}

/// Decides how to run a query whose first page the service refused. When the refusal
/// says that the query needs a plan, which happens only to queries over the whole
/// container, the client merges the results. Other errors are returned unchanged.
pub(super) async fn decide_after_refusal(
    container: &ContainerHandle,
    query: &Query,
    error: Error,
) -> Result<Execution, Error> {
    if error.status() != Some(status::CROSS_PARTITION_QUERY_NOT_SERVABLE) {
        return Err(error);
    }
    let metadata = container.metadata().await?;
    let plan = match plan_in_refusal(&error) {
        Some(plan) => plan?,
        None => fetch_plan(container, query).await?,
    };
    planned_execution(query, plan, FeedRange::whole(), &metadata)
}

fn direct_execution(query: &Query, scope: Scope) -> Result<Execution, Error> {
    Direct::new(query, scope).map(Execution::Direct)
}

/// What the client does with the rows of the partitions.
enum Plan {
    Merge(MergePlan),
    Fuse(HybridSearch),
}

impl Plan {
    fn parse(text: &str) -> Result<Self, MergeError> {
        let body = json::parse_str(text).map_err(|_| MergeError::InvalidPlan("it is not valid JSON"))?;
        match HybridSearch::from_json(&body)? {
            Some(search) => Ok(Plan::Fuse(search)),
            None => MergePlan::from_json(&body).map(Plan::Merge),
        }
    }
}

fn planned_execution(
    query: &Query,
    plan: Plan,
    range: FeedRange,
    metadata: &Arc<ContainerMetadata>,
) -> Result<Execution, Error> {
    Ok(match plan {
        Plan::Merge(plan) => Execution::Merged(Box::new(Merged::new(query, plan, range.ends(), metadata)?)),
        Plan::Fuse(search) => {
            Execution::Hybrid(Box::new(Hybrid::new(query, search, range, metadata.clone())?))
        }
    })
}

/// The service's plan, as it is written.
pub(crate) async fn read_plan(
    container: &ContainerHandle,
    query: &Query,
) -> Result<serde_json::Value, Error> {
    let response = exchange::fetch_plan(container, query.body(&query.text)?, &query.operation).await?;
    crate::response::decode(&response.body, &"the query plan")
}

async fn fetch_plan(container: &ContainerHandle, query: &Query) -> Result<Plan, Error> {
    let response = exchange::fetch_plan(container, query.body(&query.text)?, &query.operation).await?;
    let text =
        std::str::from_utf8(&response.body).map_err(|_| Error::answer("the query plan is not UTF-8 text"))?;
    Plan::parse(text).map_err(|error| client_error(error).with_diagnostics(response.diagnostics))
}

/// The plan in a refusal: `None` when the refusal contains no plan, an error when the
/// plan cannot be read.
fn plan_in_refusal(error: &Error) -> Option<Result<Plan, Error>> {
    let body = json::parse(error.body()).ok()?;
    let text = body.get("additionalErrorInfo")?.as_str()?;
    Some(Plan::parse(text).map_err(client_error))
}

/// A statement that `perihelion-query` has parsed and compiled, with its parameters.
struct ParsedQuery {
    query: perihelion_query::Query,
    parameters: Parameters,
    /// Whether the service alone answers the query over the whole container.
    verdict: GatewayVerdict,
}

impl ParsedQuery {
    /// `None` when the statement cannot be parsed or compiled, or the parameters cannot
    /// be read.
    fn of(query: &Query) -> Option<Self> {
        let parsed = parse(&query.text).ok()?;
        let list = Value::deserialize(serde_json::to_value(&query.parameters).ok()?).ok()?;
        let parameters = Parameters::from_json(list).ok()?;
        // The verdict does not depend on the time.
        let program = compile(&parsed, &parameters, Now::from_unix_ticks(0)).ok()?;
        Some(ParsedQuery { query: parsed, parameters, verdict: program.gateway_verdict() })
    }

    /// The whole partition key of all results, when the filter allows only one.
    fn only_key(&self, metadata: &ContainerMetadata) -> Option<PartitionKey> {
        let paths: Vec<&str> = metadata.partition_key.paths.iter().map(|path| path.text.as_str()).collect();
        match partition_keys(&self.query, &self.parameters, &paths).ok()? {
            PartitionKeyFilter::Keys(mut keys) if keys.len() == 1 => {
                PartitionKey::from_json(&Value::Array(keys.pop()?))
            }
            PartitionKeyFilter::Keys(_) | PartitionKeyFilter::All | PartitionKeyFilter::Nothing => None,
        }
    }
}
