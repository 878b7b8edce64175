//! The default transport: HTTP over its own connections.
//!
//! The transport keeps one HTTP/2 connection per endpoint, or a pool of HTTP/1.1
//! connections where the endpoint does not speak HTTP/2. What always holds: a request has
//! an answer or a failure by its deadline; a failure says [`Sent::No`] only if the request
//! was not sent, or the server declared that it did not process the request; connections
//! and their tasks end when the transport is dropped.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{HeaderMap, Method, Uri};
use http_body_util::Full;
use perihelion_wire::transport::{Endpoint, Failure, FailureKind, Request, Response, Sent, Transport};
use tokio::time::{self, Instant};

use super::connect::Connector;
use super::connections::{Connections, Lease};
use super::http1::{Http1Delivery, Http1Lease};
use super::limits::{CONNECTIONS_TRIED_MAX, ENDPOINTS_MAX};
use super::options::HttpOptions;
use super::progress::Progress;
use super::tls::BadHttpOptions;

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

/// The parts of a request that are sent.
struct RequestParts {
    method: Method,
    target: PathAndQuery,
    headers: HeaderMap,
    body: Bytes,
}

impl HttpTransport {
    /// A transport without connections. The result is an error when the options have a CA
    /// that is not a certificate.
    pub fn new(options: HttpOptions) -> Result<Self, BadHttpOptions> {
        Ok(HttpTransport {
            connector: Arc::new(Connector::new(options)?),
            endpoints: ArcSwap::from_pointee(Vec::new()),
            adding_endpoint: Mutex::new(()),
        })
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
        if endpoints.len() == ENDPOINTS_MAX {
            let text =
                format!("{endpoint}: there are connections to {ENDPOINTS_MAX} other endpoints already");
            return Err(Failure::new(FailureKind::Connect, Sent::No, text));
        }
        let connections = Arc::new(Connections::new(endpoint.clone(), Arc::clone(&self.connector))?);
        let mut grown = Vec::clone(&endpoints);
        grown.push(Arc::clone(&connections));
        self.endpoints.store(Arc::new(grown));
        Ok(connections)
    }

    /// Sends the request on the first connection that takes it. Once a connection has
    /// taken the request, the request is not sent again here: the caller decides about
    /// retries.
    async fn send_on_connection(
        &self,
        endpoint: &Endpoint,
        mut parts: RequestParts,
        progress: &mut Progress,
    ) -> Result<Response, Failure> {
        let connections = self.connections(endpoint)?;
        for _ in 0..CONNECTIONS_TRIED_MAX {
            let connection = match connections.http2() {
                Some(connection) => connection,
                // Boxed, so that the future of the usual case stays small.
                None => match Box::pin(connections.lease(progress)).await? {
                    Lease::Http2(connection) => connection,
                    Lease::Http1(lease) => {
                        match Box::pin(send_http1(&connections, lease, parts, progress)).await? {
                            Delivery::Answered(response) => return Ok(response),
                            Delivery::NotTaken(returned) => parts = returned,
                        }
                        continue;
                    }
                },
            };
            *progress = Progress::Queued;
            let Some(ready) = connection.ready().await else {
                connections.retire(&connection);
                continue;
            };
            let RequestParts { method, target, headers, body } = parts;
            let request = build_request(endpoint.uri(target), method, headers, ());
            return ready.send(endpoint, request, body, progress).await;
        }
        let text = format!("{endpoint}: {CONNECTIONS_TRIED_MAX} connections in a row were closing");
        Err(Failure::new(FailureKind::Closed, Sent::No, text))
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
    lease: Http1Lease<'_>,
    parts: RequestParts,
    progress: &mut Progress,
) -> Result<Delivery, Failure> {
    let RequestParts { method, target, headers, body } = parts;
    let request = build_request(Uri::from(target), method, headers, Full::new(body.clone()));
    match lease.send(&connections.endpoint, &connections.host, request, progress).await? {
        Http1Delivery::Answered(response) => Ok(Delivery::Answered(response)),
        Http1Delivery::NotTaken(request) => {
            let (head, _) = request.into_parts();
            let target = head.uri.into_parts().path_and_query.unwrap_or(PathAndQuery::from_static("/"));
            Ok(Delivery::NotTaken(RequestParts { method: head.method, target, headers: head.headers, body }))
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

impl Transport for HttpTransport {
    async fn send(&self, request: Request) -> Result<Response, Failure> {
        let Request { endpoint, method, target, headers, body, deadline } = request;
        let mut progress = Progress::Connecting;
        let deadline = Instant::from_std(deadline);
        if deadline <= Instant::now() {
            // Not `Connecting`: the endpoint is not at fault.
            return Err(Progress::Queued.timeout_failure(&endpoint));
        }
        let parts = RequestParts { method, target, headers, body };
        let sending = self.send_on_connection(&endpoint, parts, &mut progress);
        match time::timeout_at(deadline, sending).await {
            Ok(done) => done,
            Err(_) => Err(progress.timeout_failure(&endpoint)),
        }
    }
}

impl fmt::Debug for HttpTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let endpoints = self.endpoints.load();
        let endpoints: Vec<&Endpoint> = endpoints.iter().map(|connections| &connections.endpoint).collect();
        f.debug_struct("HttpTransport").field("endpoints", &endpoints).finish_non_exhaustive()
    }
}
