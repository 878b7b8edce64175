//! Decides how a query is run: by the service alone, or on each partition with a
//! merge here.
//!
//! The service alone answers queries of one partition key, and cross-partition
//! queries that need no merging. Our parser recognizes these, and it recognizes a
//! filter that leaves one partition key. A statement that it does not understand
//! is sent as it is; when the service refuses it because it needs a plan, the
//! refusal contains the plan.

use perihelion_driver::ContainerMetadata;
use perihelion_driver::operation::{KeyScope, Scope};
use perihelion_driver::status;
use perihelion_model::json::{self, Value};
use perihelion_model::partition_key::PartitionKey;
use perihelion_query::merge::MergePlan;
use perihelion_query::{GatewayVerdict, Now, Parameters, PartitionKeyFilter, compile, parse, partition_keys};
use serde::Deserialize;

use super::Execution;
use super::direct::Direct;
use super::exchange;
use super::merged::{Merged, refusal};
use super::statement::{Query, QueryScope};
use crate::handle::ContainerHandle;
use crate::{Error, FeedRange};

/// The beginning of our continuation tokens; the service's never begin with it.
const MERGE_TOKEN: &str = "{\"perihelion\":";

/// Decides how to run a query that has not started. The decision depends on the
/// query alone, so a continuation token fits the query it came from.
pub(super) async fn route(container: &ContainerHandle, query: &Query) -> Result<Execution, Error> {
    let metadata = container.metadata().await?;
    let parsed = ParsedQuery::of(query);
    let range = match &query.scope {
        QueryScope::Range(range) => range.clone(),
        QueryScope::Partition(key) if metadata.partition_key.is_prefix(key) => {
            FeedRange::of(&metadata.partition_key.effective_range(key))
        }
        QueryScope::Partition(key) => return direct(query, Scope::Key(KeyScope::new(key.clone()))),
        QueryScope::Everywhere => match parsed.as_ref().and_then(|parsed| parsed.only_key(&metadata)) {
            Some(key) => return direct(query, Scope::Key(KeyScope::new(key))),
            None if query.is_unplanned || is_merged(query, parsed.as_ref()) => FeedRange::whole(),
            None => return direct(query, Scope::Everywhere),
        },
    };
    let plan = match parsed.map(|parsed| parsed.verdict) {
        _ if query.is_unplanned => MergePlan::concatenation(),
        Some(GatewayVerdict::Served) => MergePlan::concatenation(),
        Some(GatewayVerdict::NeedsPlan | GatewayVerdict::AggregateNotValue) | None => {
            fetch_plan(container, query).await?
        }
    };
    merged(query, plan, &range, &metadata)
}

/// Whether a query over all partitions is merged here.
fn is_merged(query: &Query, parsed: Option<&ParsedQuery>) -> bool {
    match (parsed.map(|parsed| parsed.verdict), query.continuation.as_deref()) {
        (Some(GatewayVerdict::NeedsPlan | GatewayVerdict::AggregateNotValue), _) => true,
        (_, Some(token)) => token.starts_with(MERGE_TOKEN),
        (Some(GatewayVerdict::Served), None) => {
            query.parallel_max.is_some_and(|parallel_max| parallel_max > 1)
        }
        (None, None) => false,
    }
}

/// How to run a query that the service refused to answer alone: merged, when the
/// refusal says that the query needs a plan.
pub(super) async fn reroute(
    container: &ContainerHandle,
    query: &Query,
    error: Error,
) -> Result<Execution, Error> {
    if error.status() != Some(status::CROSS_PARTITION_QUERY_NOT_SERVABLE) {
        return Err(error);
    }
    let metadata = container.metadata().await?;
    let plan = match plan_in(&error) {
        Some(plan) => plan?,
        None => fetch_plan(container, query).await?,
    };
    merged(query, plan, &FeedRange::whole(), &metadata)
}

fn direct(query: &Query, scope: Scope) -> Result<Execution, Error> {
    Direct::new(query, scope).map(Execution::Direct)
}

fn merged(
    query: &Query,
    plan: MergePlan,
    range: &FeedRange,
    metadata: &ContainerMetadata,
) -> Result<Execution, Error> {
    Ok(Execution::Merged(Box::new(Merged::new(query, plan, range.ends(), metadata)?)))
}

async fn fetch_plan(container: &ContainerHandle, query: &Query) -> Result<MergePlan, Error> {
    let response = exchange::plan(container, query.body(&query.text)?, &query.operation).await?;
    let text =
        std::str::from_utf8(&response.body).map_err(|_| Error::answer("the query plan is not UTF-8 text"))?;
    MergePlan::parse(text).map_err(|error| refusal(error).with_diagnostics(response.diagnostics))
}

/// The plan in a refusal, if it contains one.
fn plan_in(error: &Error) -> Option<Result<MergePlan, Error>> {
    let body = json::parse(error.body()).ok()?;
    let text = body.get("additionalErrorInfo")?.as_str()?;
    Some(MergePlan::parse(text).map_err(refusal))
}

/// A statement that our parser understands.
struct ParsedQuery {
    query: perihelion_query::Query,
    parameters: Parameters,
    /// Whether the service answers the query alone.
    verdict: GatewayVerdict,
}

impl ParsedQuery {
    /// `None` when our parser does not understand the statement.
    fn of(query: &Query) -> Option<Self> {
        let parsed = parse(&query.text).ok()?;
        let list = Value::deserialize(serde_json::to_value(&query.parameters).ok()?).ok()?;
        let parameters = Parameters::from_json(list).ok()?;
        // The verdict does not depend on the time.
        let program = compile(&parsed, &parameters, Now::from_unix_ticks(0)).ok()?;
        Some(ParsedQuery { query: parsed, parameters, verdict: program.gateway_verdict() })
    }

    /// The partition key of all results, when the filter leaves only one.
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
