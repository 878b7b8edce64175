//! The management interface: health, counters, faults, splits, pause, reset,
//! regions.
//!
//! Health paths are open to everyone. The rest lives under one reserved
//! prefix, is off unless the server was started with it, and answers only
//! requests that a web page cannot make: no `Origin`, and a loopback `Host`
//! (a page can reach a local port, and DNS can be rebound to it).

mod regions;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderValue, Method, Response, StatusCode};
use perihelion_engine::Refusal;
use perihelion_model::json::{self, Number, Object, Style, Value, object};
use tokio::sync::watch;

use crate::call::Call;
use crate::faults::{Fault, FaultRules};
use crate::operation::Operation;
use crate::regions::RegionNames;
use crate::routes::{Asker, Service};

/// Everything below is management.
pub(crate) const PREFIX: &str = "/_perihelion/";

/// What is said of a path that is not there.
const KNOWN: &str = "There is GET/DELETE counters, GET/POST/DELETE faults, GET regions, and POST split, pause, resume, maintain, reset, regions/offline, regions/online, regions/write, replication/delay, replication/cut, replication/heal, replication/wait.";

/// The state that management looks at and changes.
pub(crate) struct Management {
    is_enabled: bool,
    /// By region, and within it by kind of request.
    counters: Mutex<BTreeMap<(usize, Operation), Counter>>,
    faults: FaultRules,
    /// Fast path: no rule, no lock.
    has_faults: AtomicBool,
    pause: watch::Sender<bool>,
}

/// What one kind of request added up to.
#[derive(Debug, Clone, Default)]
struct Counter {
    requests: u64,
    request_units: f64,
    statuses: BTreeMap<u16, u64>,
}

impl Management {
    pub(crate) fn new(is_enabled: bool) -> Self {
        Management {
            is_enabled,
            counters: Mutex::default(),
            faults: FaultRules::default(),
            has_faults: AtomicBool::new(false),
            pause: watch::Sender::new(false),
        }
    }

    pub(crate) fn count(&self, region: usize, operation: Operation, status: u16, charge: f64) {
        if !self.is_enabled {
            return;
        }
        let mut counters = self.counters.lock().unwrap_or_else(PoisonError::into_inner);
        let counter = counters.entry((region, operation)).or_default();
        counter.requests += 1;
        counter.request_units += charge;
        *counter.statuses.entry(status).or_default() += 1;
    }

    pub(crate) fn fault_for(&self, operation: Operation, call: &Call, region: usize) -> Option<Fault> {
        if !self.has_faults.load(Ordering::Acquire) {
            return None;
        }
        self.faults.pick(operation, call.resource.container(), region)
    }

    /// Returns at once unless the server is paused.
    pub(crate) async fn wait_while_paused(&self) {
        if *self.pause.borrow() {
            // The sender lives as long as we do, so this ends with a resume.
            let _ = self.pause.subscribe().wait_for(|is_paused| !is_paused).await;
        }
    }
}

