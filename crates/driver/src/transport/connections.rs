//! The connections to one endpoint: one HTTP/2 connection or a pool of HTTP/1.1
//! connections, and the attempt to connect that is in progress.
//!
//! A request uses the HTTP/2 connection without a lock. If there is no connection, the
//! request waits for the attempt to connect that is in progress, or starts one. The
//! attempt is a task of its own, so it continues when a request that waits for it is
//! cancelled. Once the endpoint is known to speak only HTTP/1.1, a request opens a
//! connection itself if the pool has no idle one.
//!
//! What always holds: at most one attempt to connect runs as a task at a time; an HTTP/2
//! connection that takes no more requests is retired by the first request that notices,
//! and is not used again.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwapOption;
use http::HeaderValue;
use perihelion_wire::transport::{Endpoint, Failure, FailureKind, Sent};
use tokio::sync::watch;

use super::connect::{Connector, KnownProtocol, NewConnection};
use super::http1::{Http1Lease, Http1Pool};
use super::http2::Http2Connection;
use super::progress::Progress;
use super::task::AbortOnDrop;

/// The connections to one endpoint.
pub(super) struct Connections {
    pub(super) endpoint: Endpoint,
    /// The `host` header of HTTP/1.1.
    pub(super) host: HeaderValue,
    connector: Arc<Connector>,
    /// Set when an HTTP/2 connection was opened, and cleared by [`Connections::retire`].
    http2: ArcSwapOption<Http2Connection>,
    http1: Arc<Http1Pool>,
    /// Whether the last connection that was opened is HTTP/1.1, and no attempt to open
    /// another connection has failed since.
    is_http1: AtomicBool,
    /// The attempt to connect that is in progress, or whose outcome no request has
    /// published yet.
    connecting: Mutex<Option<Connecting>>,
}

/// The connection that an attempt to connect has opened.
#[derive(Clone)]
enum OpenedConnection {
    Http2(Arc<Http2Connection>),
    /// The connection is in the pool.
    Http1,
}

/// The outcome of an attempt to connect; `None` while it is in progress.
type ConnectOutcome = Option<Result<OpenedConnection, Failure>>;

/// One attempt to connect, shared by all requests that wait for it.
struct Connecting {
    outcome: watch::Receiver<ConnectOutcome>,
    _task: AbortOnDrop,
}

/// A connection for one request.
pub(super) enum Lease<'a> {
    Http2(Arc<Http2Connection>),
    Http1(Http1Lease<'a>),
}

impl Connections {
    pub(super) fn new(endpoint: Endpoint, connector: Arc<Connector>) -> Result<Self, Failure> {
        connector.check_allowed(&endpoint)?;
        let host = HeaderValue::from_str(endpoint.authority().as_str()).map_err(|_| {
            Failure::new(
                FailureKind::Connect,
                Sent::No,
                format!("{endpoint}: the host name cannot be sent in a header"),
            )
        })?;
        let http1 = Arc::new(Http1Pool::new(connector.options().http1_connections_max));
        Ok(Connections {
            endpoint,
            host,
            connector,
            http2: ArcSwapOption::empty(),
            http1,
            is_http1: AtomicBool::new(false),
            connecting: Mutex::new(None),
        })
    }

    /// The HTTP/2 connection, if there is one.
    pub(super) fn http2(&self) -> Option<Arc<Http2Connection>> {
        self.http2.load_full()
    }

