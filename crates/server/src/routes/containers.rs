//! Containers: create, read, replace, delete, list, query.

use http::Method;
use perihelion_engine::{Container, Database, ParsedDefinition, Position, Refusal, Usage, charge};
use perihelion_model::resource_id::ContainerRid;
use perihelion_wire::headers;
use perihelion_wire::status::{self, Status};

use super::databases::{position, throughput};
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
            let definition = ParsedDefinition::parse(call.object()?, call.api_version())?;
            let throughput = throughput(call)?;
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
                let position = position_in(service, &container)?;
                return Ok(Answer::empty(status::NOT_MODIFIED)
                    .charged(1.0)
                    .with_etag(&container.etag)
                    .at(position));
            }
            let state = service.engine.state(&container)?;
            let usage = Usage { documents: state.documents(), bytes: state.bytes() };
            let answer = answer(service, status::OK, database, &container, charge::METADATA_READ)?
                .with_content_location();
            Ok(answer
                .with_header(headers::ITEM_LSN, catalog.account.lsn.to_string())
                .with_header(headers::CONTENT_PATH, database.rid.to_text())
                .with_usage(usage))
        }
        Method::PUT => {
            check_match(call, &container)?;
            let definition = ParsedDefinition::parse(call.object()?, call.api_version())?;
            let container = service
                .change_catalog(move |engine| async move {
                    engine.replace_container(&container, definition).await
                })
                .await?;
            Ok(answer(service, status::OK, database, &container, charge::METADATA_CREATE)?
                .with_content_location())
        }
        Method::DELETE => {
            check_match(call, &container)?;
            service
                .change_catalog(move |engine| async move { engine.delete_container(&container).await })
                .await?;
            Ok(Answer::empty(status::NO_CONTENT)
                .charged(charge::METADATA_DELETE)
                .at(position(service))
                .with_content_location())
        }
        _ => Err(method_not_allowed(&call.method)),
    }
}

/// Answers an empty conflict feed: the last writer wins, so no conflict is left for
/// a client.
pub(super) fn serve_conflicts(service: &RegionService, call: &Call) -> Result<Answer, Refusal> {
    let (database, container) = service.container(call)?;
    match call.method {
        Method::GET | Method::POST => Ok(Answer::feed(&container.rid_text, "Conflicts", &[])
            .charged(1.0)
            .at(position_in(service, &container)?)
            .with_content_path(&database, &container)),
        _ => Err(method_not_allowed(&call.method)),
    }
}

/// The position of a container's first range, for answers that concern the whole
/// container.
pub(super) fn position_in(service: &RegionService, container: &Container) -> Result<Position, Refusal> {
    let state = service.engine.state(container)?;
    let range = container.ranges.first().map_or(0, |range| range.id);
    Ok(state.position(range))
}

/// Refuses a request whose `If-Match` does not fit the container's etag.
fn check_match(call: &Call, container: &Container) -> Result<(), Refusal> {
    match call.precondition().if_match {
        Some(condition) if !perihelion_model::etag::matches(&condition, &container.etag) => {
            Err(Refusal::precondition_failed().with_charge(charge::PRECONDITION_FAILED))
        }
        _ => Ok(()),
    }
}

fn feed(service: &RegionService, database: &Database, page: &Page) -> Answer {
    page.add_continuation_to(Answer::feed(&database.rid.to_text(), "DocumentCollections", &page.bodies))
        .charged(charge::FEED)
        .at(position(service))
        .with_header(headers::ALT_CONTENT_PATH, format!("dbs/{}", database.name))
        .with_header(headers::CONTENT_PATH, database.rid.to_text())
}

/// An answer about a container has the position of its data, not of the account:
/// SDKs store the session token under the container.
fn answer(
    service: &RegionService,
    status: Status,
    database: &Database,
    container: &Container,
    charge: f64,
) -> Result<Answer, Refusal> {
    Ok(Answer::json(status, &container.body())
        .charged(charge)
        .at(position_in(service, container)?)
        .with_etag(&container.etag)
        .with_header(headers::ALT_CONTENT_PATH, format!("dbs/{}", database.name))
        .with_static_header(headers::MAX_CONTENT_LENGTH, "2097152"))
}