/// Paths that need no signature: health, and what test containers fetch.
pub(crate) fn open_path(service: &Service, method: &Method, path: &str) -> Option<Response<Bytes>> {
    if !matches!(*method, Method::GET | Method::HEAD) {
        return None;
    }
    match path {
        "/alive" | "/ready" | "/status" | "/_perihelion/health" | "/_perihelion/ready" => {
            // Answering at all needs the store: a catalog that was loaded.
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

/// Serves a request under [`PREFIX`].
pub(crate) async fn serve(service: &Service, parts: &Parts, body: &Bytes, asker: Asker) -> Response<Bytes> {
    if !service.account.management.is_enabled {
        return problem(
            StatusCode::NOT_FOUND,
            "The management interface is off; start the server with --management.",
        );
    }
    let is_local = asker == Asker::SameProcess || is_local_host(parts);
    if parts.headers.contains_key("origin") || !is_local {
        return problem(
            StatusCode::FORBIDDEN,
            "The management interface answers local tools only, not web pages.",
        );
    }
    let name = parts.uri.path().strip_prefix(PREFIX).unwrap_or_default().trim_end_matches('/');
    let body = if body.is_empty() { Ok(Object::new()) } else { parse(body) };
    let outcome = match body {
        Ok(body) => dispatch(service, &parts.method, name, body).await,
        Err(refusal) => Err(refusal),
    };
    match outcome {
        Ok(answer) => json_response(StatusCode::OK, &answer),
        Err(refusal) => {
            let status = StatusCode::from_u16(refusal.status).unwrap_or(StatusCode::BAD_REQUEST);
            problem(status, &refusal.message)
        }
    }
}

async fn dispatch(service: &Service, method: &Method, name: &str, body: Object) -> Result<Value, Refusal> {
    let management = &service.account.management;
    match (method, name) {
        (&Method::GET, "counters") => Ok(management.report(&service.account.regions.names)),
        (&Method::DELETE, "counters") => {
            management.counters.lock().unwrap_or_else(PoisonError::into_inner).clear();
            Ok(done())
        }
        (&Method::GET, "faults") => Ok(management.faults.report()),
        (&Method::POST, "faults") => {
            let id = management.faults.add(&body, &service.account.regions.names)?;
            management.has_faults.store(true, Ordering::Release);
            Ok(object([("id", id.into())]))
        }
        (&Method::DELETE, "faults") => {
            management.faults.clear();
            management.has_faults.store(false, Ordering::Release);
            Ok(done())
        }
        (&Method::POST, "split") => split(service, &body).await,
        (&Method::POST, "pause") => {
            management.pause.send_replace(true);
            Ok(done())
        }
        (&Method::POST, "resume") => {
            management.pause.send_replace(false);
            Ok(done())
        }
        (&Method::POST, "maintain") => service.account.regions.maintain().await.map(|()| done()),
        (&Method::POST, "reset") => reset(service).await,
        _ => match regions::dispatch(&service.account.regions, method, name, &body).await {
            Some(outcome) => outcome,
            None => Err(Refusal::gateway(404, KNOWN)),
        },
    }
}

impl Management {
    fn report(&self, regions: &RegionNames) -> Value {
        let counters = self.counters.lock().unwrap_or_else(PoisonError::into_inner);
        let mut whole: BTreeMap<Operation, Counter> = BTreeMap::new();
        for ((_, operation), counter) in counters.iter() {
            whole.entry(*operation).or_default().add(counter);
        }
        let mut report = summary(whole.iter());
        if regions.len() > 1 {
            let mut parts = Object::new();
            for (region, name) in regions.iter().enumerate() {
                let own = counters.iter().filter(|((of, _), _)| *of == region);
                parts.set(
                    name,
                    Value::Object(summary(own.map(|((_, operation), counter)| (operation, counter)))),
                );
            }
            report.set("regions", Value::Object(parts));
        }
        Value::Object(report)
    }
}

impl Counter {
    fn add(&mut self, other: &Counter) {
        self.requests += other.requests;
        self.request_units += other.request_units;
        for (status, count) in &other.statuses {
            *self.statuses.entry(*status).or_default() += count;
        }
    }
}

/// Requests and units, in all and by operation.
fn summary<'a>(counters: impl Iterator<Item = (&'a Operation, &'a Counter)>) -> Object {
    let units = |charge: f64| {
        Value::Number(Number::from_f64((charge * 100.0).round() / 100.0).unwrap_or(Number::Int(0)))
    };
    let (mut sum, mut operations) = (Counter::default(), Object::new());
    for (operation, counter) in counters {
        sum.add(counter);
        let mut statuses = Object::new();
        for (status, count) in &counter.statuses {
            statuses.set(status.to_string(), (*count).into());
        }
        let entry = object([
            ("requests", counter.requests.into()),
            ("requestUnits", units(counter.request_units)),
            ("statuses", Value::Object(statuses)),
        ]);
        operations.set(operation.name(), entry);
    }
    let mut report = Object::new();
    report.set("requests", sum.requests.into());
    report.set("requestUnits", units(sum.request_units));
    report.set("operations", Value::Object(operations));
    report
}

async fn split(service: &Service, body: &Object) -> Result<Value, Refusal> {
    let text = |name: &str| {
        body.get(name)
            .and_then(Value::as_str)
            .ok_or_else(|| Refusal::gateway(400, format!("'{name}' is missing.")))
    };
    let container = service
        .engine
        .catalog()
        .container(text("database")?, text("container")?)
        .cloned()
        .ok_or_else(Refusal::no_such_resource)?;
    let range = match body.get("range") {
        None => container.ranges.first().map_or(0, |range| range.id),
        Some(Value::String(id)) => {
            id.parse().map_err(|_| Refusal::gateway(400, "'range' is not a range id."))?
        }
        Some(value) => value
            .as_i64()
            .and_then(|id| u32::try_from(id).ok())
            .ok_or_else(|| Refusal::gateway(400, "'range' is not a range id."))?,
    };
    let children = service.account.regions.split(&container, range).await?;
    Ok(object([("children", Value::Array(children.iter().map(|id| id.to_string().into()).collect()))]))
}

/// Deletes every database and forgets counters and faults.
async fn reset(service: &Service) -> Result<Value, Refusal> {
    let names: Vec<String> = service.engine.catalog().databases.keys().cloned().collect();
    let regions = &service.account.regions;
    for name in names {
        regions.change(move |lead| async move { lead.delete_database(&name).await }).await?;
    }
    regions.maintain().await?;
    service.account.management.counters.lock().unwrap_or_else(PoisonError::into_inner).clear();
    service.account.management.faults.clear();
    service.account.management.has_faults.store(false, Ordering::Release);
    service.account.management.pause.send_replace(false);
    Ok(done())
}

/// Whether every host that the request names is this machine's own.
fn is_local_host(parts: &Parts) -> bool {
    let named =
        parts.headers.get_all(http::header::HOST).iter().map(|host| host.to_str().unwrap_or_default());
    let mut hosts = named.chain(parts.uri.authority().map(|authority| authority.as_str())).peekable();
    hosts.peek().is_some() && hosts.all(is_loopback)
}

fn is_loopback(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    name.eq_ignore_ascii_case("localhost")
        || name.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn parse(body: &[u8]) -> Result<Object, Refusal> {
    match json::parse(body) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err(Refusal::gateway(400, "The body must be a JSON object.")),
        Err(error) => Err(Refusal::gateway(400, format!("The body is not JSON: {error}."))),
    }
}

fn done() -> Value {
    object([("done", true.into())])
}

fn problem(status: StatusCode, message: &str) -> Response<Bytes> {
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
