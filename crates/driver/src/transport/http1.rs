//! HTTP/1.1 connections. Each connection carries one request at a time, and the number of
//! connections is limited. When an answer was read to its end, its connection stays open
//! for the next request.
//!
//! What always holds: a request holds a permit as long as it uses a connection, so
//! there are never more connections in use than permits; permits are given in the
//! order of the requests; a connection whose answer was not read to its end is closed
//! and not used again.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use http::header::HOST;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{Builder, SendRequest};
use hyper_util::rt::TokioIo;
use perihelion_wire::transport::{Endpoint, Failure, FailureKind, Response, Sent};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::runtime;
use tokio::sync::{Notify, Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout_at};

use super::body::BodyCollector;
use super::connections::Connections;
use super::faults::Switch;
use super::limits::HEADER_BYTES_MAX;
use super::progress::Progress;
use super::task::AbortOnDrop;
use super::transfer::TransferLog;
use crate::diagnostics::{Carrier, Protocol};
use crate::pulse::{RESUME_GRACE, current_runtime};

/// One connection.
pub(super) struct Http1Connection {
    sender: SendRequest<Full<Bytes>>,
    #[cfg_attr(not(feature = "fault-injection"), expect(dead_code, reason = "only faults use it"))]
    switch: Switch,
    _task: AbortOnDrop,
    /// The runtime that runs the task.
    runtime: runtime::Id,
    probe: Arc<Probe>,
    /// The number of the connection in its pool, from one; `None` before its first request.
    number: Option<u32>,
    /// When the connection was opened or given back.
    idle_since: Instant,
    /// When a request asked whether the connection is usable, and gave up before the answer.
    asked_at: Option<Instant>,
}

/// Asks the task of a connection whether it makes progress.
#[derive(Default)]
struct Probe {
    asked: Notify,
    answered: Notify,
    /// Whether the last probe was answered.
    is_answered: AtomicBool,
}

impl Http1Connection {
    /// Starts the task that drives the connection.
    pub(super) async fn open<T>(io: T, switch: Switch) -> hyper::Result<Self>
    where
        T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let (sender, connection) = Builder::new()
            // hyper also refuses more than 100 header fields.
            .max_header_size(HEADER_BYTES_MAX as usize)
            .handshake(TokioIo::new(io))
            .await?;
        let probe = Arc::new(Probe::default());
        let answering = Arc::clone(&probe);
        let task = AbortOnDrop::spawn(async move {
            tokio::select! {
                ended = connection => tracing::debug!(?ended, "an HTTP/1.1 connection ended"),
                () = answering.answer() => {}
            }
        });
        let (runtime, idle_since) = (current_runtime(), Instant::now());
        let (number, asked_at) = (None, None);
        Ok(Http1Connection { sender, switch, _task: task, runtime, probe, number, idle_since, asked_at })
    }

    /// Whether the connection is open and ready for a request, and its task runs. The connection
    /// has until `deadline` to become ready: if the peer has answered early and does not read the
    /// rest of the last request, the connection never becomes ready. A task on another runtime has
    /// to answer a probe too, because that runtime may make no progress any more.
    async fn is_usable(&mut self, deadline: Instant) -> bool {
        if self.runtime == current_runtime() {
            // A connection that is ready now is usable even after the deadline.
            return timeout_at(deadline, self.sender.ready()).await.is_ok_and(|ready| ready.is_ok());
        }
        let asking = async {
            self.probe.is_answered.store(false, Ordering::SeqCst);
            self.probe.asked.notify_one();
            self.sender.ready().await.is_ok() && {
                while !self.probe.is_answered.load(Ordering::SeqCst) {
                    self.probe.answered.notified().await;
                }
                true
            }
        };
        timeout_at(deadline, asking).await.unwrap_or(false)
    }

    /// Whether a request has asked this connection and gave up, and the connection has not answered
    /// since. Requests on the connection's own runtime do not ask, so the result is false for them.
    fn is_unanswered(&self, runtime: runtime::Id) -> bool {
        self.asked_at.is_some() && self.runtime != runtime && !self.probe.is_answered.load(Ordering::SeqCst)
    }
}

impl Probe {
    /// Answers each probe. Never returns.
    async fn answer(&self) {
        loop {
            self.asked.notified().await;
            self.is_answered.store(true, Ordering::SeqCst);
            self.answered.notify_one();
        }
    }
}

/// The connections of one endpoint.
pub(super) struct Http1Pool {
    idle: Mutex<Vec<Http1Connection>>,
    permits: Semaphore,
    connections_max: usize,
    /// How many connections have had a request.
    numbered: AtomicU32,
}

/// The right to use one connection.
pub(super) struct ConnectionPermit<'a> {
    pool: &'a Http1Pool,
    _permit: SemaphorePermit<'a>,
}

/// A connection in use by one request. If the lease is dropped before the answer was read
/// to its end, the connection is closed.
pub(super) struct Http1Lease<'a> {
    permit: ConnectionPermit<'a>,
    connection: Http1Connection,
}

