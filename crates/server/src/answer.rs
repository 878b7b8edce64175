//! `Answer`: the outcome of an operation, and its rendering as an HTTP response
//! with the status, headers and body of the service. Refusals are rendered here
//! too.

use bytes::Bytes;
use http::header::{HeaderName, HeaderValue};
use http::{HeaderMap, Response, StatusCode};
use perihelion_engine::{Container, ItemOutcome, Layer, Position, Refusal, Usage, charge};
use perihelion_model::json::{self, Style, Value, object};
use perihelion_model::session_token;
use perihelion_wire::headers;
use perihelion_wire::status::{self, Status};

/// The outcome of an operation, unless it is a refusal.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Bytes,
    /// `None` for an answer of the gateway, which charges nothing.
    pub(crate) charge: Option<f64>,
    /// The position of each physical partition that took part.
    pub(crate) positions: Vec<Position>,
    pub(crate) etag: Option<String>,
    /// Whether the `content-location` header is sent.
    pub(crate) has_content_location: bool,
    /// Further headers, besides those of the other fields.
    pub(crate) extra_headers: Vec<(HeaderName, HeaderValue)>,
}

impl Answer {
    pub(crate) fn json(status: impl Into<Status>, body: &Value) -> Self {
        Answer::text(status, json::to_text(body, Style::Point))
    }

    pub(crate) fn text(status: impl Into<Status>, body: impl Into<Bytes>) -> Self {
        Answer {
            status: status.into().code,
            body: body.into(),
            charge: None,
            positions: Vec::new(),
            etag: None,
            has_content_location: false,
            extra_headers: Vec::new(),
        }
    }

    pub(crate) fn empty(status: impl Into<Status>) -> Self {
        Answer::text(status, Bytes::new())
    }

    /// Sets the charge, which only answers of the backend have.
    pub(crate) fn charged(mut self, charge: f64) -> Self {
        self.charge = Some(charge);
        self
    }

    /// Adds the position of a physical partition that took part.
    pub(crate) fn at(mut self, position: Position) -> Self {
        self.positions.push(position);
        self
    }

    pub(crate) fn with_etag(mut self, etag: impl Into<String>) -> Self {
        self.etag = Some(etag.into());
        self
    }

    pub(crate) fn with_content_location(mut self) -> Self {
        self.has_content_location = true;
        self
    }

    /// Adds a header. A value that a header cannot hold is left out.
    pub(crate) fn with_header(mut self, name: HeaderName, value: impl Into<String>) -> Self {
        if let Ok(value) = HeaderValue::from_maybe_shared(Bytes::from(value.into())) {
            self.extra_headers.push((name, value));
        }
        self
    }

    pub(crate) fn with_static_header(mut self, name: HeaderName, value: &'static str) -> Self {
        self.extra_headers.push((name, HeaderValue::from_static(value)));
        self
    }

    /// Adds two headers: the path of the container by names, and the `_rid` of the container.
    pub(crate) fn with_content_path(self, database: &str, container: &Container) -> Self {
        self.with_header(headers::ALT_CONTENT_PATH, format!("dbs/{database}/colls/{}", container.name))
            .with_header(headers::CONTENT_PATH, container.rid_text.as_str())
    }

    /// A feed with these items. `rid` is the `_rid` of its parent, `name` the member of
    /// the body that holds the items.
    pub(crate) fn feed(rid: &str, name: &str, items: &[Value]) -> Self {
        let body = object([
            ("_rid", rid.into()),
            (name, Value::Array(items.to_vec())),
            ("_count", (items.len() as u64).into()),
        ]);
        Answer::json(status::OK, &body).with_header(headers::ITEM_COUNT, items.len().to_string())
    }

    /// The answer to an operation on one item. A minimal answer has no body.
    pub(crate) fn item(outcome: ItemOutcome, is_minimal: bool) -> Self {
        let body = if is_minimal { Bytes::new() } else { outcome.body };
        let mut answer = Answer::text(outcome.status, body).charged(outcome.charge).at(outcome.position);
        answer.etag = outcome.etag;
        let answer = answer.with_usage(outcome.usage);
        match outcome.item_lsn {
            Some(lsn) => answer.with_header(headers::ITEM_LSN, lsn.to_string()),
            None => answer,
        }
    }

    /// Adds the headers with the container's quota and usage.
    pub(crate) fn with_usage(self, usage: Usage) -> Self {
        let kilobytes = usage.bytes / 1024;
        self.with_static_header(
            headers::RESOURCE_QUOTA,
            "documentSize=10240;documentsSize=10485760;documentsCount=-1;collectionSize=10485760;",
        )
        .with_header(
            headers::RESOURCE_USAGE,
            format!(
                "documentSize=0;documentsSize={kilobytes};documentsCount={};collectionSize={kilobytes};",
                usage.documents
            ),
        )
    }

