//! The management interface: health, counters, metrics, faults, splits, pause, reset,
//! regions.
//!
//! Health paths, and the paths `/_explorer` of the official emulator image, are open to all clients.
//! The other paths start with [`PREFIX`], or are `/metrics`. A server answers them only if it was started
//! with `--management`; an embedded database always answers them. `access` decides which requests from
//! the network are answered.

mod access;
mod metrics;
pub(crate) mod regions;

use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use perihelion_engine::{Catalog, Container, Health, RangeId, Refusal};
use perihelion_model::json::{self, Object, Style, Value, object};
use perihelion_model::metrics::PROMETHEUS_CONTENT_TYPE;
use perihelion_wire::status;

pub(crate) use access::Origin;
pub(crate) use metrics::read as read_metrics;

use crate::routes::RegionService;

/// The prefix of all management paths but [`METRICS_PATH`].
pub(crate) const PREFIX: &str = "/_perihelion/";

/// The path where monitoring systems look for metrics by default. It is a part of the management
/// interface, with the same rules of access.
const METRICS_PATH: &str = "/metrics";

/// Whether a path belongs to the management interface.
pub(crate) fn is_path(path: &str) -> bool {
    path.starts_with(PREFIX) || path == METRICS_PATH
}

/// The largest body of a management request. Such a body has a few members with names and numbers.
const BODY_BYTES_MAX: u64 = 64 * 1024;

const BODY_TOO_LARGE: &str = "The body of a management request has at most 64 KiB.";

/// The message for an unknown path.
const UNKNOWN_PATH: &str = "This is not a management path. The paths are GET/DELETE counters, GET/POST/DELETE faults, GET regions, and POST split, pause, resume, maintain, reset, regions/offline, regions/online, regions/write, regions/partition-failover, replication/delay, replication/cut, replication/heal, replication/wait.";

/// Answers the paths that need no signature: health, and the paths `/_explorer` of the official
/// emulator image, which browsers and test libraries such as Testcontainers fetch. `None` for any
/// other path.
pub(crate) fn answer_unsigned(
    service: &RegionService,
    method: &Method,
    path: &str,
) -> Option<Response<Bytes>> {
    if !matches!(*method, Method::GET | Method::HEAD) {
        return None;
    }
    match path {
        "/alive" | "/_perihelion/health" => Some(health(service, false)),
        "/ready" | "/status" | "/_perihelion/ready" => Some(health(service, true)),
        "/_explorer/emulator.pem" => {
            Some(text_response("application/x-pem-file", service.account.ca_pem.clone()))
        }
        "/_explorer" | "/_explorer/" => service.account.explorer.get().map(|to| redirect(to)),
        "/_explorer/index.html" => Some(explorer(service)),
        _ => None,
    }
}

/// The health of the server: whether it is ready if `is_readiness` is true, else whether it is alive.
/// A server whose disk is full is alive, because it answers reads and the disk may get free space
/// again, but it is not ready. A server whose store has failed is neither alive nor ready.
fn health(service: &RegionService, is_readiness: bool) -> Response<Bytes> {
    let databases = service.engine.catalog().databases.len() as u64;
    let (status, text, reason) = match service.account.regions.health() {
        Health::Ok => (StatusCode::OK, "ok", None),
        Health::Full if is_readiness => {
            (StatusCode::SERVICE_UNAVAILABLE, "full", Some("The disk has no room for writes.".to_owned()))
        }
        Health::Full => (StatusCode::OK, "full", None),
        Health::Failed(reason) => (StatusCode::SERVICE_UNAVAILABLE, "failed", Some(reason)),
    };
    let mut body = Object::new();
    body.set("status", text.into());
    body.set("databases", databases.into());
    if let Some(reason) = reason {
        body.set("error", reason.into());
    }
    json_response(status, &Value::Object(body))
}

/// Serves a request to the management interface.
pub(crate) async fn serve(
    service: &RegionService,
    request: Request<Bytes>,
    origin: Origin,
) -> Response<Bytes> {
    let (parts, body) = request.into_parts();
    if let Err(refusal) = check(service, &parts, origin, Some(body.len() as u64)) {
        return refusal_response(&refusal);
    }
    if parts.uri.path() == METRICS_PATH {
        return match parts.method {
            Method::GET | Method::HEAD => {
                text_response(PROMETHEUS_CONTENT_TYPE, metrics::read(service).prometheus_text())
            }
            _ => refusal_response(&Refusal::gateway(status::METHOD_NOT_ALLOWED, "Metrics can only be read.")),
        };
    }
    let name = parts.uri.path().strip_prefix(PREFIX).unwrap_or_default().trim_end_matches('/');
    let body = if body.is_empty() { Ok(Object::new()) } else { parse_object(&body) };
    let outcome = match body {
        Ok(body) => answer(service, &parts.method, name, body).await,
        Err(refusal) => Err(refusal),
    };
    match outcome {
        Ok(answer) => json_response(StatusCode::OK, &answer),
        Err(refusal) => refusal_response(&refusal),
    }
}

/// Refuses a request to the management interface before its body is read. `None` if the body has to
/// be read. A body of unknown length is read if its sender has access.
pub(crate) fn refuse_head(service: &RegionService, head: &Parts, origin: Origin) -> Option<Response<Bytes>> {
    let length = head.headers.get(http::header::CONTENT_LENGTH);
    let bytes = length.and_then(|length| length.to_str().ok()?.parse().ok());
    check(service, head, origin, bytes).err().map(|refusal| refusal_response(&refusal))
}

