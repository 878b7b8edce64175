//! The default transport: HTTP over its own connections.
//!
//! The transport keeps a pool of HTTP/2 connections per endpoint, or a pool of HTTP/1.1
//! connections where the endpoint does not speak HTTP/2. A request whose connection ended is
//! sent again on another connection if it was certainly not sent, or if it is a read.
//!
//! What always holds:
//! - A request has an answer or a failure by its deadline.
//! - A failure says [`Sent::No`] only if the request was not sent, or the server declared that
//!   it did not process the request.
//! - A request holds a stream or a connection no longer than until its answer has arrived, even
//!   if its future is not polled.
//! - Connections and their tasks end when the transport is dropped.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{HeaderMap, Method, Uri};
use http_body_util::Full;
use perihelion_wire::headers;
use perihelion_wire::transport::{Endpoint, Failure, FailureKind, Request, Response, Route, Sent, Transport};
use tokio::time::{self, Instant};

use super::connect::{Connector, EndpointOpener};
use super::connections::{Connections, Lease};
use super::flight::Flight;
use super::http1::{Http1Delivery, Http1Lease};
use super::http2::{Exchange, NotTaken};
use super::limits::{CONNECTIONS_TRIED_MAX, ENDPOINT_UNUSED_MIN, ENDPOINTS_MAX};
use super::options::{BadHttpOptions, HttpOptions};
use super::progress::Progress;
use super::resends::Resends;
use super::statistics::TransportStatistics;
use super::transfer::{Delivered, TransferLog};
use crate::diagnostics::Wait;

/// Sends requests over HTTP/2 and HTTP/1.1. The transport can be created without a
/// runtime. A connection belongs to the runtime of the request that opened it, and is
/// closed when the transport is dropped.
pub struct HttpTransport {
    connector: Arc<Connector>,
    /// The connections of each endpoint. The list is short and is replaced whole.
    endpoints: ArcSwap<Vec<Arc<Connections>>>,
    /// Locked while `endpoints` is replaced.
    adding_endpoint: Mutex<()>,
}

/// The parts of a request, without its endpoint and its deadline. A connection that takes the
/// request consumes them.
#[derive(Clone)]
pub(super) struct RequestParts {
    pub(super) method: Method,
    pub(super) target: PathAndQuery,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    pub(super) route: Route,
}

impl HttpTransport {
    /// A transport without connections. Environment variables of the process set options that are
    /// at their default. The result is an error when an option or a variable cannot be used, such as
    /// a CA that is not a certificate, or a timeout that is too short for any answer.
    pub fn new(options: HttpOptions) -> Result<Self, BadHttpOptions> {
        Ok(HttpTransport {
            connector: Arc::new(Connector::new(options)?),
            endpoints: ArcSwap::from_pointee(Vec::new()),
            adding_endpoint: Mutex::new(()),
        })
    }

    /// Asks endpoints that speak HTTP/1.1 whether they speak HTTP/2 by now: opens one more
    /// connection to each of them in the background, and uses HTTP/2 from then on if that
    /// connection does. A driver calls this whenever it has read its account. Nothing is done
    /// outside a tokio runtime.
    ///
    /// The change from HTTP/2 to HTTP/1.1 needs no such question: an endpoint whose new connections
    /// speak only HTTP/1.1 is used with HTTP/1.1 as soon as its last HTTP/2 connection has ended.
    pub fn negotiate_again(&self) {
        for connections in self.endpoints.load().iter() {
            connections.negotiate_again();
        }
    }

    /// The connections, streams, requests and bytes that are in use now, and the requests that
    /// wait.
    pub fn statistics(&self) -> TransportStatistics {
        let endpoints = self.endpoints.load();
        TransportStatistics::new(endpoints.iter().map(|connections| connections.statistics()).collect())
    }

    /// The connections to an endpoint. An endpoint is added at its first use.
    fn connections(&self, endpoint: &Endpoint) -> Result<Arc<Connections>, Failure> {
        if let Some(connections) = find(&self.endpoints.load(), endpoint) {
            return Ok(connections);
        }
        let _guard = self.adding_endpoint.lock().unwrap_or_else(PoisonError::into_inner);
        let endpoints = self.endpoints.load();
        if let Some(connections) = find(&endpoints, endpoint) {
            return Ok(connections);
        }
        self.connector.check_allowed(endpoint)?;
        let mut grown = Vec::clone(&endpoints);
        if grown.len() >= ENDPOINTS_MAX && !forget_unused(&mut grown, Instant::now()) {
            let text = format!("{endpoint}: there are connections to {ENDPOINTS_MAX} other endpoints in use");
            return Err(Failure::new(FailureKind::Connect, Sent::No, text));
        }
        let opener = EndpointOpener::new(Arc::clone(&self.connector), endpoint.clone());
        let connections = Connections::new(endpoint.clone(), Arc::new(opener), self.connector.options())?;
        let connections = Arc::new(connections);
        grown.push(Arc::clone(&connections));
        self.endpoints.store(Arc::new(grown));
        Ok(connections)
    }
}

