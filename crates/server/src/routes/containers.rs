//! Containers: create, read, replace, delete, list, query.

use http::Method;
use perihelion_engine::{
    Container, ContainerState, Database, ParsedDefinition, Position, Refusal, Usage, charge,
};
use perihelion_model::json::{self, Style, Value, object};
use perihelion_model::resource_id::ContainerRid;
use perihelion_wire::headers;
use perihelion_wire::status::{self, Status};

use super::databases::{account_position, throughput_from_headers};
use super::pages::Page;
use super::{RegionService, method_not_allowed, queries};
use crate::answer::Answer;
use crate::call::Call;

pub(super) async fn serve_feed(
    service: &RegionService,
    call: &Call,
    database: &str,
) -> Result<Answer, Refusal> {
    let catalog = service.engine.catalog();
    let database = catalog.database(database).ok_or_else(Refusal::no_such_resource)?;
    let containers = || catalog.containers_of(database.rid);
    match call.method {
        Method::GET => {
            let bodies = containers().map(|container| (container.rid, container.body())).collect();
            Ok(feed(service, database, &Page::requested(call, bodies, ContainerRid::parse)?))
        }
        Method::POST if call.is_query() => {
            let bodies = containers().map(|container| container.body()).collect();
            Ok(feed(service, database, &Page::of_all(queries::run_over_metadata(service, call, bodies)?)))
        }
        Method::POST => {
            let definition = parse_definition(service, call)?;
            let throughput = throughput_from_headers(call)?;
            // Whether the container uses the throughput of its database.
            let is_shared = throughput.is_none() && catalog.offer_for(&database.rid.to_text()).is_some();
            let name = database.name.clone();
            let container = service
                .change_catalog(move |engine| async move {
                    engine.create_container(&name, definition, throughput).await
                })
                .await?;
            let answer = answer(service, status::CREATED, database, &container, charge::METADATA_CREATE)?;
            Ok(if is_shared { answer.with_static_header(headers::SHARE_THROUGHPUT, "true") } else { answer })
        }
        _ => Err(method_not_allowed(&call.method)),
    }
}

pub(super) async fn serve(service: &RegionService, call: &Call) -> Result<Answer, Refusal> {
    let (database, container) = service.container(call)?;
    let catalog = service.engine.catalog();
    let database = catalog.database(&database).ok_or_else(Refusal::no_such_resource)?;
    match call.method {
        Method::GET | Method::HEAD => {
            if call.precondition().if_none_match.as_deref() == Some(container.etag.as_str()) {
                let position = position_of(service, &container)?;
                return Ok(Answer::empty(status::NOT_MODIFIED)
                    .charged(1.0)
                    .with_etag(&container.etag)
                    .at(position));
            }
            let state = service.engine.state(&container)?;
            let usage = Usage { documents: state.documents(), bytes: state.bytes() };
            let mut answer = answer(service, status::OK, database, &container, charge::METADATA_READ)?
                .with_content_location();
            if call.flag(&headers::POPULATE_PARTITION_STATISTICS) {
                answer.body = json::to_text(&with_statistics(&container, &state), Style::Point).into();
            }
            Ok(answer
                .with_static_header(headers::INDEX_TRANSFORMATION_PROGRESS, "100")
                .with_header(headers::ITEM_LSN, catalog.account.lsn.to_string())
                .with_header(headers::CONTENT_PATH, database.rid.to_text())
                .with_usage(usage))
        }
        Method::PUT => {
            let if_match = call.precondition().if_match;
            let definition = parse_definition(service, call)?;
            let container = service
                .change_catalog(move |engine| async move {
                    engine.replace_container(&container, definition, if_match).await
                })
                .await?;
            Ok(answer(service, status::OK, database, &container, charge::METADATA_CREATE)?
                .with_content_location())
        }
        Method::DELETE => {
            let if_match = call.precondition().if_match;
            service
                .change_catalog(
                    move |engine| async move { engine.delete_container(&container, if_match).await },
                )
                .await?;
            Ok(Answer::empty(status::NO_CONTENT)
                .charged(charge::METADATA_DELETE)
                .at(account_position(service))
                .with_content_location())
        }
        _ => Err(method_not_allowed(&call.method)),
    }
}