impl Http1Pool {
    pub(super) fn new(connections_max: usize) -> Self {
        let connections_max = connections_max.clamp(1, Semaphore::MAX_PERMITS);
        Http1Pool {
            idle: Mutex::new(Vec::new()),
            permits: Semaphore::new(connections_max),
            connections_max,
            numbered: AtomicU32::new(0),
        }
    }

    /// Waits for the right to use one connection.
    pub(super) async fn acquire_permit(&self) -> ConnectionPermit<'_> {
        let permit = self.permits.acquire().await.expect("the semaphore is never closed");
        ConnectionPermit { pool: self, _permit: permit }
    }

    /// Adds an idle connection to the pool, unless the connection is closed or the pool is
    /// full.
    pub(super) fn add_idle(&self, mut connection: Http1Connection) {
        connection.idle_since = Instant::now();
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < self.connections_max && !connection.sender.is_closed() {
            idle.push(connection);
        }
    }

    /// How many connections are in use, and how many are idle.
    pub(super) fn counts(&self) -> (usize, usize) {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).len();
        (self.connections_max - self.permits.available_permits(), idle)
    }

    /// How long ago the last connection was given back; `None` when no connection is idle.
    pub(super) fn idle_for(&self, now: Instant) -> Option<Duration> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.iter().map(|connection| now.saturating_duration_since(connection.idle_since)).min()
    }

    /// Closes the idle connections of all runtimes but this one.
    fn discard_idle_except_of(&self, runtime: runtime::Id) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let discarded = idle.extract_if(.., |connection| connection.runtime != runtime).collect::<Vec<_>>();
        drop(idle);
        // The connection that did not answer is closed, too.
        let count = discarded.len() + 1;
        tracing::info!(count, "idle HTTP/1.1 connections of other runtimes are closed: one did not answer");
    }

    /// The most recently used idle connection for a request on this runtime. While a connection of
    /// another runtime has not answered a probe, the connections of that runtime are left alone. If
    /// the probe has no answer for [`RESUME_GRACE`], the connections of that runtime are closed.
    fn pop_idle(&self, runtime: runtime::Id) -> Option<Http1Connection> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.iter().all(|connection| connection.asked_at.is_none()) {
            return idle.pop();
        }
        let asked = |connection: &Http1Connection| {
            connection
                .asked_at
                .filter(|_| connection.is_unanswered(runtime))
                .map(|at| (connection.runtime, at))
        };
        let unanswered: Vec<_> = idle.iter().filter_map(asked).collect();
        let is_late =
            |id| unanswered.iter().any(|(runtime, at)| *runtime == id && at.elapsed() >= RESUME_GRACE);
        let closed = idle.extract_if(.., |connection| is_late(connection.runtime)).collect::<Vec<_>>();
        let is_left_alone = |connection: &Http1Connection| {
            unanswered.iter().any(|(runtime, _)| *runtime == connection.runtime)
        };
        let index = idle.iter().rposition(|connection| !is_left_alone(connection));
        let popped = index.map(|index| idle.remove(index));
        drop((idle, closed));
        popped
    }

    /// Puts back a connection that has not answered a probe, or was not asked.
    fn return_unanswered(&self, connection: Http1Connection) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
    }
}

impl<'a> ConnectionPermit<'a> {
    /// Takes the most recently used idle connection that is still open and whose task runs;
    /// `None` when there is none. When a connection of another runtime does not answer in time, all
    /// idle connections of other runtimes are closed. When the caller gives up before that time,
    /// other requests leave the connections of that runtime alone until the asked connection
    /// answers. So only one request waits for connections whose runtimes make no progress, however
    /// many such connections there are. All connections together have [`RESUME_GRACE`] to become
    /// ready.
    pub(super) async fn take_idle(&self) -> Option<Http1Connection> {
        let runtime = current_runtime();
        let deadline = Instant::now() + RESUME_GRACE;
        // The loop ends, because each idle connection is taken once.
        while let Some(idle) = self.pool.pop_idle(runtime) {
            if idle.runtime != runtime && Instant::now() >= deadline {
                // A task on another runtime needs time for its answer.
                self.pool.return_unanswered(idle);
                return None;
            }
            let (pool, asked_at, connection) = (self.pool, Instant::now(), Some(idle));
            let mut asked = AskedConnection { pool, runtime, asked_at, connection };
            let connection = asked.connection.as_mut()?;
            if connection.is_usable(deadline).await {
                connection.asked_at = None;
                return asked.connection.take();
            }
        }
        None
    }

    /// Uses the permit for this connection.
    pub(super) fn lease(self, connection: Http1Connection) -> Http1Lease<'a> {
        Http1Lease { permit: self, connection }
    }
}

/// An idle connection that is asked whether it is usable. When the connection is open and has not
/// answered in time, its runtime probably makes no progress.
struct AskedConnection<'a> {
    pool: &'a Http1Pool,
    /// The runtime of the request.
    runtime: runtime::Id,
    asked_at: Instant,
    /// `None` after the connection has answered.
    connection: Option<Http1Connection>,
}