/// Removes the endpoint that was unused for the longest time, if it was unused for at least
/// [`ENDPOINT_UNUSED_MIN`]. Returns whether an endpoint was removed.
fn forget_unused(endpoints: &mut Vec<Arc<Connections>>, now: Instant) -> bool {
    let unused = |connections: &Arc<Connections>| {
        connections.unused_for(now).filter(|unused| *unused >= ENDPOINT_UNUSED_MIN)
    };
    let longest = (0..endpoints.len()).max_by_key(|index| unused(&endpoints[*index]));
    let Some(longest) = longest.filter(|index| unused(&endpoints[*index]).is_some()) else { return false };
    let forgotten = endpoints.remove(longest);
    tracing::debug!(endpoint = %forgotten.endpoint, "the connections to an unused endpoint are closed");
    true
}

/// Sends a request, and sends it again on another connection where that is safe. Each try sends a
/// copy of the request. The pipeline does not use this function: it builds a new request for each
/// try (`pipeline::deliver`).
pub(super) async fn send_with_resends(
    connections: &Arc<Connections>,
    parts: RequestParts,
    deadline: Instant,
) -> Delivered {
    let is_read = parts.is_read();
    let mut resends = Resends::default();
    loop {
        let delivered = start(connections, parts.clone(), deadline).await;
        if !resends.allow(is_read, &delivered.result) {
            return resends.add_count_to(delivered);
        }
    }
}

/// Starts the flight of a request. If a stream is free, the request is handed to its
/// connection at once, before this function returns.
pub(super) fn start(connections: &Arc<Connections>, mut parts: RequestParts, deadline: Instant) -> Flight {
    let log = TransferLog::start(Instant::now());
    if let Some(reservation) = connections.reserve() {
        if let Some(fault) = reservation.pick_fault(&parts) {
            let mut log = log;
            log.hand_over(reservation.shard.core.carrier(), Instant::now());
            let faulty = fault.send_http2(reservation, parts, deadline);
            return connections.start_flight(async move {
                let result = faulty.await;
                Delivered { result, transfer: Some(log.end(Instant::now())) }
            });
        }
        match reservation.begin(parts) {
            Ok(exchange) => return connections.start_flight(exchange.finish(log, deadline)),
            Err(NotTaken::Returned(returned)) => parts = *returned,
            Err(NotTaken::Refused(failure)) => {
                let delivered = Delivered { result: Err(failure), transfer: Some(log.end(Instant::now())) };
                return connections.start_flight(std::future::ready(delivered));
            }
        }
    }
    connections.start_flight(send_when_connected(Arc::clone(connections), parts, log, deadline))
}

/// Waits for a connection and sends the request on it.
async fn send_when_connected(
    connections: Arc<Connections>,
    parts: RequestParts,
    mut log: TransferLog,
    deadline: Instant,
) -> Delivered {
    let mut progress = Progress::Connecting;
    // If there is a connection, the request waits for one of its streams.
    log.wait_for(if connections.has_shards() { Wait::Stream } else { Wait::Connection });
    let sending = send_on_lease(&connections, parts, deadline, (&mut progress, &mut log));
    let result = match time::timeout_at(deadline, sending).await {
        Ok(Ok(Answer::Exchange(exchange))) => return exchange.finish(log, deadline).await,
        Ok(Ok(Answer::Response(response))) => Ok(response),
        Ok(Err(failure)) => Err(failure),
        Err(_) => {
            // With a connection, the request waited for one of its streams.
            if progress == Progress::Connecting && connections.has_shards() {
                progress = Progress::Queued;
            }
            Err(progress.timeout_failure(&connections.endpoint))
        }
    };
    Delivered { result, transfer: Some(log.end(Instant::now())) }
}

/// The result of handing a request to a connection.
enum Answer {
    /// The answer of an HTTP/1.1 connection.
    Response(Response),
    /// The exchange on an HTTP/2 connection, which has its own deadline.
    Exchange(Exchange),
}

/// Sends the request on the first connection that takes it.
async fn send_on_lease(
    connections: &Arc<Connections>,
    mut parts: RequestParts,
    deadline: Instant,
    (progress, log): (&mut Progress, &mut TransferLog),
) -> Result<Answer, Failure> {
    for _ in 0..CONNECTIONS_TRIED_MAX {
        match connections.lease(progress).await? {
            Lease::Http2(reservation) => {
                if let Some(fault) = reservation.pick_fault(&parts) {
                    *progress = Progress::Accepted;
                    log.hand_over(reservation.shard.core.carrier(), Instant::now());
                    return fault.send_http2(reservation, parts, deadline).await.map(Answer::Response);
                }
                match reservation.begin(parts) {
                    Ok(exchange) => return Ok(Answer::Exchange(exchange)),
                    Err(NotTaken::Returned(returned)) => parts = *returned,
                    Err(NotTaken::Refused(failure)) => return Err(failure),
                }
            }
            Lease::Http1(lease) => match send_http1(connections, lease, parts, (progress, log)).await? {
                Delivery::Answered(response) => return Ok(Answer::Response(response)),
                Delivery::NotTaken(returned) => parts = returned,
            },
        }
    }
    let endpoint = &connections.endpoint;
    let text = format!("{endpoint}: {CONNECTIONS_TRIED_MAX} connections in a row were closing");
    Err(Failure::new(FailureKind::Closed, Sent::No, text))
}