/// Refuses a request without access, and a body that is too large.
fn check(
    service: &RegionService,
    head: &Parts,
    origin: Origin,
    body_bytes: Option<u64>,
) -> Result<(), Refusal> {
    if !service.account.has_management {
        return Err(Refusal::gateway(
            status::NOT_FOUND,
            "The management interface is off; start the server with --management.",
        ));
    }
    let now = service.engine.clock().seconds();
    access::check(head, origin, &service.account.authenticator, now)?;
    if body_bytes.is_some_and(|bytes| bytes > BODY_BYTES_MAX) {
        return Err(Refusal::gateway(status::TOO_LARGE, BODY_TOO_LARGE));
    }
    Ok(())
}

async fn answer(
    service: &RegionService,
    method: &Method,
    name: &str,
    body: Object,
) -> Result<Value, Refusal> {
    let account = &service.account;
    match (method, name) {
        (&Method::GET, "counters") => Ok(account.counters.report(&account.regions.names)),
        (&Method::DELETE, "counters") => {
            account.counters.clear();
            Ok(done())
        }
        (&Method::GET, "faults") => Ok(account.faults.report()),
        (&Method::POST, "faults") => {
            let id = account.faults.add(&body, &account.regions.names)?;
            Ok(object([("id", id.into())]))
        }
        (&Method::DELETE, "faults") => {
            account.faults.clear();
            Ok(done())
        }
        (&Method::POST, "split") => split(service, &body).await,
        (&Method::POST, "pause") => {
            account.pause.set(true);
            Ok(done())
        }
        (&Method::POST, "resume") => {
            account.pause.set(false);
            Ok(done())
        }
        (&Method::POST, "maintain") => account.regions.maintain().await.map(|()| done()),
        (&Method::POST, "reset") => reset(service).await,
        _ => match regions::answer(&account.regions, method, name, &body).await {
            Some(outcome) => outcome,
            None => Err(Refusal::gateway(status::NOT_FOUND, UNKNOWN_PATH)),
        },
    }
}

async fn split(service: &RegionService, body: &Object) -> Result<Value, Refusal> {
    let (container, range) = named_range(&service.engine.catalog(), body)?;
    let children = service.account.regions.split(&container, range).await?;
    Ok(object([("children", Value::Array(children.iter().map(|id| id.to_string().into()).collect()))]))
}

/// The range that the body names by `database`, `container` and `range`. Without `range` it is
/// the first range of the container.
fn named_range(catalog: &Catalog, body: &Object) -> Result<(Arc<Container>, RangeId), Refusal> {
    let text = |name: &str| {
        body.get(name)
            .and_then(Value::as_str)
            .ok_or_else(|| Refusal::gateway(status::BAD_REQUEST, format!("'{name}' is missing.")))
    };
    let container = catalog
        .container(text("database")?, text("container")?)
        .cloned()
        .ok_or_else(Refusal::no_such_resource)?;
    let range = match body.get("range") {
        None => container.ranges.first().map_or(0, |range| range.id),
        Some(Value::String(id)) => {
            id.parse().map_err(|_| Refusal::gateway(status::BAD_REQUEST, "'range' is not a range id."))?
        }
        Some(value) => value
            .as_i64()
            .and_then(|id| u32::try_from(id).ok())
            .ok_or_else(|| Refusal::gateway(status::BAD_REQUEST, "'range' is not a range id."))?,
    };
    Ok((container, range))
}

/// Deletes every database, runs maintenance, clears counters and faults, and ends a
/// pause. Outages, the write region, replication delays and cuts stay as they are.
async fn reset(service: &RegionService) -> Result<Value, Refusal> {
    let names: Vec<String> = service.engine.catalog().databases.keys().cloned().collect();
    let regions = &service.account.regions;
    for name in names {
        regions.change_catalog(move |engine| async move { engine.delete_database(&name).await }).await?;
    }
    regions.maintain().await?;
    service.account.counters.clear();
    service.account.faults.clear();
    service.account.pause.set(false);
    Ok(done())
}

fn parse_object(body: &[u8]) -> Result<Object, Refusal> {
    match json::parse(body) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err(Refusal::gateway(status::BAD_REQUEST, "The body must be a JSON object.")),
        Err(error) => Err(Refusal::gateway(status::BAD_REQUEST, format!("The body is not JSON: {error}."))),
    }
}

fn done() -> Value {
    object([("done", true.into())])
}

fn refusal_response(refusal: &Refusal) -> Response<Bytes> {
    let status = StatusCode::from_u16(refusal.status).unwrap_or(StatusCode::BAD_REQUEST);
    error_response(status, &refusal.message)
}

fn error_response(status: StatusCode, message: &str) -> Response<Bytes> {
    json_response(status, &object([("error", message.into())]))
}

fn json_response(status: StatusCode, body: &Value) -> Response<Bytes> {
    let mut response = text_response("application/json", json::to_text(body, Style::Point));
    *response.status_mut() = status;
    response
}

/// The start page of the emulator's explorer: the dashboard if there is one.
fn explorer(service: &RegionService) -> Response<Bytes> {
    let text =
        "<!doctype html><title>Perihelion</title><p>This is Perihelion, a Cosmos-compatible database.</p>";
    match service.account.explorer.get() {
        Some(to) => redirect(to),
        None => text_response("text/html; charset=utf-8", text.to_owned()),
    }
}

/// Redirects a browser to `to`. The redirect is temporary, because it holds only while this server
/// runs.
fn redirect(to: &str) -> Response<Bytes> {
    let mut response = text_response("text/plain; charset=utf-8", to.to_owned());
    *response.status_mut() = StatusCode::TEMPORARY_REDIRECT;
    if let Ok(location) = HeaderValue::from_str(to) {
        response.headers_mut().insert(http::header::LOCATION, location);
    }
    response
}

fn text_response(content_type: &'static str, body: String) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from(body));
    response.headers_mut().insert(http::header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}