impl Drop for AskedConnection<'_> {
    /// If the connection of another runtime has not answered in time, closes all idle connections of
    /// other runtimes. If the request gave up earlier, puts the connection back.
    fn drop(&mut self) {
        let may_be_stuck = |connection: &Http1Connection| {
            connection.runtime != self.runtime && !connection.sender.is_closed()
        };
        let Some(mut connection) = self.connection.take().filter(may_be_stuck) else { return };
        if self.asked_at.elapsed() >= RESUME_GRACE {
            self.pool.discard_idle_except_of(self.runtime);
        } else {
            connection.asked_at = Some(self.asked_at);
            self.pool.return_unanswered(connection);
        }
    }
}

/// Whether a connection took a request.
pub(super) enum Http1Delivery {
    Answered(Response),
    /// The connection was closing and did not send the request, which is returned.
    NotTaken(http::Request<Full<Bytes>>),
}

/// The head of an answer, or the request if the connection was closing and did not send it.
type HeadOrRequest = Result<http::Response<Incoming>, http::Request<Full<Bytes>>>;

impl Http1Lease<'_> {
    /// Describes this connection for the diagnostics of a request that it takes now. The
    /// connection gets its number with its first request.
    pub(super) fn carrier(&mut self) -> Carrier {
        let (pool, known) = (self.permit.pool, self.connection.number);
        let number = known.unwrap_or_else(|| pool.numbered.fetch_add(1, Ordering::Relaxed) + 1);
        self.connection.number = Some(number);
        Carrier { protocol: Protocol::Http1, number, is_new: known.is_none(), streams: 1 }
    }

    /// Sends one request and reads its answer.
    pub(super) async fn send(
        mut self,
        connections: &Connections,
        request: http::Request<Full<Bytes>>,
        (progress, log): (&mut Progress, &mut TransferLog),
    ) -> Result<Http1Delivery, Failure> {
        log.hand_over(self.carrier(), Instant::now());
        let answer = match self.send_for_head(connections, request, progress).await? {
            Ok(answer) => answer,
            Err(request) => {
                log.take_back();
                return Ok(Http1Delivery::NotTaken(request));
            }
        };
        log.answer_begins(Instant::now());
        let (head, body) = answer.into_parts();
        let body = read_body(connections, &head.headers, body).await?;
        self.give_back();
        Ok(Http1Delivery::Answered(Response::from_parts(head, body)))
    }

    /// Sends one request and waits for the head of its answer.
    pub(super) async fn send_for_head(
        &mut self,
        connections: &Connections,
        mut request: http::Request<Full<Bytes>>,
        progress: &mut Progress,
    ) -> Result<HeadOrRequest, Failure> {
        request.headers_mut().insert(HOST, connections.host.clone());
        *progress = Progress::Accepted;
        match self.connection.sender.try_send_request(request).await {
            Ok(answer) => {
                *progress = Progress::Answering;
                Ok(Ok(answer))
            }
            Err(mut error) => {
                let Some(request) = error.take_message() else {
                    return Err(no_answer_failure(&connections.endpoint, &error.into_error()));
                };
                *progress = Progress::Connecting;
                Ok(Err(request))
            }
        }
    }

    /// Keeps the connection for the next request. The answer was read to its end.
    pub(super) fn give_back(self) {
        self.permit.pool.add_idle(self.connection);
    }

    #[cfg(feature = "fault-injection")]
    pub(super) fn switch(&self) -> &Switch {
        &self.connection.switch
    }
}

/// The failure of a request that got no answer. The connection did not return the
/// request, so the request may have been sent.
fn no_answer_failure(endpoint: &Endpoint, error: &hyper::Error) -> Failure {
    let (kind, text) = if error.is_parse() {
        (FailureKind::Protocol, "the server violates HTTP/1.1")
    } else {
        (FailureKind::Closed, "the connection ended before the answer")
    };
    Failure::new(kind, Sent::Unknown, format!("{endpoint}: {text}: {error}"))
}

/// The failure of a request whose answer broke off.
pub(super) fn broken_body_failure(endpoint: &Endpoint, error: &hyper::Error) -> Failure {
    let text = format!("{endpoint}: the answer's body broke off: {error}");
    Failure::new(FailureKind::Closed, Sent::Yes, text)
}

async fn read_body(
    connections: &Connections,
    headers: &HeaderMap,
    mut stream: Incoming,
) -> Result<Bytes, Failure> {
    let endpoint = &connections.endpoint;
    let mut body =
        BodyCollector::new(headers, &connections.buffered_bytes).map_err(|error| error.failure(endpoint))?;
    while let Some(frame) = stream.frame().await {
        let frame = frame.map_err(|error| broken_body_failure(endpoint, &error))?;
        // Trailers are ignored.
        if let Ok(part) = frame.into_data() {
            body.push(part).map_err(|error| error.failure(endpoint))?;
        }
    }
    Ok(body.finish())
}
