//! The management interface: health, counters, faults, splits, pause, reset,
//! regions.
//!
//! Health paths are open to all clients. The other paths start with [`PREFIX`]. A
//! server answers them only if it was started with `--management`, an embedded database
//! always. A request from the network is answered only if no web page can have sent it:
//! it has no `Origin` header, and its `Host` is a loopback name. Otherwise a web page in a
//! browser on this machine could use the interface, for example by DNS rebinding.

mod regions;

use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use perihelion_engine::{Catalog, Container, RangeId, Refusal};
use perihelion_model::json::{self, Object, Style, Value, object};
use perihelion_wire::status;
use perihelion_wire::transport::is_loopback;

use crate::routes::RegionService;

/// The prefix of all management paths.
pub(crate) const PREFIX: &str = "/_perihelion/";

/// The message for an unknown path.
const UNKNOWN_PATH: &str = "This is not a management path. The paths are GET/DELETE counters, GET/POST/DELETE faults, GET regions, and POST split, pause, resume, maintain, reset, regions/offline, regions/online, regions/write, regions/partition-failover, replication/delay, replication/cut, replication/heal, replication/wait.";

/// Answers the paths that need no signature: health, and the paths of the emulator
/// image that test containers fetch. `None` for any other path.
pub(crate) fn answer_unsigned(
    service: &RegionService,
    method: &Method,
    path: &str,
) -> Option<Response<Bytes>> {
    if !matches!(*method, Method::GET | Method::HEAD) {
        return None;
    }
    match path {
        "/alive" | "/ready" | "/status" | "/_perihelion/health" | "/_perihelion/ready" => {
            // The catalog in memory was loaded from the store, so an answer proves that
            // the store was opened. It does not prove that the store still works.
            let databases = service.engine.catalog().databases.len() as u64;
            Some(json_response(StatusCode::OK, &object([("status", "ok".into()), ("databases", databases.into())])))
        }
        "/_explorer/emulator.pem" => Some(text_response("application/x-pem-file", service.account.ca_pem.clone())),
        "/_explorer/index.html" => Some(text_response(
            "text/html; charset=utf-8",
            "<!doctype html><title>Perihelion</title><p>This is Perihelion, a Cosmos-compatible database.</p>".to_owned(),
        )),
        _ => None,
    }
}

/// Serves a request under [`PREFIX`]. The host of a trusted request, which comes from
/// this process, is not checked.
pub(crate) async fn serve(
    service: &RegionService,
    request: Request<Bytes>,
    is_trusted: bool,
) -> Response<Bytes> {
    let (parts, body) = request.into_parts();
    if !service.account.has_management {
        return error_response(
            StatusCode::NOT_FOUND,
            "The management interface is off; start the server with --management.",
        );
    }
    let is_local = is_trusted || is_local_host(&parts);
    if parts.headers.contains_key("origin") || !is_local {
        return error_response(
            StatusCode::FORBIDDEN,
            "The management interface answers local tools only, not web pages.",
        );
    }
    let name = parts.uri.path().strip_prefix(PREFIX).unwrap_or_default().trim_end_matches('/');
    let body = if body.is_empty() { Ok(Object::new()) } else { parse_object(&body) };
    let outcome = match body {
        Ok(body) => answer(service, &parts.method, name, body).await,
        Err(refusal) => Err(refusal),
    };
    match outcome {
        Ok(answer) => json_response(StatusCode::OK, &answer),
        Err(refusal) => {
            let status = StatusCode::from_u16(refusal.status).unwrap_or(StatusCode::BAD_REQUEST);
            error_response(status, &refusal.message)
        }
    }
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

/// Whether the request names a host, and every host that it names is this machine.
fn is_local_host(parts: &Parts) -> bool {
    let host_headers =
        parts.headers.get_all(http::header::HOST).iter().map(|host| host.to_str().unwrap_or_default());
    let mut hosts = host_headers.chain(parts.uri.authority().map(|authority| authority.as_str())).peekable();
    hosts.peek().is_some() && hosts.all(is_local_authority)
}

/// Whether a host with an optional port is this machine.
fn is_local_authority(authority: &str) -> bool {
    is_loopback(match authority.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    })
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

fn error_response(status: StatusCode, message: &str) -> Response<Bytes> {
    json_response(status, &object([("error", message.into())]))
}

fn json_response(status: StatusCode, body: &Value) -> Response<Bytes> {
    let mut response = text_response("application/json", json::to_text(body, Style::Point));
    *response.status_mut() = status;
    response
}

fn text_response(content_type: &'static str, body: String) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from(body));
    response.headers_mut().insert(http::header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}
