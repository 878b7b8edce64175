//! How a query is run: passed through, or asked of each partition and merged.
//!
//! The service answers alone what concerns one partition key, and across
//! partitions what needs no merging. Our own parser knows which is which and
//! saves the attempt, and sees when a filter leaves but one partition key. What
//! it does not understand is sent as it is, and if the service then asks for a
//! plan (400/1004), its refusal has one.

use perihelion_driver::ContainerMetadata;
use perihelion_driver::operation::{KeyScope, Scope};
use perihelion_driver::status;
use perihelion_model::json::{self, Value};
use perihelion_model::partition_key::PartitionKey;
use perihelion_query::merge::MergePlan;
use perihelion_query::{GatewayVerdict, Now, Parameters, PartitionKeyFilter, compile, parse, partition_keys};
use serde::Deserialize;

use super::Stage;
use super::direct::Direct;
use super::exchange;
use super::merged::{Merged, refusal};
use super::statement::{Query, QueryScope};
use crate::container::Container;
use crate::{Error, FeedRange};

/// What our tokens begin with; the service's never do.
const MERGE_TOKEN: &str = "{\"perihelion\":";

/// Decides how to run a query that was not begun. The same query is decided in
/// the same way again, which is what makes its tokens fit.
pub(super) async fn route(container: &Container, query: &Query) -> Result<Stage, Error> {
    let metadata = container.driver().metadata(container.inner()).await?;
    let reading = Reading::of(query);
    let range = match &query.scope {
        QueryScope::Range(range) => range.clone(),
        QueryScope::Partition(key) if metadata.partition_key.is_prefix(key) => {
            FeedRange::of(&metadata.partition_key.effective_range(key))
        }
        QueryScope::Partition(key) => return direct(query, Scope::Key(KeyScope::new(key.clone()))),
        QueryScope::Everywhere => match reading.as_ref().and_then(|reading| reading.only_key(&metadata)) {
            Some(key) => return direct(query, Scope::Key(KeyScope::new(key))),
            None if query.is_unplanned || is_merged(query, reading.as_ref()) => FeedRange::whole(),
            None => return direct(query, Scope::Everywhere),
        },
    };
    let plan = match reading.map(|reading| reading.verdict) {
        _ if query.is_unplanned => MergePlan::concatenation(),
        Some(GatewayVerdict::Served) => MergePlan::concatenation(),
        Some(GatewayVerdict::NeedsPlan | GatewayVerdict::AggregateNotValue) | None => {
            fetch_plan(container, query).await?
        }
    };
    merged(query, plan, &range, &metadata)
}

/// Whether a query over all partitions is ours to merge.
fn is_merged(query: &Query, reading: Option<&Reading>) -> bool {
    match (reading.map(|reading| reading.verdict), query.continuation.as_deref()) {
        (Some(GatewayVerdict::NeedsPlan | GatewayVerdict::AggregateNotValue), _) => true,
        (_, Some(token)) => token.starts_with(MERGE_TOKEN),
        (Some(GatewayVerdict::Served), None) => {
            query.parallel_max.is_some_and(|parallel_max| parallel_max > 1)
        }
        (None, None) => false,
    }
}

/// What becomes of a query that the service refused to pass through: a plan,
/// if that is what it asks for.
pub(super) async fn reroute(container: &Container, query: &Query, error: Error) -> Result<Stage, Error> {
    if error.status() != Some(status::CROSS_PARTITION_QUERY_NOT_SERVABLE) {
        return Err(error);
    }
    let metadata = container.driver().metadata(container.inner()).await?;
    let plan = match plan_in(&error) {
        Some(plan) => plan?,
        None => fetch_plan(container, query).await?,
    };
    merged(query, plan, &FeedRange::whole(), &metadata)
}

fn direct(query: &Query, scope: Scope) -> Result<Stage, Error> {
    Direct::new(query, scope).map(Stage::Direct)
}

fn merged(
    query: &Query,
    plan: MergePlan,
    range: &FeedRange,
    metadata: &ContainerMetadata,
) -> Result<Stage, Error> {
    Ok(Stage::Merged(Box::new(Merged::new(query, plan, range.ends(), metadata)?)))
}

async fn fetch_plan(container: &Container, query: &Query) -> Result<MergePlan, Error> {
    let response = exchange::plan(container, query.body(&query.text)?, &query.operation).await?;
    let text = std::str::from_utf8(&response.body).map_err(|_| Error::answer("the query plan is no text"))?;
    MergePlan::parse(text).map_err(|error| refusal(error).with_diagnostics(response.diagnostics))
}

/// The plan in a refusal, where it has one.
fn plan_in(error: &Error) -> Option<Result<MergePlan, Error>> {
    let body = json::parse(error.body()).ok()?;
    let text = body.get("additionalErrorInfo")?.as_str()?;
    Some(MergePlan::parse(text).map_err(refusal))
}

/// A statement that our own parser understands.
struct Reading {
    query: perihelion_query::Query,
    parameters: Parameters,
    /// What the gateway will say.
    verdict: GatewayVerdict,
}

impl Reading {
    /// `None` when the service has to have its say.
    fn of(query: &Query) -> Option<Self> {
        let parsed = parse(&query.text).ok()?;
        let list = Value::deserialize(serde_json::to_value(&query.parameters).ok()?).ok()?;
        let parameters = Parameters::from_json(list).ok()?;
        // The time decides nothing about the verdict.
        let program = compile(&parsed, &parameters, Now::from_unix_ticks(0)).ok()?;
        Some(Reading { query: parsed, parameters, verdict: program.gateway_verdict() })
    }

    /// The one partition key that can hold a result, if there is but one.
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
