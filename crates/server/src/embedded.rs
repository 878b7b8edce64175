//! `Embedded`: an account inside the process that uses it, without a socket.
//!
//! [`Embedded`] owns the open account. [`InProcess`] implements [`Transport`] and sends
//! requests to the account. Between requests it holds only a weak reference to the
//! account. So the owner of `Embedded` decides when the account closes, and a later
//! request fails like a refused connection.
//!
//! What always holds: no background task of the account runs once
//! [`Embedded::close`] has returned. An account in memory starts no threads, so on a
//! single-threaded runtime it obeys a paused tokio clock.

#[cfg(test)]
mod tests;

use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{HeaderMap, Method};
use perihelion_wire::transport::{Endpoint, Failure, FailureKind, Request, Response, Route, Sent, Transport};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::addresses::{Addresses, EMBEDDED_GLOBAL, embedded_endpoint, embedded_endpoint_id};
use crate::dispatch::{Caller, Dispatcher};
use crate::error::StartError;
use crate::management;
use crate::memory::MemoryBudget;
use crate::net::{Hangup, Limits, Rejection, Scheme};
use crate::options::EmbeddedOptions;
use crate::routes::RegionService;
use crate::runtime::{AccessOptions, AccountRuntime};

/// How long a management request may take. A test that waits longer has found a
/// defect.
const MANAGE_TIMEOUT: Duration = Duration::from_secs(60);

/// How long closing waits for requests in flight: longer than the default timeouts
/// of the driver for one attempt.
const CLOSE_WAIT: Duration = Duration::from_secs(70);

/// A database in this process.
pub struct Embedded {
    account: AccountRuntime,
    /// Each request in flight holds a receiver. Closing waits until no receiver is left.
    in_flight: Arc<watch::Sender<()>>,
}

impl Embedded {
    /// Opens the database. Must be called inside a tokio runtime.
    pub async fn open(options: EmbeddedOptions) -> Result<Embedded, StartError> {
        let access = AccessOptions {
            keys: options.keys,
            auth: options.auth,
            has_management: true,
            public_endpoint: None,
            allows_unsigned_account_read: false,
            ca_pem: String::new(),
            addresses: Addresses::Hosts,
            memory: MemoryBudget::new(Limits::default().body_bytes_total),
        };
        let account = AccountRuntime::open(options.account, access, options.clock).await?;
        Ok(Embedded { account, in_flight: Arc::new(watch::Sender::new(())) })
    }

    /// The account's endpoint, for a driver's options.
    pub fn endpoint(&self) -> Endpoint {
        Endpoint::parse(EMBEDDED_GLOBAL).expect("a constant that parses")
    }

    /// The endpoint of a region; `None` when there is no such region.
    pub fn region_endpoint(&self, name: &str) -> Option<Endpoint> {
        let names = &self.account.regions().names;
        Endpoint::parse(&embedded_endpoint(&names.slug(names.find(name)?))).ok()
    }

    /// The transport to all endpoints of the account.
    pub fn transport(&self) -> InProcess {
        InProcess { services: Arc::downgrade(&self.account.services), in_flight: Arc::clone(&self.in_flight) }
    }

    /// Sends a management request: `path` follows `/_perihelion/`, `body` is JSON
    /// or empty. `docs/management.md` lists the requests.
    pub async fn manage(&self, method: Method, path: &str, body: &str) -> Result<Response, Failure> {
        let target = format!("{}{path}", management::PREFIX);
        let target = PathAndQuery::from_maybe_shared(target).map_err(|_| {
            Failure::new(FailureKind::Protocol, Sent::No, format!("`{path}` is not a management path"))
        })?;
        let request = Request {
            endpoint: self.endpoint(),
            method,
            target,
            headers: HeaderMap::new(),
            body: Bytes::copy_from_slice(body.as_bytes()),
            deadline: (Instant::now() + MANAGE_TIMEOUT).into_std(),
            route: Route::default(),
        };
        self.transport().send_boxed(request).await
    }

    /// Waits up to 70 seconds for requests in flight and up to 10 seconds for reads whose callers have
    /// left, then closes the stores. A request that arrives meanwhile is refused, unless another
    /// request in flight keeps the database open.
    pub async fn close(self) {
        let Embedded { account, in_flight } = self;
        // A request that outlives the wait keeps the stores open until it ends.
        account.close(async move { drop(tokio::time::timeout(CLOSE_WAIT, in_flight.closed()).await) }).await;
    }
}

impl std::fmt::Debug for Embedded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Embedded")
    }
}

/// The transport to an [`Embedded`] database; cheap to clone.
#[derive(Clone)]
pub struct InProcess {
    services: Weak<[RegionService]>,
    in_flight: Arc<watch::Sender<()>>,
}

impl InProcess {
    /// The future of [`Transport::send`] as a trait object. The box makes the compiler
    /// generate the code that serves a request in this crate, and not again in every
    /// program (see `Server::start_boxed`).
    fn send_boxed(self, request: Request) -> Pin<Box<dyn Future<Output = Result<Response, Failure>> + Send>> {
        Box::pin(async move { self.send(request).await })
    }
}

impl Transport for InProcess {
    async fn send(&self, request: Request) -> Result<Response, Failure> {
        // The subscription comes before the upgrade. So if the upgrade succeeds, `close`
        // waits for this request, for at most `CLOSE_WAIT`.
        let _in_flight = self.in_flight.subscribe();
        let Some(services) = self.services.upgrade() else {
            return Err(Failure::new(FailureKind::Connect, Sent::No, "the embedded database is closed"));
        };
        let names = &services[0].account.regions.names;
        let Some(endpoint) = embedded_endpoint_id(names, request.endpoint.host()) else {
            let message = format!("{} is not an endpoint of the embedded database", request.endpoint.host());
            return Err(Failure::new(FailureKind::Connect, Sent::No, message));
        };
        let (dispatcher, deadline) = (Dispatcher { services, endpoint }, Instant::from_std(request.deadline));
        match tokio::time::timeout_at(deadline, serve(&dispatcher, request)).await {
            Ok(outcome) => outcome,
            Err(_) => Err(Failure::new(
                FailureKind::Timeout,
                Sent::Yes,
                "the embedded database did not answer by the deadline",
            )),
        }
    }
}

async fn serve(dispatcher: &Dispatcher, request: Request) -> Result<Response, Failure> {
    let Request { endpoint, method, target, headers, body, .. } = request;
    let limit = Limits::default().body_bytes;
    if body.len() > limit {
        return Ok(dispatcher.reject(Rejection::BodyTooLarge { limit }));
    }
    let scheme = if endpoint.is_tls() { Scheme::Https } else { Scheme::Http };
    let mut request = http::Request::new(body);
    *request.method_mut() = method;
    *request.uri_mut() = endpoint.uri(target);
    *request.headers_mut() = headers;
    dispatcher.answer(request, scheme, Caller::SameProcess).await.map_err(|hangup| match hangup {
        // The request was not carried out, but a client behind a socket could not
        // know that.
        Hangup::Unserved => {
            Failure::new(FailureKind::Closed, Sent::Unknown, "the request was dropped before it was served")
        }
        Hangup::Served => Failure::new(FailureKind::Closed, Sent::Yes, "the response was dropped"),
    })
}

impl std::fmt::Debug for InProcess {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("InProcess")
    }
}
