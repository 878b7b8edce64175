//! Queries: turns a request into a program and a scope, and answers a page.
//!
//! The headers select a partition key, the first levels of a hierarchical partition key,
//! a range or an interval of effective keys. Otherwise the query is about all ranges.
//! Across ranges the service's gateway serves only queries that each range can answer
//! without the others. The gateway refuses the other queries, nearly always with a plan by which the
//! client merges the ranges. The programs `perihelion server` and `dev` do the same
//! (`strict_gateway`). With `--merge-in-gateway`, and by default in an `Embedded` account, this
//! server merges the ranges itself, which all SDKs accept (`docs/cosmos.md`, queries).

mod hybrid;

use std::sync::Arc;

use perihelion_engine::{
    Container, Layer, PageLimits, Paging, QueryPage, QueryRequest, QueryScope, Refusal, ResumeFilter, Target,
    charge,
};
use perihelion_model::json::{self, Style, Value};
use perihelion_model::partition_key::PartitionKey;
use perihelion_query::{
    ComputedProperties, FILTER_PLACEHOLDER, GatewayVerdict, Now, Parameters, PartitionKeyFilter, Program,
    Query,
};
use perihelion_wire::{headers, status};

use super::query_metrics::{self, RetrievedWork, Times};
use super::{RegionService, index_policy};
use crate::answer::Answer;
use crate::call::Call;
use crate::long_reads::{Bill, ReadKind, WorkPerDocument};

/// A parsed query and its parameters.
struct Statement {
    query: Query,
    parameters: Parameters,
    /// The member `resumeFilter` of the body.
    resume: Option<Value>,
}

impl Statement {
    /// Adds two settings of the container, which functions need: the vector embeddings and the kind of
    /// geometry.
    fn on(self, container: &Container) -> Self {
        let parameters = self
            .parameters
            .with_embeddings(container.vector_embeddings())
            .with_planar_geometry(container.has_planar_geometry());
        Statement { parameters, ..self }
    }
}

pub(super) async fn serve(service: &RegionService, call: &Call) -> Result<Answer, Refusal> {
    let (database, container) = service.container(call)?;
    let mut times = Times::start();
    let statement = parse(call)?.on(&container);
    let scope = statement_scope(call, &container, &statement)?;
    let continuation = call.continuation();
    let program = compile_page(service, &statement, &container.computed, continuation.as_deref())?;
    if scope.is_none() && service.account.strict_gateway {
        check_gateway(&container, &statement, &program)?;
    }
    let allows_scan = call.flag(&headers::ENABLE_SCAN_IN_QUERY);
    index_policy::check(&container, &program, service.account.strict_index, allows_scan)?;
    // Memory for the values that were copied into the program, such as parameters. It is held until this
    // function returns.
    let _copies = service.account.long_reads.hold_copies(program.copied_bytes())?;
    times.note_compiled();
    let request = Arc::new(QueryRequest {
        rows_max: rows_max(call, &program)?,
        program,
        paging: paging(service),
        scope: scope.unwrap_or(QueryScope::All),
        continuation,
        resume: statement
            .resume
            .as_ref()
            .map(|filter| ResumeFilter::from_json(filter, &container))
            .transpose()?,
    });
    let page = if request.program.is_ranked() {
        hybrid::serve(service, &container, &statement, call).await?
    } else {
        run(service, &container, &request, call).await?
    };
    let mut answer =
        page_answer(&page, &container).with_content_path(&database, &container).with_static_header(
            headers::QUERY_EXECUTION_INFO,
            "{\"reverseRidEnabled\":false,\"reverseIndexScan\":false}",
        );
    if call.flag(&headers::POPULATE_QUERY_METRICS) {
        let work = RetrievedWork::of(service, &container, &page)?;
        answer = answer.with_header(headers::QUERY_METRICS, query_metrics::print(&page, work, &times));
    }
    if call.flag(&headers::POPULATE_INDEX_METRICS) {
        let utilization = index_policy::utilization(&container, &request.program, &request.scope);
        answer = answer.with_header(headers::INDEX_UTILIZATION, utilization);
    }
    Ok(answer)
}

/// The documents that the headers, or the filter of the statement, select; `None` if the query is about
/// all documents.
fn statement_scope(
    call: &Call,
    container: &Arc<Container>,
    statement: &Statement,
) -> Result<Option<QueryScope>, Refusal> {
    match scope(call, container)? {
        // A filter on the whole partition key names one partition, as the header does.
        None if !call.flag(&headers::ENABLE_CROSS_PARTITION) => match pinned_key(container, statement) {
            Some(key) => Ok(Some(QueryScope::Partition(Target::resolve(container, key)?))),
            None => Err(cross_partition_disabled()),
        },
        scope => Ok(scope),
    }
}

fn paging(service: &RegionService) -> Paging {
    if service.account.strict_gateway { Paging::AsService } else { Paging::Whole }
}