impl RequestParts {
    /// The request as HTTP/2 sends it, and its body.
    pub(super) fn into_http2(self, endpoint: &Endpoint) -> (http::Request<()>, Bytes) {
        let RequestParts { method, target, headers, body, .. } = self;
        (build_request(endpoint.uri(target), method, headers, ()), body)
    }

    /// Whether the request only reads. A query is a POST with a header that says so.
    fn is_read(&self) -> bool {
        self.method == Method::GET
            || self.method == Method::HEAD
            || self.headers.contains_key(headers::IS_QUERY)
            || self.headers.contains_key(headers::IS_QUERY_PLAN_REQUEST)
    }
}

/// Whether a connection took a request.
enum Delivery {
    Answered(Response),
    /// The connection was closing; nothing was sent.
    NotTaken(RequestParts),
}

async fn send_http1(
    connections: &Connections,
    mut lease: Http1Lease<'_>,
    parts: RequestParts,
    (progress, log): (&mut Progress, &mut TransferLog),
) -> Result<Delivery, Failure> {
    let fault = connections.faults.pick_http1(&connections.endpoint, &parts);
    let RequestParts { method, target, headers, body, route } = parts;
    let request = build_request(Uri::from(target), method, headers, Full::new(body.clone()));
    let sent = match fault {
        Some(fault) => {
            log.hand_over(lease.carrier(), Instant::now());
            fault.send_http1(lease, connections, request, progress).await
        }
        None => lease.send(connections, request, (progress, log)).await,
    };
    let delivery = sent.map_err(|failure| match failure.kind {
        // When a server ends, all its connections end. That is one incident, as over HTTP/2.
        FailureKind::Closed => failure.with_incident(connections.incidents.at(Instant::now())),
        FailureKind::Connect | FailureKind::Tls | FailureKind::Protocol | FailureKind::Timeout => failure,
    })?;
    match delivery {
        Http1Delivery::Answered(response) => Ok(Delivery::Answered(response)),
        Http1Delivery::NotTaken(request) => {
            let (head, _) = request.into_parts();
            let target = head.uri.into_parts().path_and_query.unwrap_or(PathAndQuery::from_static("/"));
            let (method, headers) = (head.method, head.headers);
            Ok(Delivery::NotTaken(RequestParts { method, target, headers, body, route }))
        }
    }
}

fn build_request<B>(uri: Uri, method: Method, headers: HeaderMap, body: B) -> http::Request<B> {
    let mut request = http::Request::new(body);
    *request.uri_mut() = uri;
    *request.method_mut() = method;
    *request.headers_mut() = headers;
    request
}

fn find(endpoints: &[Arc<Connections>], endpoint: &Endpoint) -> Option<Arc<Connections>> {
    endpoints.iter().find(|connections| connections.endpoint == *endpoint).map(Arc::clone)
}

impl HttpTransport {
    /// Sends a request on one connection, and tells how it was carried.
    pub(super) async fn deliver(&self, request: Request) -> Delivered {
        match self.prepare(request) {
            Ok((connections, parts, deadline)) => start(&connections, parts, deadline).await,
            Err(failure) => Err(failure).into(),
        }
    }

    /// Prepares a request: finds the connections to its endpoint, its parts, and its deadline.
    fn prepare(&self, request: Request) -> Result<(Arc<Connections>, RequestParts, Instant), Failure> {
        let Request { endpoint, method, target, headers, body, deadline, route } = request;
        let deadline = Instant::from_std(deadline);
        if deadline <= Instant::now() {
            // Not `Connecting`: the endpoint is not at fault.
            return Err(Progress::Queued.timeout_failure(&endpoint));
        }
        let connections = self.connections(&endpoint)?;
        connections.faults.learn_region(&endpoint, &route);
        Ok((connections, RequestParts { method, target, headers, body, route }, deadline))
    }
}

impl Transport for HttpTransport {
    async fn send(&self, request: Request) -> Result<Response, Failure> {
        let (connections, parts, deadline) = self.prepare(request)?;
        send_with_resends(&connections, parts, deadline).await.result
    }
}

impl fmt::Debug for HttpTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let endpoints = self.endpoints.load();
        let endpoints: Vec<&Endpoint> = endpoints.iter().map(|connections| &connections.endpoint).collect();
        f.debug_struct("HttpTransport").field("endpoints", &endpoints).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
