//! Databases: create, read, delete, list, query.

use http::Method;
use perihelion_engine::{Database, Position, Refusal, Throughput, charge};
use perihelion_model::json::Value;
use perihelion_model::resource_id::DatabaseRid;
use perihelion_wire::headers;
use perihelion_wire::status::{self, Status};

use super::pages::Page;
use super::{RegionService, method_not_allowed, queries};
use crate::answer::Answer;
use crate::call::Call;

pub(super) async fn serve_feed(service: &RegionService, call: &Call) -> Result<Answer, Refusal> {
    match call.method {
        Method::GET => Ok(feed(service, &Page::requested(call, bodies(service), DatabaseRid::parse)?)),
        Method::POST if call.is_query() => {
            let bodies = bodies(service).into_iter().map(|(_, body)| body).collect();
            Ok(feed(service, &Page::of_all(queries::run_over_metadata(service, call, bodies)?)))
        }
        Method::POST => {
            let (body, throughput) = (call.object()?, throughput_from_headers(call)?);
            let database = service
                .change_catalog(move |engine| async move { engine.create_database(body, throughput).await })
                .await?;
            Ok(answer(service, status::CREATED, &database, charge::METADATA_CREATE))
        }
        _ => Err(method_not_allowed(&call.method)),
    }
}

pub(super) async fn serve(service: &RegionService, call: &Call, name: &str) -> Result<Answer, Refusal> {
    match call.method {
        Method::GET => {
            let catalog = service.engine.catalog();
            let database = catalog.database(name).ok_or_else(Refusal::no_such_resource)?;
            if call.precondition().if_none_match.as_deref() == Some(database.etag.as_str()) {
                return Ok(Answer::empty(status::NOT_MODIFIED)
                    .charged(1.0)
                    .with_etag(&database.etag)
                    .at(account_position(service)));
            }
            Ok(answer(service, status::OK, database, charge::METADATA_READ).with_content_location())
        }
        Method::DELETE => {
            let name = name.to_owned();
            service.change_catalog(move |engine| async move { engine.delete_database(&name).await }).await?;
            Ok(Answer::empty(status::NO_CONTENT)
                .charged(charge::METADATA_DELETE)
                .at(account_position(service))
                .with_content_location())
        }
        _ => Err(method_not_allowed(&call.method)),
    }
}

/// The position of the account's own partition, which holds the definitions of databases
/// and containers.
pub(super) fn account_position(service: &RegionService) -> Position {
    Position { range: 0, lsn: service.engine.catalog().account.lsn, applied_lsns: None }
}

/// The throughput that the headers ask for: manual, or autoscale up to a maximum; `None`
/// when no header asks for one.
pub(super) fn throughput_from_headers(call: &Call) -> Result<Option<Throughput>, Refusal> {
    let bad = |name: &str| Refusal::gateway(status::BAD_REQUEST, format!("The {name} header is invalid."));
    if let Some(settings) = call.header(&headers::OFFER_AUTOPILOT_SETTINGS) {
        let settings = perihelion_model::json::parse_str(settings).ok();
        let max = settings.as_ref().and_then(|settings| settings.get("maxThroughput")?.as_i64());
        if let Some(max) = max.filter(|max| *max < 0) {
            return Err(Refusal::autoscale_too_small(max));
        }
        let autoscale = settings.as_ref().and_then(Throughput::from_settings);
        return autoscale.map(Some).ok_or_else(|| bad("x-ms-cosmos-offer-autopilot-settings"));
    }
    match call.header(&headers::OFFER_THROUGHPUT) {
        None => Ok(None),
        Some(text) => text
            .parse()
            .map(|units| Some(Throughput::Manual(units)))
            .map_err(|_| bad("x-ms-offer-throughput")),
    }
}

/// The bodies of all databases, each with its `_rid`.
fn bodies(service: &RegionService) -> Vec<(DatabaseRid, Value)> {
    service.engine.catalog().databases.values().map(|database| (database.rid, database.body())).collect()
}

fn feed(service: &RegionService, page: &Page) -> Answer {
    page.add_continuation_to(Answer::feed("", "Databases", &page.bodies))
        .charged(charge::FEED)
        .at(account_position(service))
}

fn answer(service: &RegionService, status: Status, database: &Database, charge: f64) -> Answer {
    Answer::json(status, &database.body())
        .charged(charge)
        .at(account_position(service))
        .with_etag(&database.etag)
}
