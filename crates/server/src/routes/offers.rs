//! Offers: the throughput of databases and containers.

use http::Method;
use perihelion_engine::{Offer, Refusal, Throughput, charge};
use perihelion_model::json::Value;
use perihelion_wire::{headers, status};

use super::databases::account_position;
use super::{RegionService, method_not_allowed, queries};
use crate::answer::Answer;
use crate::call::Call;

pub(super) fn serve_feed(service: &RegionService, call: &Call) -> Result<Answer, Refusal> {
    let bodies: Vec<Value> = service.engine.catalog().offers.values().map(|offer| offer.body()).collect();
    let offers = match call.method {
        Method::GET => bodies,
        Method::POST if call.is_query() => queries::run_over_metadata(service, call, bodies)?,
        _ => return Err(method_not_allowed(&call.method)),
    };
    Ok(Answer::feed("", "Offers", &offers).charged(charge::FEED).at(account_position(service)))
}

pub(super) async fn serve(service: &RegionService, call: &Call, rid: &str) -> Result<Answer, Refusal> {
    let catalog = service.engine.catalog();
    let offer = catalog.offer(rid).ok_or_else(Refusal::no_such_resource)?;
    match call.method {
        Method::GET => Ok(answer(service, offer)),
        Method::PUT => {
            let throughput = requested_throughput(call, offer)?;
            let rid = rid.to_owned();
            let offer = service
                .change_catalog(move |engine| async move { engine.replace_offer(&rid, throughput).await })
                .await?;
            Ok(answer(service, &offer))
        }
        _ => Err(method_not_allowed(&call.method)),
    }
}

/// The lowest autoscale maximum, in request units per second.
const AUTOSCALE_MIN: u64 = 1000;

/// The new throughput. It follows from the old throughput when a header asks for a change
/// between manual and autoscale. Otherwise the body names it.
fn requested_throughput(call: &Call, offer: &Offer) -> Result<Throughput, Refusal> {
    let units = offer.throughput.request_units();
    if call.flag(&headers::MIGRATE_OFFER_TO_AUTOPILOT) {
        // An autoscale maximum is a multiple of 1000. Here the server chooses it and not the client,
        // so the old throughput is rounded up instead of refused.
        let max = units.max(AUTOSCALE_MIN).next_multiple_of(AUTOSCALE_MIN);
        return Ok(Throughput::Autoscale { max, increment_percent: None });
    }
    if call.flag(&headers::MIGRATE_OFFER_TO_MANUAL) {
        return Ok(Throughput::Manual(units));
    }
    let body = call.json()?;
    body.get("content").and_then(Throughput::from_content).ok_or_else(|| {
        Refusal::bad_request("The offer's content has neither offerThroughput nor offerAutopilotSettings.")
    })
}

fn answer(service: &RegionService, offer: &Offer) -> Answer {
    Answer::json(status::OK, &offer.body())
        .charged(charge::METADATA_READ)
        .at(account_position(service))
        .with_etag(&offer.etag)
        .with_static_header(headers::OFFER_REPLACE_PENDING, "false")
        .with_content_location()
}
