//! Management of the regions: outages, the write region, replication delays and
//! cut links.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use perihelion_engine::Refusal;
use perihelion_model::json::{Object, Value};
use perihelion_wire::status;

use super::{done, named_range};
use crate::regions::{CATCH_UP_TIMEOUT, Outage, Regions};

/// The longest replication delay, in milliseconds.
const DELAY_MS_MAX: u64 = 60_000;
/// The longest timeout of a request that waits for replication, in milliseconds.
const WAIT_MS_MAX: u64 = 60_000;

/// Answers a request about regions; `None` when the path is not about regions.
pub(crate) async fn answer(
    regions: &Arc<Regions>,
    method: &Method,
    name: &str,
    body: &Object,
) -> Option<Result<Value, Refusal>> {
    let outcome = match (method, name) {
        (&Method::GET, "regions") => Ok(()),
        (&Method::POST, "regions/offline") => begin_outage(regions, body),
        (&Method::POST, "regions/online") => {
            named_region(regions, body).map(|region| regions.set_outage(region, None))
        }
        (&Method::POST, "regions/write") => change_write_region(regions, body).await,
        (&Method::POST, "regions/partition-failover") => set_partition_failover(regions, body),
        (&Method::POST, "replication/delay") => set_delay(regions, body),
        (&Method::POST, "replication/cut") => {
            named_region(regions, body).map(|region| regions.set_cut(region, true))
        }
        (&Method::POST, "replication/heal") => named_regions(regions, body)
            .map(|chosen| chosen.into_iter().for_each(|region| regions.set_cut(region, false))),
        (&Method::POST, "replication/wait") => match timeout(body) {
            Ok(timeout) => regions.wait_until_replicated(timeout).await,
            Err(refusal) => Err(refusal),
        },
        _ => return None,
    };
    Some(outcome.map(|()| if *method == Method::GET { regions.report() } else { done() }))
}

/// Changes the write region of the account, or of one range if the body names a range.
async fn change_write_region(regions: &Arc<Regions>, body: &Object) -> Result<(), Refusal> {
    let (region, timeout) = (named_region(regions, body)?, timeout(body)?);
    if !["database", "container", "range"].iter().any(|name| body.contains(name)) {
        return regions.change_write_region(region, timeout).await;
    }
    // The container is looked up in the catalog region, because the target region may not have a new
    // container yet. The move copies the catalog to the target region first.
    let (container, range) = named_range(&regions.catalog_engine().catalog(), body)?;
    regions.move_range(&container, range, region, timeout).await
}

fn set_partition_failover(regions: &Regions, body: &Object) -> Result<(), Refusal> {
    let bad = || Refusal::gateway(status::BAD_REQUEST, "'enabled' must be true or false.");
    let Some(Value::Bool(is_on)) = body.get("enabled") else { return Err(bad()) };
    regions.set_partition_failover(*is_on);
    Ok(())
}

fn begin_outage(regions: &Regions, body: &Object) -> Result<(), Refusal> {
    let mode = match body.get("mode") {
        None => Some(Outage::Drop),
        Some(mode) => mode.as_str().and_then(Outage::parse),
    };
    let mode = mode.ok_or_else(|| {
        let known: Vec<&str> = Outage::ALL.iter().map(|(_, name)| *name).collect();
        Refusal::gateway(status::BAD_REQUEST, format!("'mode' must be one of {}.", known.join(", ")))
    })?;
    regions.set_outage(named_region(regions, body)?, Some(mode));
    Ok(())
}

fn set_delay(regions: &Regions, body: &Object) -> Result<(), Refusal> {
    let delay = milliseconds(body, "milliseconds", DELAY_MS_MAX)?
        .ok_or_else(|| Refusal::gateway(status::BAD_REQUEST, "'milliseconds' is missing."))?;
    for region in named_regions(regions, body)? {
        regions.set_delay(region, delay);
    }
    Ok(())
}

fn timeout(body: &Object) -> Result<Duration, Refusal> {
    Ok(milliseconds(body, "timeoutMs", WAIT_MS_MAX)?.unwrap_or(CATCH_UP_TIMEOUT))
}

/// A number of milliseconds in the body; `None` when the member is missing. More than
/// `max` is refused.
fn milliseconds(body: &Object, name: &str, max: u64) -> Result<Option<Duration>, Refusal> {
    let Some(value) = body.get(name) else { return Ok(None) };
    let value = value.as_i64().and_then(|value| u64::try_from(value).ok()).filter(|value| *value <= max);
    let bad = || Refusal::gateway(status::BAD_REQUEST, format!("'{name}' must be a number from 0 to {max}."));
    Ok(Some(Duration::from_millis(value.ok_or_else(bad)?)))
}

/// The region that a request names.
fn named_region(regions: &Regions, body: &Object) -> Result<usize, Refusal> {
    let missing = || Refusal::gateway(status::BAD_REQUEST, "'region' is missing.");
    let name = body.get("region").and_then(Value::as_str).ok_or_else(missing)?;
    let unknown = || {
        Refusal::gateway(
            status::BAD_REQUEST,
            format!("'{name}' is not a region. The regions are {}.", regions.names),
        )
    };
    regions.names.find(name).ok_or_else(unknown)
}

/// The region that a request names, or all regions when it names none.
fn named_regions(regions: &Regions, body: &Object) -> Result<Vec<usize>, Refusal> {
    if body.contains("region") {
        return Ok(vec![named_region(regions, body)?]);
    }
    Ok((0..regions.len()).collect())
}
