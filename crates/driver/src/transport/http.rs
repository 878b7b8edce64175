//! The default transport: HTTP over connections of our own.
//!
//! One HTTP/2 connection per endpoint, or a few of HTTP/1.1 where the endpoint
//! speaks nothing else. (Several HTTP/2 connections per endpoint, by load, will
//! live in the slot.) What always holds: an answer or a failure by the request's
//! deadline; [`Sent::No`] only for what cannot have arrived; connections and
//! their tasks end with the transport.

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
use super::http1::{Http1Answer, Http1Lease};
use super::limits::{ENDPOINTS_MAX, TURNS_MAX};
use super::options::HttpOptions;
use super::progress::Progress;
use super::slot::{Lease, Slot};
use super::tls::BadHttpOptions;

/// Sends requests over HTTP/2 and HTTP/1.1. Made without a runtime; connections
/// live on the runtime that first needs them, and no longer than the transport.
pub struct HttpTransport {
    connector: Arc<Connector>,
    /// Few, and mostly found by their pointer. Replaced whole.
    slots: ArcSwap<Vec<Arc<Slot>>>,
    /// Held while `slots` is being replaced.
    growing: Mutex<()>,
}

/// What of a request is sent.
struct Message {
    method: Method,
    target: PathAndQuery,
    headers: HeaderMap,
    body: Bytes,
}

impl HttpTransport {
    /// A transport without connections. Fails when the CA is no certificate.
    pub fn new(options: HttpOptions) -> Result<Self, BadHttpOptions> {
        Ok(HttpTransport {
            connector: Arc::new(Connector::new(options)?),
            slots: ArcSwap::from_pointee(Vec::new()),
            growing: Mutex::new(()),
        })
    }

    fn slot(&self, endpoint: &Endpoint) -> Result<Arc<Slot>, Failure> {
        if let Some(slot) = find(&self.slots.load(), endpoint) {
            return Ok(slot);
        }
        let _growing = self.growing.lock().unwrap_or_else(PoisonError::into_inner);
        let slots = self.slots.load();
        if let Some(slot) = find(&slots, endpoint) {
            return Ok(slot);
        }
        if slots.len() == ENDPOINTS_MAX {
            let text =
                format!("{endpoint}: there are connections to {ENDPOINTS_MAX} other endpoints already");
            return Err(Failure::new(FailureKind::Connect, Sent::No, text));
        }
        let slot = Arc::new(Slot::new(endpoint.clone(), Arc::clone(&self.connector))?);
        let mut grown = Vec::clone(&slots);
        grown.push(Arc::clone(&slot));
        self.slots.store(Arc::new(grown));
        Ok(slot)
    }

    /// Sends on the first connection that takes the request. What a connection
    /// took is sent once: whether to repeat it is for the caller to judge.
    async fn send_within(
        &self,
        endpoint: &Endpoint,
        mut message: Message,
        progress: &mut Progress,
    ) -> Result<Response, Failure> {
        let slot = self.slot(endpoint)?;
        for _ in 0..TURNS_MAX {
            let connection = match slot.http2() {
                Some(connection) => connection,
                // Apart, so that the future of the usual case stays small.
                None => match Box::pin(slot.lease(progress)).await? {
                    Lease::Http2(connection) => connection,
                    Lease::Http1(lease) => {
                        match Box::pin(send_http1(&slot, lease, message, progress)).await? {
                            Answer::Whole(response) => return Ok(response),
                            Answer::NotTaken(returned) => message = returned,
                        }
                        continue;
                    }
                },
            };
            *progress = Progress::Queued;
            let Some(ready) = connection.ready().await else {
                slot.retire(&connection);
                continue;
            };
            let Message { method, target, headers, body } = message;
            let request = head(endpoint.uri(target), method, headers, ());
            return ready.send(endpoint, request, body, progress).await;
        }
        let text = format!("{endpoint}: {TURNS_MAX} connections in a row were closing");
        Err(Failure::new(FailureKind::Closed, Sent::No, text))
    }
}

/// What a connection made of a request.
enum Answer {
    Whole(Response),
    /// It was closing; nothing was sent.
    NotTaken(Message),
}

async fn send_http1(
    slot: &Slot,
    lease: Http1Lease<'_>,
    message: Message,
    progress: &mut Progress,
) -> Result<Answer, Failure> {
    let Message { method, target, headers, body } = message;
    let request = head(Uri::from(target), method, headers, Full::new(body.clone()));
    match lease.send(&slot.endpoint, &slot.host, request, progress).await? {
        Http1Answer::Whole(response) => Ok(Answer::Whole(response)),
        Http1Answer::NotTaken(request) => {
            let (head, _) = request.into_parts();
            let target = head.uri.into_parts().path_and_query.unwrap_or(PathAndQuery::from_static("/"));
            Ok(Answer::NotTaken(Message { method: head.method, target, headers: head.headers, body }))
        }
    }
}

fn head<B>(uri: Uri, method: Method, headers: HeaderMap, body: B) -> http::Request<B> {
    let mut request = http::Request::new(body);
    *request.uri_mut() = uri;
    *request.method_mut() = method;
    *request.headers_mut() = headers;
    request
}

fn find(slots: &[Arc<Slot>], endpoint: &Endpoint) -> Option<Arc<Slot>> {
    slots.iter().find(|slot| slot.endpoint == *endpoint).map(Arc::clone)
}

impl Transport for HttpTransport {
    async fn send(&self, request: Request) -> Result<Response, Failure> {
        let Request { endpoint, method, target, headers, body, deadline } = request;
        let mut progress = Progress::Connecting;
        let deadline = Instant::from_std(deadline);
        if deadline <= Instant::now() {
            return Err(Progress::Queued.timed_out(&endpoint));
        }
        let message = Message { method, target, headers, body };
        let sending = self.send_within(&endpoint, message, &mut progress);
        match time::timeout_at(deadline, sending).await {
            Ok(done) => done,
            Err(_) => Err(progress.timed_out(&endpoint)),
        }
    }
}

impl fmt::Debug for HttpTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let slots = self.slots.load();
        let endpoints: Vec<&Endpoint> = slots.iter().map(|slot| &slot.endpoint).collect();
        f.debug_struct("HttpTransport").field("endpoints", &endpoints).finish_non_exhaustive()
    }
}