/// The most rows in a page. A query that sorts by a distance or a score returns all rows that TOP
/// or LIMIT allows, as in the service: some clients read only the first page of such a query.
fn rows_max(call: &Call, program: &Program) -> Result<usize, Refusal> {
    let rows = call.page_rows()?;
    let all = program.top().or(program.limit()).filter(|_| program.sorts_by_score());
    Ok(all.map_or(rows, |all| usize::try_from(all).unwrap_or(usize::MAX).max(rows)))
}

/// Refuses a query over all partitions unless the header allows it.
pub(super) fn check_crosses_partitions(call: &Call) -> Result<(), Refusal> {
    if call.flag(&headers::ENABLE_CROSS_PARTITION) { Ok(()) } else { Err(cross_partition_disabled()) }
}

fn cross_partition_disabled() -> Refusal {
    Refusal::gateway(
        status::BAD_REQUEST,
        "Cross partition query is required but disabled. Please set x-ms-documentdb-query-enablecrosspartition to true, specify x-ms-documentdb-partitionkey, or revise your query to avoid this exception.",
    )
}

/// The partition key that every row of a query has, if the query's filter names a value for
/// each level of the key.
fn pinned_key(container: &Container, statement: &Statement) -> Option<PartitionKey> {
    let paths = key_paths(container);
    let filter = perihelion_query::partition_keys(&statement.query, &statement.parameters, &paths);
    match filter.ok()? {
        PartitionKeyFilter::Keys(keys) => match keys.as_slice() {
            [key] if key.len() == paths.len() => PartitionKey::from_json(&Value::Array(key.clone())),
            _ => None,
        },
        PartitionKeyFilter::All | PartitionKeyFilter::Nothing => None,
    }
}

fn key_paths(container: &Container) -> Vec<&str> {
    container.partition_key.paths.iter().map(|path| path.text.as_str()).collect()
}

/// Lists the documents of a container.
pub(super) async fn read_feed(service: &RegionService, call: &Call) -> Result<Answer, Refusal> {
    let (database, container) = service.container(call)?;
    let query = perihelion_query::parse("SELECT * FROM c").map_err(|errors| compile_refusal(&errors))?;
    let statement = Statement { query, parameters: Parameters::none(), resume: None };
    let request = Arc::new(QueryRequest {
        program: compile(service, &statement, &container.computed)?,
        paging: paging(service),
        scope: scope(call, &container)?.unwrap_or(QueryScope::All),
        rows_max: call.page_rows()?,
        continuation: call.continuation(),
        resume: None,
    });
    let page = run(service, &container, &request, call).await?;
    Ok(page_answer(&page, &container).with_content_path(&database, &container))
}

/// Answers a plan request. A plan request has no charge, and it does not need the header
/// that allows a query to cross partitions.
pub(super) fn plan(service: &RegionService, call: &Call) -> Result<Answer, Refusal> {
    let (_, container) = service.container(call)?;
    let statement = parse(call)?.on(&container);
    // A plan request reports the mistakes that the compiler finds.
    compile(service, &statement, &container.computed)?;
    let features = call.header(&headers::SUPPORTED_QUERY_FEATURES);
    let plan = plan_of(&container, &statement, features)
        .map_err(|error| Refusal::gateway(status::BAD_REQUEST, error.to_string()))?;
    Ok(Answer::json(status::OK, &plan))
}

/// Runs a query over the bodies of databases, containers, offers, scripts, users or permissions.
pub(super) fn run_over_metadata(
    service: &RegionService,
    call: &Call,
    bodies: Vec<Value>,
) -> Result<Vec<Value>, Refusal> {
    let program = compile(service, &parse(call)?, &ComputedProperties::default())?;
    program.run(&bodies).map_err(|error| Refusal::bad_request(error.to_string()))
}

/// Parses the query in the body: `{"query","parameters"}`, or bare SQL.
fn parse(call: &Call) -> Result<Statement, Refusal> {
    let is_bare = call.header(&headers::CONTENT_TYPE).is_some_and(|kind| kind.starts_with("application/sql"));
    let (text, parameters, resume) = if is_bare {
        let text = std::str::from_utf8(&call.body).map_err(|_| invalid_query_body())?;
        (text.to_owned(), Parameters::none(), None)
    } else {
        let Ok(Value::Object(mut body)) = json::parse(&call.body) else { return Err(invalid_query_body()) };
        let Some(Value::String(text)) = body.remove("query") else { return Err(invalid_query_body()) };
        let parameters = match body.remove("parameters") {
            None | Some(Value::Null) => Parameters::none(),
            Some(list) => Parameters::from_json(list)
                .map_err(|error| Refusal::gateway(status::BAD_REQUEST, error.to_string()))?,
        };
        (text, parameters, body.remove("resumeFilter").filter(|filter| *filter != Value::Null))
    };
    // In a hybrid search that needs no statistics, the Python SDK sends the component queries
    // with the placeholder still in them.
    let text = text.replace(FILTER_PLACEHOLDER, "true");
    let query = perihelion_query::parse(&text).map_err(|errors| compile_refusal(&errors))?;
    Ok(Statement { query, parameters, resume })
}