    /// A connection for one request when there is no HTTP/2 connection.
    pub(super) async fn lease(&self, progress: &mut Progress) -> Result<Lease<'_>, Failure> {
        *progress = Progress::Connecting;
        if !self.is_http1.load(Ordering::Relaxed) {
            match self.wait_for_connect().await? {
                OpenedConnection::Http2(connection) => return Ok(Lease::Http2(connection)),
                OpenedConnection::Http1 => {}
            }
        }
        self.take_idle_or_open(progress).await
    }

    /// Removes a connection that takes no more requests. The next request opens another
    /// connection.
    pub(super) fn retire(&self, connection: &Arc<Http2Connection>) {
        let current = self.http2.load();
        if current.as_ref().is_some_and(|current| Arc::ptr_eq(current, connection)) {
            self.http2.compare_and_swap(&*current, None);
        }
    }

    /// A connection to an endpoint whose last connection was HTTP/1.1: an idle connection of
    /// the pool, or a new one. If TLS now negotiates HTTP/2, all further requests use the new
    /// connection.
    async fn take_idle_or_open(&self, progress: &mut Progress) -> Result<Lease<'_>, Failure> {
        *progress = Progress::Queued;
        let permit = self.http1.acquire_permit().await;
        *progress = Progress::Connecting;
        if let Some(connection) = permit.take_idle().await {
            return Ok(Lease::Http1(permit.lease(connection)));
        }
        let opened = self.connector.open(&self.endpoint, KnownProtocol::Http1).await.inspect_err(|_| {
            // The next server at this address may speak HTTP/2.
            self.is_http1.store(false, Ordering::Relaxed);
        })?;
        match opened {
            NewConnection::Http1(connection) => Ok(Lease::Http1(permit.lease(connection))),
            NewConnection::Http2(connection) => {
                let connection = Arc::new(connection);
                self.http2.store(Some(Arc::clone(&connection)));
                self.is_http1.store(false, Ordering::Relaxed);
                Ok(Lease::Http2(connection))
            }
        }
    }

    /// Waits for the attempt to connect that is in progress, or starts one and waits for
    /// it.
    async fn wait_for_connect(&self) -> Result<OpenedConnection, Failure> {
        let mut outcome = match self.connection_or_attempt() {
            Ok(opened) => return Ok(opened),
            Err(outcome) => outcome,
        };
        let opened = match outcome.wait_for(Option::is_some).await {
            Ok(opened) => opened.clone(),
            // The runtime that ran the attempt was shut down.
            Err(_) => None,
        };
        let opened = opened.unwrap_or_else(|| {
            let text = format!("{}: connecting was interrupted", self.endpoint);
            Err(Failure::new(FailureKind::Connect, Sent::No, text))
        });
        self.publish_outcome(&outcome, &opened);
        opened
    }

    /// The HTTP/2 connection if there is one, or else (`Err`) the attempt to connect to
    /// wait for.
    fn connection_or_attempt(&self) -> Result<OpenedConnection, watch::Receiver<ConnectOutcome>> {
        let mut connecting = self.connecting.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(connection) = self.http2.load_full() {
            return Ok(OpenedConnection::Http2(connection));
        }
        // An attempt that no request waits for is used too, unless it has failed or its
        // runtime was shut down.
        if let Some(current) = connecting.as_ref() {
            let has_failed = matches!(&*current.outcome.borrow(), Some(Err(_)));
            let is_lost = current.outcome.has_changed().is_err() && current.outcome.borrow().is_none();
            if !has_failed && !is_lost {
                return Err(current.outcome.clone());
            }
        }
        let (sender, outcome) = watch::channel(None);
        let task =
            connect(Arc::clone(&self.connector), self.endpoint.clone(), Arc::clone(&self.http1), sender);
        *connecting = Some(Connecting { outcome: outcome.clone(), _task: AbortOnDrop::spawn(task) });
        Err(outcome)
    }

    /// Publishes the outcome of an attempt to connect. All waiting requests call this
    /// function. The first call publishes the outcome, the other calls do nothing.
    fn publish_outcome(
        &self,
        outcome: &watch::Receiver<ConnectOutcome>,
        opened: &Result<OpenedConnection, Failure>,
    ) {
        let mut connecting = self.connecting.lock().unwrap_or_else(PoisonError::into_inner);
        if !connecting.as_ref().is_some_and(|current| current.outcome.same_channel(outcome)) {
            return;
        }
        *connecting = None;
        match opened {
            Ok(OpenedConnection::Http2(connection)) => {
                self.is_http1.store(false, Ordering::Relaxed);
                self.http2.store(Some(Arc::clone(connection)));
            }
            Ok(OpenedConnection::Http1) => self.is_http1.store(true, Ordering::Relaxed),
            Err(_) => {}
        }
    }
}

/// The task of one attempt to connect.
async fn connect(
    connector: Arc<Connector>,
    endpoint: Endpoint,
    pool: Arc<Http1Pool>,
    outcome: watch::Sender<ConnectOutcome>,
) {
    let opened = connector.open(&endpoint, KnownProtocol::Unknown).await.map(|connection| match connection {
        NewConnection::Http2(connection) => OpenedConnection::Http2(Arc::new(connection)),
        NewConnection::Http1(connection) => {
            pool.add_idle(connection);
            OpenedConnection::Http1
        }
    });
    outcome.send_replace(Some(opened));
}