    /// The HTTP response. `location` makes the value of the `content-location` header.
    pub(crate) fn render(self, activity_id: &str, location: impl FnOnce() -> String) -> Response<Bytes> {
        let mut response = Response::new(self.body);
        *response.status_mut() = status_code(self.status);
        let map = response.headers_mut();
        map.reserve(32);
        insert_common_headers(map, activity_id);
        map.insert(headers::CACHE_CONTROL, HeaderValue::from_static("no-store, no-cache"));
        map.insert(headers::PRAGMA, HeaderValue::from_static("no-cache"));
        // The backend of the service sends these headers; its gateway does not.
        if let Some(charge) = self.charge {
            insert_owned(map, headers::REQUEST_CHARGE, charge::print(charge));
            insert_backend_headers(map);
        }
        insert_position_headers(map, &self.positions);
        if let Some(etag) = self.etag {
            insert_owned(map, headers::ETAG, etag);
        }
        if self.has_content_location {
            insert_owned(map, headers::CONTENT_LOCATION, location());
        }
        if self.status == status::NO_CONTENT.code {
            // The service sends this header although HTTP forbids it on a 204.
            map.insert(headers::CONTENT_LENGTH, HeaderValue::from_static("0"));
        }
        map.extend(self.extra_headers);
        response
    }
}

/// The HTTP response of a refusal. A refusal of the backend that has no position gets
/// `default_position`, except when the request was throttled.
pub(crate) fn render_refusal(
    refusal: &Refusal,
    activity_id: &str,
    default_position: Position,
) -> Response<Bytes> {
    let body = error_body(refusal, activity_id);
    let mut response = Response::new(Bytes::from(json::to_text(&body, Style::Point)));
    *response.status_mut() = status_code(refusal.status);
    let map = response.headers_mut();
    insert_common_headers(map, activity_id);
    if let Some(sub_status) = refusal.sub_status {
        insert_text(map, headers::SUBSTATUS, &sub_status.to_string());
    }
    match refusal.layer {
        Layer::Gateway | Layer::GatewayErrors | Layer::QueryCompiler => {
            if [status::BAD_REQUEST.code, status::TOO_LARGE.code].contains(&refusal.status) {
                map.insert(headers::REQUEST_VALIDATION_FAILURE, HeaderValue::from_static("1"));
            }
        }
        Layer::Backend | Layer::BackendUncharged | Layer::QueryRuntime | Layer::Document => {
            if refusal.layer != Layer::BackendUncharged {
                insert_owned(map, headers::REQUEST_CHARGE, charge::print(refusal.charge));
            }
            insert_backend_headers(map);
            // A throttled request never reached a replica, so it has no position.
            if refusal.status != status::TOO_MANY_REQUESTS.code {
                insert_position_headers(map, &[refusal.position.clone().unwrap_or(default_position)]);
            }
        }
    }
    if let Some(wait_ms) = refusal.retry_after_ms {
        insert_text(map, headers::RETRY_AFTER_MS, &wait_ms.to_string());
    }
    response
}

/// The HTTP response of a refusal, without a body: the reason is in a header.
pub(crate) fn render_bodyless_refusal(refusal: &Refusal, activity_id: &str) -> Response<Bytes> {
    let mut response = Response::new(Bytes::new());
    *response.status_mut() = status_code(refusal.status);
    let map = response.headers_mut();
    insert_common_headers(map, activity_id);
    if let Some(sub_status) = refusal.sub_status {
        insert_text(map, headers::SUBSTATUS, &sub_status.to_string());
    }
    insert_owned(map, headers::REQUEST_CHARGE, charge::print(refusal.charge));
    if let Some(wait_ms) = refusal.retry_after_ms {
        insert_text(map, headers::RETRY_AFTER_MS, &wait_ms.to_string());
        insert_text(map, headers::RETRY_AFTER, &wait_ms.div_ceil(1000).to_string());
    }
    // A header can hold only visible ASCII characters and spaces.
    let is_plain = |c: char| c == ' ' || c.is_ascii_graphic();
    let reason = refusal.message.chars().map(|c| if is_plain(c) { c } else { '?' });
    insert_owned(map, headers::REASON, reason.take(REASON_CHARACTERS_MAX).collect());
    response
}

/// The most characters of a reason in a header. Proxies limit the size of headers.
const REASON_CHARACTERS_MAX: usize = 400;

fn status_code(status: u16) -> StatusCode {
    StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

/// Inserts an owned text as a header. A text that a header cannot hold is left
/// out.
fn insert_owned(map: &mut HeaderMap, name: HeaderName, value: String) {
    if let Ok(value) = HeaderValue::from_maybe_shared(Bytes::from(value)) {
        map.insert(name, value);
    }
}

fn insert_text(map: &mut HeaderMap, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        map.insert(name, value);
    }
}

