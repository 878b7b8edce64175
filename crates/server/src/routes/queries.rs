//! Queries: turns a request into a program and a scope, and answers a page.
//!
//! The headers select a partition key, the first levels of a hierarchical partition key,
//! a range or an interval of effective keys. Otherwise the query is about all ranges.
//! Across ranges the service's gateway serves only queries that each range can answer
//! alone. The gateway refuses the other queries, nearly always with a plan by which the
//! client merges the ranges. With `--strict-gateway` this server does the same. Without
//! `--strict-gateway` it merges the ranges itself, which all SDKs accept
//! (`docs/cosmos.md`, queries).

use std::sync::Arc;

use perihelion_engine::{Container, Layer, QueryPage, QueryRequest, QueryScope, Refusal, Target};
use perihelion_model::json::{self, Style, Value};
use perihelion_model::partition_key::{EffectiveRange, PartitionKey};
use perihelion_query::{GatewayVerdict, Now, Parameters, PartitionKeyFilter, Program, Query, QueryRange};
use perihelion_wire::{headers, status};

use super::RegionService;
use crate::answer::Answer;
use crate::call::Call;

/// A parsed query and its parameters.
struct Statement {
    query: Query,
    parameters: Parameters,
}

pub(super) fn serve(service: &RegionService, call: &Call) -> Result<Answer, Refusal> {
    let (database, container) = service.container(call)?;
    let statement = parse(call)?;
    let scope = scope(call, &container)?;
    if scope.is_none() && !call.flag(&headers::ENABLE_CROSS_PARTITION) {
        return Err(Refusal::gateway(
            status::BAD_REQUEST,
            "Cross partition query is required but disabled. Please set x-ms-documentdb-query-enablecrosspartition to true, specify x-ms-documentdb-partitionkey, or revise your query to avoid this exception.",
        ));
    }
    let program = compile(service, &statement)?;
    if scope.is_none() && service.account.strict_gateway {
        check_gateway(&container, &statement, &program)?;
    }
    let request = QueryRequest {
        program,
        scope: scope.unwrap_or(QueryScope::All),
        rows_max: call.page_rows()?,
        continuation: call.continuation(),
    };
    let page = run(service, &container, &request, call)?;
    let populates_metrics = call.flag(&headers::POPULATE_QUERY_METRICS);
    let mut answer =
        page_answer(&page, &container).with_content_path(&database, &container).with_static_header(
            headers::QUERY_EXECUTION_INFO,
            "{\"reverseRidEnabled\":false,\"reverseIndexScan\":false}",
        );
    if populates_metrics {
        answer = answer.with_header(headers::QUERY_METRICS, metrics(&page));
    }
    Ok(answer)
}

/// Lists the documents of a container.
pub(super) fn read_feed(service: &RegionService, call: &Call) -> Result<Answer, Refusal> {
    let (database, container) = service.container(call)?;
    let query = perihelion_query::parse("SELECT * FROM c").map_err(|errors| compile_refusal(&errors))?;
    let statement = Statement { query, parameters: Parameters::none() };
    let request = QueryRequest {
        program: compile(service, &statement)?,
        scope: scope(call, &container)?.unwrap_or(QueryScope::All),
        rows_max: call.page_rows()?,
        continuation: call.continuation(),
    };
    let page = run(service, &container, &request, call)?;
    Ok(page_answer(&page, &container).with_content_path(&database, &container))
}

/// Answers a plan request. A plan request has no charge, and it does not need the header
/// that allows a query to cross partitions.
pub(super) fn plan(service: &RegionService, call: &Call) -> Result<Answer, Refusal> {
    let (_, container) = service.container(call)?;
    let statement = parse(call)?;
    // A plan request reports the mistakes that the compiler finds.
    compile(service, &statement)?;
    let features = call.header(&headers::SUPPORTED_QUERY_FEATURES);
    let plan = plan_of(&container, &statement, features)
        .map_err(|error| Refusal::gateway(status::BAD_REQUEST, error.to_string()))?;
    Ok(Answer::json(status::OK, &plan))
}

/// Runs a query over the bodies of databases, containers, offers or scripts.
pub(super) fn run_over_metadata(
    service: &RegionService,
    call: &Call,
    bodies: Vec<Value>,
) -> Result<Vec<Value>, Refusal> {
    let program = compile(service, &parse(call)?)?;
    program.run(&bodies).map_err(|error| Refusal::bad_request(error.to_string()))
}