fn invalid_query_body() -> Refusal {
    Refusal::gateway(
        status::BAD_REQUEST,
        "The request payload is invalid. Ensure to provide a valid request payload.",
    )
}

fn compile(
    service: &RegionService,
    statement: &Statement,
    computed: &ComputedProperties,
) -> Result<Program, Refusal> {
    compile_page(service, statement, computed, None)
}

/// Compiles the statement for a page. If the rows depend on the time, the date functions see the
/// time of the first page, which is in the continuation.
fn compile_page(
    service: &RegionService,
    statement: &Statement,
    computed: &ComputedProperties,
    continuation: Option<&str>,
) -> Result<Program, Refusal> {
    let now = Now::from_unix_milliseconds(service.engine.clock().unix_time().as_millis() as i64);
    let now = page_time(now, continuation.and_then(perihelion_engine::now_of_continuation));
    perihelion_query::compile_with(&statement.query, &statement.parameters, computed, now)
        .map_err(|errors| compile_refusal(&errors))
}

/// How far in the future the time of a continuation token may be, in ticks of 100 ns: five minutes. The
/// clock may have been set back since the first page.
const TIME_AHEAD_MAX: i64 = 5 * 60 * 10_000_000;

/// The time that a page sees: the time of the first page. A time far in the future is ignored, because
/// a client may have made the token up.
fn page_time(now: Now, first_ticks: Option<i64>) -> Now {
    let latest = now.unix_ticks().saturating_add(TIME_AHEAD_MAX);
    first_ticks.filter(|ticks| *ticks <= latest).map_or(now, Now::from_unix_ticks)
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
                Ok(Some(QueryScope::Prefix { key, ranges }))
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
            let keys = keys.map_or_else(|| range.keys.clone(), |keys| range.keys.intersection(&keys));
            Ok(Some(QueryScope::Ranges(vec![(id, keys)])))
        }
        (None, Some(keys)) => {
            let ranges = container.ranges.iter().filter(|range| range.keys.overlaps(&keys));
            let ranges = ranges.map(|range| (range.id, range.keys.intersection(&keys)));
            Ok(Some(QueryScope::Ranges(ranges.collect())))
        }
        (None, None) => Ok(None),
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
    let Statement { query, parameters, .. } = statement;
    perihelion_query::plan_for_container(query, parameters, features, &container.partition_key)
}

/// Runs a page of a query. Its whole charge is taken from the bucket of the scope's first range,
/// or of range 0 if the scope has no range.
async fn run(
    service: &RegionService,
    container: &Arc<Container>,
    request: &Arc<QueryRequest>,
    call: &Call,
) -> Result<QueryPage, Refusal> {
    let session = call.session()?;
    let first = request.scope.range_ids(container).first().copied().unwrap_or_default();
    let bucket = service.engine.admit(container, first)?;
    let read = {
        let (engine, container, request) =
            (Arc::clone(&service.engine), Arc::clone(container), Arc::clone(request));
        move |limits: PageLimits<'_>| engine.query_within(&container, &request, &session, limits)
    };
    let work = match request.program.is_little_work() {
        true => WorkPerDocument::Little,
        false => WorkPerDocument::Unknown,
    };
    let is_of_one_partition = matches!(request.scope, QueryScope::Partition(_));
    let kind = ReadKind { work, is_of_one_partition, connection: call.connection };
    let bill = {
        let engine = Arc::clone(&service.engine);
        let spend = move |charge| engine.spend(bucket, charge);
        Bill::new(spend, |page: &QueryPage| page.charge, charge_without_rows)
    };
    service.account.long_reads.run(kind, bill, read).await
}

/// The charge of a page that has read this many documents and found no row.
fn charge_without_rows(documents: u64) -> f64 {
    charge::query(charge::QueryWork { reads_documents: true, documents, ..charge::QueryWork::default() })
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A time of the first page that is more than five minutes in the future is ignored: the page then
    /// sees the current time.
    #[test]
    fn a_page_sees_the_time_of_the_first_page_also_after_the_clock_was_set_back_a_little() {
        let now = Now::from_unix_milliseconds(1_700_000_000_000);
        let ticks = now.unix_ticks();
        for (first, expected) in [
            (None, ticks),
            (Some(ticks - 1), ticks - 1),
            (Some(ticks + TIME_AHEAD_MAX), ticks + TIME_AHEAD_MAX),
            (Some(ticks + TIME_AHEAD_MAX + 1), ticks),
            (Some(i64::MAX), ticks),
        ] {
            assert_eq!(page_time(now, first).unix_ticks(), expected, "{first:?}");
        }
    }
}