/// The headers of every response of the data plane.
fn insert_common_headers(map: &mut HeaderMap, activity_id: &str) {
    map.insert(headers::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    map.insert(headers::SERVER, HeaderValue::from_static("Perihelion"));
    map.insert(headers::GATEWAY_VERSION, HeaderValue::from_static("version=2.14.0"));
    insert_text(map, headers::ACTIVITY_ID, activity_id);
}

/// The headers of a response from the service's backend.
fn insert_backend_headers(map: &mut HeaderMap) {
    map.insert(headers::SERVICE_VERSION, HeaderValue::from_static("version=2.14.0.0"));
    map.insert(headers::SCHEMA_VERSION, HeaderValue::from_static("1.21"));
    map.insert(headers::REQUEST_DURATION_MS, HeaderValue::from_static("0.1"));
}

/// Inserts the session tokens of all ranges that took part, the highest of their LSNs, and
/// the id of the first range. Without a position it inserts nothing.
fn insert_position_headers(map: &mut HeaderMap, positions: &[Position]) {
    let Some(first) = positions.first() else { return };
    let lsn = positions.iter().map(|position| position.lsn).max().unwrap_or(0);
    let lsn = HeaderValue::from(lsn);
    map.insert(headers::LSN, lsn.clone());
    map.insert(headers::GLOBAL_COMMITTED_LSN, lsn);
    map.insert(headers::TRANSPORT_REQUEST_ID, HeaderValue::from_static("1"));
    map.insert(headers::PARTITION_KEY_RANGE_ID, HeaderValue::from(first.range));
    let mut tokens = String::new();
    for (index, position) in positions.iter().enumerate() {
        if index > 0 {
            tokens.push(',');
        }
        print_token(&mut tokens, position);
    }
    insert_owned(map, headers::SESSION_TOKEN, tokens);
}

/// The version of the account's set of regions. Here the set never changes.
const REGIONS_VERSION: i64 = 1;

/// Prints a session token: `range:-1#lsn`. With several regions it is
/// `range:1#highest#0=lsn#1=lsn…`. It has, for each region, the LSN up to which that
/// region's writes were applied. `highest` is the highest of these LSNs.
pub(crate) fn print_token(out: &mut String, position: &Position) {
    use std::fmt::Write;
    let Some(lsns) = &position.applied_lsns else {
        return out.push_str(&session_token::print(position.range, position.lsn));
    };
    let highest = lsns.iter().max().copied().unwrap_or(0);
    // Writing to a String cannot fail.
    let _ = write!(out, "{}:{REGIONS_VERSION}#{highest}", position.range);
    for (region, lsn) in lsns.iter().enumerate() {
        let _ = write!(out, "#{region}={lsn}");
    }
}

/// The error body, in the form of the layer of the service that refuses.
fn error_body(refusal: &Refusal, activity_id: &str) -> Value {
    let text = &refusal.message;
    let tail = format!("ActivityId: {activity_id}, Microsoft.Azure.Documents.Common/2.14.0");
    let message = match refusal.layer {
        Layer::Gateway => format!("{text}\r\n{tail}"),
        Layer::GatewayErrors | Layer::Backend | Layer::BackendUncharged => {
            let errors = object([("Errors", Value::Array(vec![text.as_str().into()]))]);
            format!(
                "Message: {}\r\nActivityId: {activity_id}, Request URI: /apps/perihelion, RequestStats: , SDK: Perihelion",
                json::to_text(&errors, Style::Point)
            )
        }
        Layer::QueryCompiler | Layer::QueryRuntime => format!("Message: {text}\r\n{tail}"),
        Layer::Document => format!("{text}, \r\nRequestStartTime: , {tail}"),
    };
    let mut body = json::Object::new();
    body.set("code", error_code(refusal.status).into());
    if refusal.status == status::METHOD_NOT_ALLOWED.code {
        // The service sends only the name of its handler, without the tail.
        body.set("message", text.as_str().into());
        return Value::Object(body);
    }
    body.set("message", message.into());
    if let Some(plan) = &refusal.plan {
        body.set("additionalErrorInfo", plan.as_ref().into());
    }
    Value::Object(body)
}

/// The `code` member of an error body, by status.
const ERROR_CODES: [(Status, &str); 14] = [
    (status::BAD_REQUEST, "BadRequest"),
    (status::UNAUTHORIZED, "Unauthorized"),
    (status::FORBIDDEN, "Forbidden"),
    (status::NOT_FOUND, "NotFound"),
    (status::METHOD_NOT_ALLOWED, "MethodNotAllowed"),
    (status::REQUEST_TIMEOUT, "RequestTimeout"),
    (status::CONFLICT, "Conflict"),
    (status::GONE, "Gone"),
    (status::PRECONDITION_FAILED, "PreconditionFailed"),
    (status::TOO_LARGE, "RequestEntityTooLarge"),
    (status::FAILED_DEPENDENCY, "FailedDependency"),
    (status::TOO_MANY_REQUESTS, "TooManyRequests"),
    (status::RETRY_WITH, "RetryWith"),
    (status::SERVICE_UNAVAILABLE, "ServiceUnavailable"),
];

fn error_code(code: u16) -> &'static str {
    let entry = ERROR_CODES.iter().find(|(status, _)| status.code == code);
    entry.map_or("InternalServerError", |(_, name)| name)
}