/// Parses the query in the body: `{"query","parameters"}`, or bare SQL.
fn parse(call: &Call) -> Result<Statement, Refusal> {
    let is_bare = call.header(&headers::CONTENT_TYPE).is_some_and(|kind| kind.starts_with("application/sql"));
    let (text, parameters) = if is_bare {
        let text = std::str::from_utf8(&call.body).map_err(|_| invalid_query_body())?;
        (text.to_owned(), Parameters::none())
    } else {
        let Ok(Value::Object(mut body)) = json::parse(&call.body) else { return Err(invalid_query_body()) };
        let Some(Value::String(text)) = body.remove("query") else { return Err(invalid_query_body()) };
        let parameters = match body.remove("parameters") {
            None | Some(Value::Null) => Parameters::none(),
            Some(list) => Parameters::from_json(list)
                .map_err(|error| Refusal::gateway(status::BAD_REQUEST, error.to_string()))?,
        };
        (text, parameters)
    };
    let query = perihelion_query::parse(&text).map_err(|errors| compile_refusal(&errors))?;
    Ok(Statement { query, parameters })
}

fn invalid_query_body() -> Refusal {
    Refusal::gateway(
        status::BAD_REQUEST,
        "The request payload is invalid. Ensure to provide a valid request payload.",
    )
}

fn compile(service: &RegionService, statement: &Statement) -> Result<Program, Refusal> {
    let now = Now::from_unix_milliseconds(service.engine.clock().unix_time().as_millis() as i64);
    perihelion_query::compile(&statement.query, &statement.parameters, now)
        .map_err(|errors| compile_refusal(&errors))
}

fn compile_refusal(errors: &[perihelion_query::Diagnostic]) -> Refusal {
    let body = perihelion_query::errors_to_json(errors);
    Refusal::new(status::BAD_REQUEST, Layer::QueryCompiler, json::to_text(&body, Style::Point))
}

/// The documents that the headers select; `None` when no header selects documents, so
/// that the query is about all documents.
fn scope(call: &Call, container: &Arc<Container>) -> Result<Option<QueryScope>, Refusal> {
    if let Some(key) = call.partition_key()? {
        let levels = container.partition_key.paths.len();
        return match key.values.len() {
            given if given == levels => Ok(Some(QueryScope::Partition(Target::resolve(container, key)?))),
            given if given < levels => {
                let keys = container.partition_key.effective_range(&key);
                let ranges = container.ranges.iter().filter(|range| range.keys.overlaps(&keys));
                let ranges = ranges.map(|range| range.id).collect();
                Ok(Some(QueryScope::Prefix { hash: key.logical_hash(), ranges }))
            }
            _ => Err(Refusal::gateway(
                status::PARTITION_KEY_MISMATCH,
                "The partition key header has more components than the container's key.",
            )),
        };
    }
    let keys = call.effective_keys()?;
    match (call.range(container)?, keys) {
        (Some(id), keys) => {
            let range = container.range(id).ok_or_else(Refusal::range_gone)?;
            let keys = keys.map_or_else(|| range.keys.clone(), |keys| intersect(&range.keys, &keys));
            Ok(Some(QueryScope::Ranges(vec![(id, keys)])))
        }
        (None, Some(keys)) => {
            let ranges = container.ranges.iter().filter(|range| range.keys.overlaps(&keys));
            let ranges = ranges.map(|range| (range.id, intersect(&range.keys, &keys)));
            Ok(Some(QueryScope::Ranges(ranges.collect())))
        }
        (None, None) => Ok(None),
    }
}

fn intersect(range: &EffectiveRange, keys: &EffectiveRange) -> EffectiveRange {
    EffectiveRange {
        min: range.min.clone().max(keys.min.clone()),
        max: range.max.clone().min(keys.max.clone()),
    }
}

/// Refuses a query over all ranges that the service's gateway refuses.
fn check_gateway(container: &Container, statement: &Statement, program: &Program) -> Result<(), Refusal> {
    match program.gateway_verdict() {
        GatewayVerdict::Served => Ok(()),
        GatewayVerdict::AggregateNotValue => Err(Refusal::new(
            status::BAD_REQUEST,
            Layer::GatewayErrors,
            "Cross partition query only supports 'VALUE <AggregateFunc>' for aggregates.",
        )),
        GatewayVerdict::NeedsPlan => {
            let mut refusal = Refusal::gateway(
                status::CROSS_PARTITION_QUERY_NOT_SERVABLE,
                "The provided cross partition query can not be directly served by the gateway. This is a first chance (internal) exception that all newer clients will know how to handle gracefully. This exception is traced, but unless you see it bubble up as an exception (which only happens on older SDK clients), then you can safely ignore this message.",
            );
            refusal.plan = plan_of(container, statement, Some(ALL_FEATURES))
                .ok()
                .map(|plan| json::to_text(&plan, Style::Point).into());
            Err(refusal)
        }
    }
}

