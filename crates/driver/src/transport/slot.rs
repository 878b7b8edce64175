//! What the transport holds of one endpoint: its HTTP/2 connection, or its pool
//! of HTTP/1.1 ones, and the one attempt to connect that is under way.
//!
//! A request that finds a connection takes it without a lock. One that finds
//! none joins the attempt under way or starts it; the attempt is a task of the
//! slot's own, so a request that gives up does not take it from the others.
//! What always holds: at most one attempt at a time; a connection that takes no
//! more requests is retired once, by whoever noticed, and never comes back.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwapOption;
use http::HeaderValue;
use perihelion_wire::transport::{Endpoint, Failure, FailureKind, Sent};
use tokio::sync::watch;

use super::connect::{Connector, Known, Line};
use super::http1::{Http1Lease, Http1Pool};
use super::http2::Http2Connection;
use super::progress::Progress;
use super::task::AbortOnDrop;

pub(super) struct Slot {
    pub(super) endpoint: Endpoint,
    /// The `host` header of HTTP/1.1.
    pub(super) host: HeaderValue,
    connector: Arc<Connector>,
    /// Written by [`Slot::settle`] and [`Slot::retire`].
    http2: ArcSwapOption<Http2Connection>,
    http1: Arc<Http1Pool>,
    /// Whether the last connection was HTTP/1.1.
    is_http1: AtomicBool,
    attempt: Mutex<Option<Attempt>>,
}

/// The protocol of an endpoint, with its connection if that is shared.
#[derive(Clone)]
enum Opened {
    Http2(Arc<Http2Connection>),
    /// The connection lies in the pool.
    Http1,
}

type Outcome = Option<Result<Opened, Failure>>;

/// One attempt to connect, shared by all who wait for it.
struct Attempt {
    outcome: watch::Receiver<Outcome>,
    _task: AbortOnDrop,
}

/// A connection for one request.
pub(super) enum Lease<'a> {
    Http2(Arc<Http2Connection>),
    Http1(Http1Lease<'a>),
}

impl Slot {
    pub(super) fn new(endpoint: Endpoint, connector: Arc<Connector>) -> Result<Self, Failure> {
        connector.permits(&endpoint)?;
        let host = HeaderValue::from_str(endpoint.authority().as_str()).map_err(|_| {
            Failure::new(
                FailureKind::Connect,
                Sent::No,
                format!("{endpoint}: the host is not a header value"),
            )
        })?;
        let http1 = Arc::new(Http1Pool::new(connector.options().http1_connections_max));
        Ok(Slot {
            endpoint,
            host,
            connector,
            http2: ArcSwapOption::empty(),
            http1,
            is_http1: AtomicBool::new(false),
            attempt: Mutex::new(None),
        })
    }

    /// The shared connection, if there is one.
    pub(super) fn http2(&self) -> Option<Arc<Http2Connection>> {
        self.http2.load_full()
    }

    /// A connection for one request when none is shared.
    pub(super) async fn lease(&self, progress: &mut Progress) -> Result<Lease<'_>, Failure> {
        *progress = Progress::Connecting;
        if !self.is_http1.load(Ordering::Relaxed) {
            match self.opened().await? {
                Opened::Http2(connection) => return Ok(Lease::Http2(connection)),
                Opened::Http1 => {}
            }
        }
        self.lease_http1(progress).await
    }

    /// The connection takes no more requests: the next one opens another.
    pub(super) fn retire(&self, connection: &Arc<Http2Connection>) {
        let current = self.http2.load();
        if current.as_ref().is_some_and(|current| Arc::ptr_eq(current, connection)) {
            self.http2.compare_and_swap(&*current, None);
        }
    }

    async fn lease_http1(&self, progress: &mut Progress) -> Result<Lease<'_>, Failure> {
        *progress = Progress::Queued;
        let turn = self.http1.turn().await;
        *progress = Progress::Connecting;
        if let Some(connection) = turn.idle().await {
            return Ok(Lease::Http1(turn.with(connection)));
        }
        let opened = self.connector.open(&self.endpoint, Known::Http1).await.inspect_err(|_| {
            // Whoever listens here next may speak HTTP/2.
            self.is_http1.store(false, Ordering::Relaxed);
        })?;
        match opened {
            Line::Http1(connection) => Ok(Lease::Http1(turn.with(connection))),
            Line::Http2(connection) => {
                let connection = Arc::new(connection);
                self.http2.store(Some(Arc::clone(&connection)));
                self.is_http1.store(false, Ordering::Relaxed);
                Ok(Lease::Http2(connection))
            }
        }
    }

    /// Joins the attempt under way, or starts one.
    async fn opened(&self) -> Result<Opened, Failure> {
        let mut outcome = match self.join() {
            Ok(opened) => return Ok(opened),
            Err(outcome) => outcome,
        };
        let opened = match outcome.wait_for(Option::is_some).await {
            Ok(opened) => opened.clone(),
            // The runtime that ran the attempt is gone.
            Err(_) => None,
        };
        let opened = opened.unwrap_or_else(|| {
            let text = format!("{}: connecting was interrupted", self.endpoint);
            Err(Failure::new(FailureKind::Connect, Sent::No, text))
        });
        self.settle(&outcome, &opened);
        opened
    }

    /// What is there already, or what to wait for.
    fn join(&self) -> Result<Opened, watch::Receiver<Outcome>> {
        let mut attempt = self.attempt.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(connection) = self.http2.load_full() {
            return Ok(Opened::Http2(connection));
        }
        // An attempt whose waiters all left is as good as a new one, unless it failed.
        if let Some(current) = attempt.as_ref() {
            let has_failed = matches!(&*current.outcome.borrow(), Some(Err(_)));
            let is_lost = current.outcome.has_changed().is_err() && current.outcome.borrow().is_none();
            if !has_failed && !is_lost {
                return Err(current.outcome.clone());
            }
        }
        let (sender, outcome) = watch::channel(None);
        let connecting =
            connect(Arc::clone(&self.connector), self.endpoint.clone(), Arc::clone(&self.http1), sender);
        *attempt = Some(Attempt { outcome: outcome.clone(), _task: AbortOnDrop::spawn(connecting) });
        Err(outcome)
    }

    /// Publishes what an attempt came to. The first of its waiters does it.
    fn settle(&self, outcome: &watch::Receiver<Outcome>, opened: &Result<Opened, Failure>) {
        let mut attempt = self.attempt.lock().unwrap_or_else(PoisonError::into_inner);
        if !attempt.as_ref().is_some_and(|current| current.outcome.same_channel(outcome)) {
            return;
        }
        *attempt = None;
        match opened {
            Ok(Opened::Http2(connection)) => {
                self.is_http1.store(false, Ordering::Relaxed);
                self.http2.store(Some(Arc::clone(connection)));
            }
            Ok(Opened::Http1) => self.is_http1.store(true, Ordering::Relaxed),
            Err(_) => {}
        }
    }
}

/// The attempt's task. It knows the pool but not the slot, which owns it.
async fn connect(
    connector: Arc<Connector>,
    endpoint: Endpoint,
    pool: Arc<Http1Pool>,
    outcome: watch::Sender<Outcome>,
) {
    let opened = connector.open(&endpoint, Known::Nothing).await.map(|line| match line {
        Line::Http2(connection) => Opened::Http2(Arc::new(connection)),
        Line::Http1(connection) => {
            pool.keep(connection);
            Opened::Http1
        }
    });
    outcome.send_replace(Some(opened));
}
