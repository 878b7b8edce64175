//! Decides how a query is run: by the service alone, or on each partition with a
//! merge by the client.
//!
//! The service alone answers a query of one whole partition key, even if only the filter
//! names the key. The service alone also answers a query over the whole container that
//! needs no merging. This has three exceptions: the container has very many ranges, the caller
//! asks for parallel requests, or the caller asks that each partition runs the statement
//! unchanged. The client merges all other queries, and every query of a range or of a key prefix.
//!
//! The parser of `perihelion-query` tells whether a query needs merging, and finds a
//! filter that allows only one partition key. A statement over the whole container
//! that the parser does not understand is sent to the service unchanged. When the
//! service refuses the statement because it needs a plan, the plan is taken from the
//! refusal, or fetched. The service's plan is fetched first if the caller asks for it, or if the client
//! cannot plan a query that it merges. All other plans are the client's own (`plan`).
//!
//! The service's plan later replaces the client's own plan in two cases: the service refuses the
//! statement that the client has rewritten, or the continuation token belongs to another
//! statement. In the second case the token may come from a query that ran by the service's plan.

use std::sync::Arc;

use perihelion_driver::ContainerMetadata;
use perihelion_driver::operation::{KeyScope, Scope};
use perihelion_driver::status;
use perihelion_query::GatewayVerdict;
use perihelion_query::merge::MergeError;

use super::Execution;
use super::direct::Direct;
use super::hybrid::Hybrid;
use super::merged::{Merged, client_error};
use super::plan::{ParsedQuery, Plan, fetch_plan, plan_in_refusal};
use super::statement::{Query, QueryScope};
use crate::handle::ContainerHandle;
use crate::{Error, FeedRange};

/// The most ranges of a container that the service queries alone. Such a query is one request
/// with the session token of all ranges: at most 12 KB, 48 bytes for each range.
const DIRECT_RANGES_MAX: usize = 256;

/// The beginning of the continuation tokens of a merge. The service's tokens never
/// begin with it.
const MERGE_TOKEN_PREFIX: &str = "{\"perihelion\":";

/// How a query is run, and by which plan.
#[derive(Debug)]
pub(super) struct Decision {
    pub(super) execution: Execution,
    /// The plan, if the client has made it and has changed the statement by it. The service may
    /// refuse the statement of such a plan.
    pub(super) own_plan: Option<Plan>,
}

/// Decides how to run a query before its feed requests the first page. A query with a
/// continuation token is run in the way that produced the token.
pub(super) async fn decide(container: &ContainerHandle, query: &Query) -> Result<Decision, Error> {
    let metadata = container.metadata().await?;
    let parsed = ParsedQuery::of(query);
    // The arms that do not return are queries that the client merges.
    match &query.scope {
        QueryScope::Range(_) => {}
        QueryScope::Partition(key) if metadata.partition_key.is_prefix(key) => {}
        QueryScope::Partition(key) => return direct_execution(query, Scope::Key(KeyScope::new(key.clone()))),
        QueryScope::Everywhere => match parsed.as_ref().and_then(|parsed| parsed.only_key(&metadata)) {
            Some(key) => return direct_execution(query, Scope::Key(KeyScope::new(key))),
            None if query.is_run_by_each_partition || is_merged(query, parsed.as_ref()) => {}
            None if query.continuation.is_none()
                && parsed.is_some()
                && metadata.ranges.iter().count() > DIRECT_RANGES_MAX => {}
            None => return direct_execution(query, Scope::Everywhere),
        },
    }
    let own_plan = match &parsed {
        _ if query.is_run_by_each_partition => Some(Plan::concatenation()),
        Some(parsed) => match parsed.verdict {
            GatewayVerdict::Served => Some(Plan::concatenation()),
            GatewayVerdict::NeedsPlan | GatewayVerdict::AggregateNotValue if query.is_planned_by_service => {
                None
            }
            GatewayVerdict::NeedsPlan | GatewayVerdict::AggregateNotValue => parsed.plan(&metadata),
        },
        None => None,
    };
    match own_plan {
        Some(plan) => by_own_plan(container, query, plan, &metadata).await,
        None => by_service_plan(query, fetch_plan(container, query).await?, &metadata),
    }
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
) -> Result<Decision, Error> {
    if error.status() != Some(status::CROSS_PARTITION_QUERY_NOT_SERVABLE) {
        return Err(error);
    }
    let metadata = container.metadata().await?;
    let plan = match plan_in_refusal(&error) {
        Some(plan) => plan?,
        None => fetch_plan(container, query).await?,
    };
    by_service_plan(query, plan, &metadata)
}

/// Decides how to run a query when the service has refused the first page of a statement that
/// the client rewrote by its own plan. Either the client or the caller made a mistake; the
/// service's plan shows which of them. If the service cannot plan the query, its new error is about
/// the caller's own text, and is returned. If the service's plan has the same statements, `error` is
/// returned. If not, the query starts again by the service's plan.
pub(super) async fn decide_after_refused_plan(
    container: &ContainerHandle,
    query: &Query,
    own_plan: &Plan,
    error: Error,
) -> Result<Decision, Error> {
    if error.status().map(|status| status.code) != Some(status::BAD_REQUEST.code) {
        return Err(error);
    }
    let plan = fetch_plan(container, query).await?;
    if plan.statements(query) == own_plan.statements(query) {
        return Err(error);
    }
    let metadata = container.metadata().await?;
    by_service_plan(query, plan, &metadata)
}

fn direct_execution(query: &Query, scope: Scope) -> Result<Decision, Error> {
    let execution = Execution::Direct(Direct::new(query, scope)?);
    Ok(Decision { execution, own_plan: None })
}

/// Runs a query by the client's own plan. If the continuation token belongs to another
/// statement, the token may come from a query that ran by the service's plan. So the service's plan
/// is tried then.
async fn by_own_plan(
    container: &ContainerHandle,
    query: &Query,
    plan: Plan,
    metadata: &Arc<ContainerMetadata>,
) -> Result<Decision, Error> {
    let is_rewritten = plan.statements(query) != [&*query.text];
    match planned_execution(query, plan.clone(), metadata) {
        Ok(execution) => Ok(Decision { execution, own_plan: is_rewritten.then_some(plan) }),
        Err(MergeError::TokenOfAnotherQuery) if is_rewritten => {
            by_service_plan(query, fetch_plan(container, query).await?, metadata)
        }
        Err(error) => Err(client_error(error)),
    }
}

/// Runs a query by the service's plan.
fn by_service_plan(query: &Query, plan: Plan, metadata: &Arc<ContainerMetadata>) -> Result<Decision, Error> {
    let execution = planned_execution(query, plan, metadata).map_err(client_error)?;
    Ok(Decision { execution, own_plan: None })
}

fn planned_execution(
    query: &Query,
    plan: Plan,
    metadata: &Arc<ContainerMetadata>,
) -> Result<Execution, MergeError> {
    let range = range_of(query, metadata);
    Ok(match plan {
        Plan::Merge(plan) => Execution::Merged(Box::new(Merged::new(query, plan, range.ends(), metadata)?)),
        Plan::Fuse(search) => {
            Execution::Hybrid(Box::new(Hybrid::new(query, search, range, metadata.clone())?))
        }
    })
}

/// The range of effective keys that a merged query reads.
fn range_of(query: &Query, metadata: &ContainerMetadata) -> FeedRange {
    match &query.scope {
        QueryScope::Range(range) => range.clone(),
        QueryScope::Partition(key) => FeedRange::of(&metadata.partition_key.effective_range(key)),
        QueryScope::Everywhere => FeedRange::whole(),
    }
}