/// The body of a container with the size of each of its physical partitions.
fn with_statistics(container: &Container, state: &ContainerState) -> Value {
    let statistics = container.ranges.iter().map(|range| {
        let size = state.range(range.id);
        let number = |value: i64| Value::from(value.max(0));
        object([
            ("id", range.id.to_string().into()),
            ("sizeInKB", number(size.map_or(0, |size| size.bytes / 1024))),
            ("documentCount", number(size.map_or(0, |size| size.documents))),
            ("sampledDistinctPartitionKeyCount", number(0)),
            ("partitionKeys", Value::Array(Vec::new())),
        ])
    });
    let mut body = container.body();
    if let Value::Object(body) = &mut body {
        body.set("statistics", Value::Array(statistics.collect()));
    }
    body
}

/// The definition in the body. In an account with several write regions the last writer wins
/// by `_ts`, and a container with another resolution of conflicts is refused. With one write
/// region there are no conflicts, and the policy has no effect, as in the service.
fn parse_definition(service: &RegionService, call: &Call) -> Result<ParsedDefinition, Refusal> {
    let parsed = ParsedDefinition::parse(call.object()?, call.api_version())?;
    let policy = parsed.definition.get("conflictResolutionPolicy");
    let member = |name: &str| policy.and_then(|policy| policy.get(name)).and_then(Value::as_str);
    let is_last_writer = member("mode").is_some_and(|mode| mode.eq_ignore_ascii_case("LastWriterWins"))
        && matches!(member("conflictResolutionPath"), None | Some("" | "/_ts"));
    if service.account.regions.topology().is_multi_write && !is_last_writer {
        return Err(Refusal::bad_request(
            "This conflict resolution policy is not supported in an account with several write regions. Use the mode LastWriterWins with the path /_ts.",
        ));
    }
    Ok(parsed)
}

/// Answers an empty conflict feed. The last writer wins, so clients have no conflicts to
/// resolve.
pub(super) fn serve_conflicts(service: &RegionService, call: &Call) -> Result<Answer, Refusal> {
    let (database, container) = service.container(call)?;
    if call.method == Method::POST && call.partition_key()?.is_none() {
        queries::check_crosses_partitions(call)?;
    }
    match call.method {
        Method::GET | Method::POST => Ok(Answer::feed(&container.rid_text, "Conflicts", &[])
            .charged(1.0)
            .at(position_of(service, &container)?)
            .with_content_path(&database, &container)),
        _ => Err(method_not_allowed(&call.method)),
    }
}

/// The position of a container's first range, for answers that concern the whole
/// container.
pub(super) fn position_of(service: &RegionService, container: &Container) -> Result<Position, Refusal> {
    let state = service.engine.state(container)?;
    let range = container.ranges.first().map_or(0, |range| range.id);
    Ok(state.position(range))
}

fn feed(service: &RegionService, database: &Database, page: &Page) -> Answer {
    page.add_continuation_to(Answer::feed(&database.rid.to_text(), "DocumentCollections", &page.bodies))
        .charged(charge::FEED)
        .at(account_position(service))
        .with_header(headers::ALT_CONTENT_PATH, format!("dbs/{}", database.name))
        .with_header(headers::CONTENT_PATH, database.rid.to_text())
}

/// The answer about one container. It has the position of the container's data, not of
/// the account, because SDKs store the session token under the container.
fn answer(
    service: &RegionService,
    status: Status,
    database: &Database,
    container: &Container,
    charge: f64,
) -> Result<Answer, Refusal> {
    Ok(Answer::json(status, &container.body())
        .charged(charge)
        .at(position_of(service, container)?)
        .with_etag(&container.etag)
        .with_header(headers::ALT_CONTENT_PATH, format!("dbs/{}", database.name))
        .with_static_header(headers::MAX_CONTENT_LENGTH, "2097152"))
}
