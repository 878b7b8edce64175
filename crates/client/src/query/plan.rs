//! The plan of a query that the client merges: made by the client itself, or fetched from
//! the service.
//!
//! The client plans with the planner of `perihelion-query`, which our server uses too. This
//! costs no request. The client fetches the service's plan when it cannot plan itself: the parser
//! or the planner does not understand the statement, or the statement sorts by the distance of
//! a vector, and the cached metadata of the container does not have the path of this vector. So a
//! language feature that is newer than this client still works. With [`Query::with_service_plan`]
//! the client always fetches the service's plan.

use perihelion_driver::ContainerMetadata;
use perihelion_model::json::{self, Value};
use perihelion_model::partition_key::PartitionKey;
use perihelion_query::merge::{HybridSearch, MergeError, MergePlan};
use perihelion_query::{
    DistanceFunction, GatewayVerdict, Now, Parameters, PartitionKeyFilter, VectorEmbedding, compile, parse,
    partition_keys, plan_for_container,
};
use serde::Deserialize;

use super::exchange::{self, SUPPORTED_FEATURES};
use super::merged::client_error;
use super::statement::Query;
use crate::Error;
use crate::handle::ContainerHandle;

/// How the client combines the rows of the partitions.
#[derive(Debug, Clone)]
pub(super) enum Plan {
    Merge(MergePlan),
    Fuse(HybridSearch),
}

impl Plan {
    /// The plan of a statement that needs no merging.
    pub(super) fn concatenation() -> Self {
        Plan::Merge(MergePlan::concatenation())
    }

    fn parse(text: &str) -> Result<Self, MergeError> {
        let body = json::parse_str(text).map_err(|_| MergeError::InvalidPlan("it is not valid JSON"))?;
        Plan::from_json(&body)
    }

    fn from_json(body: &Value) -> Result<Self, MergeError> {
        match HybridSearch::from_json(body)? {
            Some(search) => Ok(Plan::Fuse(search)),
            None => MergePlan::from_json(body).map(Plan::Merge),
        }
    }

    /// The statements that the partitions run for this query.
    pub(super) fn statements(&self, query: &Query) -> Vec<String> {
        match self {
            Plan::Merge(plan) => vec![plan.statement(&query.text)],
            Plan::Fuse(search) => search.statements().map(str::to_owned).collect(),
        }
    }
}

/// Fetches the service's plan.
pub(super) async fn fetch_plan(container: &ContainerHandle, query: &Query) -> Result<Plan, Error> {
    let response = exchange::fetch_plan(container, query.body(&query.text)?, &query.operation).await?;
    let text =
        std::str::from_utf8(&response.body).map_err(|_| Error::answer("the query plan is not UTF-8 text"))?;
    Plan::parse(text).map_err(|error| client_error(error).with_diagnostics(response.diagnostics))
}

/// The service's plan as JSON, as the service writes it.
pub(crate) async fn read_plan(
    container: &ContainerHandle,
    query: &Query,
) -> Result<serde_json::Value, Error> {
    let response = exchange::fetch_plan(container, query.body(&query.text)?, &query.operation).await?;
    crate::response::decode(&response.body, &"the query plan")
}

/// The plan in a refusal: `None` when the refusal contains no plan, an error when the
/// plan cannot be read.
pub(super) fn plan_in_refusal(error: &Error) -> Option<Result<Plan, Error>> {
    let body = json::parse(error.body()).ok()?;
    let text = body.get("additionalErrorInfo")?.as_str()?;
    Some(Plan::parse(text).map_err(client_error))
}

/// A statement that `perihelion-query` has parsed and compiled, with its parameters.
pub(super) struct ParsedQuery {
    query: perihelion_query::Query,
    parameters: Parameters,
    /// Whether the service alone answers the query over the whole container.
    pub(super) verdict: GatewayVerdict,
}

impl ParsedQuery {
    /// `None` when the statement cannot be parsed or compiled, or the parameters cannot
    /// be read.
    pub(super) fn of(query: &Query) -> Option<Self> {
        let parsed = parse(&query.text).ok()?;
        let list = Value::deserialize(serde_json::to_value(&query.parameters).ok()?).ok()?;
        let parameters = Parameters::from_json(list).ok()?;
        // The verdict does not depend on the time.
        let program = compile(&parsed, &parameters, Now::from_unix_ticks(0)).ok()?;
        Some(ParsedQuery { query: parsed, parameters, verdict: program.gateway_verdict() })
    }

    /// The whole partition key of all results, when the filter allows only one.
    pub(super) fn only_key(&self, metadata: &ContainerMetadata) -> Option<PartitionKey> {
        let paths: Vec<&str> = metadata.partition_key.paths.iter().map(|path| path.text.as_str()).collect();
        match partition_keys(&self.query, &self.parameters, &paths).ok()? {
            PartitionKeyFilter::Keys(mut keys) if keys.len() == 1 => {
                PartitionKey::from_json(&Value::Array(keys.pop()?))
            }
            PartitionKeyFilter::Keys(_) | PartitionKeyFilter::All | PartitionKeyFilter::Nothing => None,
        }
    }

    /// The client's own plan; `None` when the client cannot plan the statement. The service
    /// then plans it, or says what is wrong with it.
    pub(super) fn plan(&self, metadata: &ContainerMetadata) -> Option<Plan> {
        let embedding = |vector: &perihelion_driver::VectorPath| {
            let function = DistanceFunction::by_name(&vector.distance_function)?;
            Some(VectorEmbedding::new(&vector.path, function))
        };
        let embeddings = metadata.vectors.iter().filter_map(embedding).collect();
        let parameters = self.parameters.clone().with_known_embeddings(embeddings);
        let plan =
            plan_for_container(&self.query, &parameters, Some(SUPPORTED_FEATURES), &metadata.partition_key);
        Plan::from_json(&plan.ok()?).ok()
    }
}