/// The query features that the plan in a refusal may use: all of them, because the server
/// does not know which features the client supports.
const ALL_FEATURES: &str = "Aggregate, CompositeAggregate, CountIf, DCount, Distinct, GroupBy, HybridSearch, ListAndSetAggregate, MultipleAggregates, MultipleOrderBy, NonStreamingOrderBy, NonValueAggregate, OffsetAndLimit, OrderBy, Top, WeightedRankFusion";

fn plan_of(
    container: &Container,
    statement: &Statement,
    features: Option<&str>,
) -> Result<Value, perihelion_query::PlanError> {
    let paths: Vec<&str> = container.partition_key.paths.iter().map(|path| path.text.as_str()).collect();
    let plan = perihelion_query::plan(&statement.query, &statement.parameters, features, &paths)?;
    Ok(match plan.partition_keys() {
        PartitionKeyFilter::Keys(keys) => match key_ranges(container, keys) {
            Some(ranges) => plan.to_json_with_ranges(&ranges),
            None => plan.to_json(),
        },
        PartitionKeyFilter::All | PartitionKeyFilter::Nothing => plan.to_json(),
    })
}

/// The points of partition keys in the hash space, in order. `None` when a key is not a
/// scalar. No document can have such a key; the plan is then about all ranges.
fn key_ranges(container: &Container, keys: &[Vec<Value>]) -> Option<Vec<QueryRange>> {
    let definition = &container.partition_key;
    let points = keys.iter().map(|values| {
        let key = PartitionKey::from_json(&Value::Array(values.clone()))?;
        Some(definition.effective(&key))
    });
    let mut points = points.collect::<Option<Vec<_>>>()?;
    points.sort();
    points.dedup();
    Some(points.iter().map(|point| QueryRange::point(&point.to_hex())).collect())
}

/// Runs a page of a query. Its whole charge is spent by the first range of the scope, or
/// by range 0 if the scope has no range.
fn run(
    service: &RegionService,
    container: &Arc<Container>,
    request: &QueryRequest,
    call: &Call,
) -> Result<QueryPage, Refusal> {
    let session = call.session()?;
    let first = request.scope.range_ids(container).first().copied().unwrap_or_default();
    let bucket = service.engine.admit(container, first)?;
    let page = perihelion_engine::blocking::run(|| service.engine.query(container, request, &session));
    service.engine.spend(bucket, page.as_ref().map_or_else(|refusal| refusal.charge, |page| page.charge));
    page
}

fn page_answer(page: &QueryPage, container: &Container) -> Answer {
    let rid = &container.rid_text;
    let body = format!("{{\"_rid\":\"{rid}\",\"Documents\":[{}],\"_count\":{}}}", page.rows_text, page.rows);
    let mut answer = Answer::text(status::OK, body)
        .charged(page.charge)
        .with_header(headers::ITEM_COUNT, page.rows.to_string());
    answer.positions.clone_from(&page.positions);
    match &page.continuation {
        Some(continuation) => answer.with_header(headers::CONTINUATION, continuation),
        None => answer,
    }
}

/// The query metrics, for clients that send `populatequerymetrics`. Times are not
/// measured and always 0. The output size is the size of the documents that were read.
fn metrics(page: &QueryPage) -> String {
    format!(
        "totalExecutionTimeInMs=0.00;queryCompileTimeInMs=0.00;queryLogicalPlanBuildTimeInMs=0.00;queryPhysicalPlanBuildTimeInMs=0.00;queryOptimizationTimeInMs=0.00;VMExecutionTimeInMs=0.00;indexLookupTimeInMs=0.00;instructionCount=0;documentLoadTimeInMs=0.00;systemFunctionExecuteTimeInMs=0.00;userFunctionExecuteTimeInMs=0.00;retrievedDocumentCount={};retrievedDocumentSize={};outputDocumentCount={};outputDocumentSize={};writeOutputTimeInMs=0.00;indexUtilizationRatio={:.2}",
        page.work.documents,
        page.work.bytes,
        page.rows,
        page.work.bytes,
        if page.work.documents == 0 { 1.0 } else { page.rows as f64 / page.work.documents as f64 },
    )
}
