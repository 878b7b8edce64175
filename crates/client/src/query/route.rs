//! How a query is run: passed through, or asked of each partition and merged.
//!
//! The service answers alone what concerns one partition key, and across
//! partitions what needs no merging. Our own parser knows which is which and
//! saves the attempt; what it does not understand is sent as it is, and if the
//! service then asks for a plan (400/1004), its refusal has one.

use perihelion_driver::container::Known;
use perihelion_driver::operation::{KeyScope, Scope};
use perihelion_driver::status;
use perihelion_model::json::{self, Value};
use perihelion_query::merge::MergePlan;
use perihelion_query::{GatewayVerdict, Now, Parameters, compile, parse};

use super::Stage;
use super::direct::Direct;
use super::exchange;
use super::merged::{Merged, refusal};
use super::statement::{Query, QueryScope};
use crate::answer::encode;
use crate::container::Container;
use crate::{Error, FeedRange};

/// What our tokens begin with; the service's never do.
const MERGE_TOKEN: &str = "{\"perihelion\":";

/// Decides how to run a query that was not begun.
pub(super) async fn route(container: &Container, query: &Query) -> Result<Stage, Error> {
    match &query.scope {
        QueryScope::Everywhere if is_merged(query) => merged(container, query, FeedRange::whole()).await,
        QueryScope::Everywhere => direct(query, Scope::Everywhere),
        QueryScope::Range(range) => merged(container, query, range.clone()).await,
        QueryScope::Partition(key) => {
            let known = container.driver().known(container.inner()).await?;
            let definition = &known.partition_key;
            match definition.is_prefix(key) {
                true => merged(container, query, FeedRange::of(&definition.effective_range(key))).await,
                false => direct(query, Scope::Key(KeyScope::new(key.clone()))),
            }
        }
    }
}

/// Whether a query over all partitions is ours to merge.
fn is_merged(query: &Query) -> bool {
    match (verdict(query), query.continuation.as_deref()) {
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
    let known = container.driver().known(container.inner()).await?;
    let plan = match plan_in(&error) {
        Some(plan) => plan?,
        None => fetch_plan(container, query).await?,
    };
    stage(query, plan, &FeedRange::whole(), &known)
}

fn direct(query: &Query, scope: Scope) -> Result<Stage, Error> {
    Direct::new(query, scope).map(Stage::Direct)
}

async fn merged(container: &Container, query: &Query, range: FeedRange) -> Result<Stage, Error> {
    let plan = match verdict(query) {
        Some(GatewayVerdict::Served) => MergePlan::concatenation(),
        Some(GatewayVerdict::NeedsPlan | GatewayVerdict::AggregateNotValue) | None => {
            fetch_plan(container, query).await?
        }
    };
    let known = container.driver().known(container.inner()).await?;
    stage(query, plan, &range, &known)
}

fn stage(query: &Query, plan: MergePlan, range: &FeedRange, known: &Known) -> Result<Stage, Error> {
    Ok(Stage::Merged(Box::new(Merged::new(query, plan, range.ends(), known)?)))
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

/// What the gateway will say; `None` when we do not understand the statement
/// and the service has to have its say.
fn verdict(query: &Query) -> Option<GatewayVerdict> {
    let parsed = parse(&query.text).ok()?;
    let list: Value = json::parse(&encode(&query.parameters).ok()?).ok()?;
    let parameters = Parameters::from_json(list).ok()?;
    // The time decides nothing about the verdict.
    let program = compile(&parsed, &parameters, Now::from_unix_ticks(0)).ok()?;
    Some(program.gateway_verdict())
}
