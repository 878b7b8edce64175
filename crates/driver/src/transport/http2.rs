//! HTTP/2: the handshake of a connection, and the exchange of one request and its answer.
//!
//! This module uses `h2` directly instead of hyper's client, because retries depend on
//! whether a request was sent, and `h2` reports this exactly: a request whose stream ends
//! with the peer's GOAWAY was not processed. hyper reports the same error for any connection
//! that began to close.
//!
//! What always holds: dropping an exchange resets its stream and does not affect the
//! connection; once the peer has said how many streams it allows, no streams beyond that
//! number are opened. A request that waits for a stream has not been sent.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use h2::client::{Connection, ResponseFuture, SendRequest};
use h2::{Ping, PingPong, Reason, RecvStream, SendStream};
use http::header::CONTENT_LENGTH;
use http::{HeaderMap, HeaderValue, Method};
use perihelion_wire::transport::{Endpoint, Failure, FailureKind, Response, Sent};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, timeout_at};

use super::body::BodyCollector;
use super::faults::Switch;
use super::health;
use super::http::RequestParts;
use super::limits::{
    CONNECTION_WINDOW_BYTES, FAILURE_COUNTED_AFTER, HEADER_BYTES_MAX, RESETS_REMEMBERED_FOR,
    RESETS_REMEMBERED_MAX, STREAM_WINDOW_BYTES, STREAMS_AT_FIRST,
};
use super::progress::Progress;
use super::shard::{Reservation, takes_requests};
use super::transfer::{Delivered, TransferLog};
use super::vitals::{SocketWithVitals, Vitals};

/// A new connection. It makes progress only while `connection` is polled.
pub(super) struct NewHttp2 {
    pub(super) sender: SendRequest<Bytes>,
    pub(super) pings: PingPong,
    pub(super) connection: Pin<Box<dyn Future<Output = Result<(), h2::Error>> + Send>>,
    pub(super) vitals: Arc<Vitals>,
    /// Whether the peer has said how many streams it allows.
    pub(super) is_limit_known: bool,
    pub(super) switch: Switch,
}

/// How the driver knows that the peer speaks HTTP/2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Http2Support {
    /// TLS has negotiated HTTP/2, so requests may be sent at once.
    Negotiated,
    /// There was no negotiation. The peer has to answer a ping before the connection is
    /// used.
    Assumed,
}

/// Makes the HTTP/2 handshake. With [`Http2Support::Assumed`], the result is an error when
/// the peer answers in another protocol.
pub(super) async fn open<T>(io: T, support: Http2Support) -> Result<NewHttp2, h2::Error>
where
    T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let vitals = Arc::new(Vitals::new(Instant::now()));
    let (sender, mut connection) = h2::client::Builder::new()
        .initial_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_header_list_size(HEADER_BYTES_MAX)
        .initial_max_send_streams(STREAMS_AT_FIRST)
        .max_concurrent_reset_streams(RESETS_REMEMBERED_MAX)
        .reset_stream_duration(RESETS_REMEMBERED_FOR)
        // This limit protects servers. In a client it would count late answers to
        // streams that were reset, and close a connection that works.
        .max_local_error_reset_streams(None)
        .enable_push(false)
        .handshake::<_, Bytes>(SocketWithVitals::new(io, Arc::clone(&vitals)))
        .await?;
    let mut pings = connection.ping_pong().expect("nothing else has taken the ping handle");
    // The pong comes after the peer's settings, which say how many streams the peer allows.
    let is_limit_known = support == Http2Support::Assumed;
    if is_limit_known {
        wait_for_pong(&mut connection, &mut pings).await?;
    }
    Ok(NewHttp2 {
        sender,
        pings,
        connection: Box::pin(connection),
        vitals,
        is_limit_known,
        switch: Default::default(),
    })
}

/// A request that was handed to a connection and waits for its answer. Dropping it resets
/// its stream.
pub(super) struct Exchange {
    answer: ResponseFuture,
    /// Kept until the end, because the body may not have been sent completely.
    _request_body: SendStream<Bytes>,
    began_at: Instant,
    /// Whether the whole answer has arrived, or the end of the request was recorded otherwise.
    is_settled: AtomicBool,
    pub(super) reservation: Reservation,
}

/// Why a request was not handed to a connection. Nothing was sent.
pub(super) enum NotTaken {
    /// The connection is going away. The request is returned.
    Returned(Box<RequestParts>),
    /// The connection refused the request and has consumed it. The caller has to make it again.
    Refused(Failure),
}

impl Reservation {
    /// Hands a request to the connection. This does not wait.
    pub(super) fn begin(self, parts: RequestParts) -> Result<Exchange, NotTaken> {
        let mut sender = self.sender();
        if !takes_requests(&mut sender) {
            self.owner.retire(&self.shard.core, health::Reason::GoingAway);
            return Err(NotTaken::Returned(Box::new(parts)));
        }
        let (mut request, body) = parts.into_http2(&self.owner.endpoint);
        *request.version_mut() = http::Version::HTTP_2;
        set_content_length(&request.method().clone(), request.headers_mut(), body.len());
        let (answer, mut stream) = sender.send_request(request, body.is_empty()).map_err(|error| {
            let text = format!("{}: the connection takes no more requests: {error}", self.owner.endpoint);
            NotTaken::Refused(Failure::new(FailureKind::Closed, Sent::No, text))
        })?;
        if !body.is_empty() {
            // `h2` stores the body until the peer's windows allow sending it. If the
            // stream was reset already, waiting for the answer fails.
            let _ = stream.send_data(body, true);
        }
        let began_at = Instant::now();
        Ok(Exchange {
            answer,
            _request_body: stream,
            began_at,
            is_settled: AtomicBool::new(false),
            reservation: self,
        })
    }
}

impl Exchange {
    /// Waits for the whole answer, at most until the deadline. `log` has recorded the earlier
    /// phases of the request.
    pub(super) fn finish(
        mut self,
        mut log: TransferLog,
        deadline: Instant,
    ) -> impl Future<Output = Delivered> + Send + 'static {
        log.hand_over(self.reservation.shard.core.carrier(), self.began_at);
        async move {
            let mut progress = Progress::Accepted;
            let result = match timeout_at(deadline, self.read_answer(&mut progress, &mut log)).await {
                Ok(done) => done,
                Err(_) => Err(self.timeout_failure(progress)),
            };
            let now = Instant::now();
            match &result {
                Ok(_) => self.answered(now),
                Err(_) => self.settle(),
            }
            Delivered { result, transfer: Some(log.end(now)) }
        }
    }

    async fn read_answer(
        &mut self,
        progress: &mut Progress,
        log: &mut TransferLog,
    ) -> Result<Response, Failure> {
        let answer = self.head().await?;
        *progress = Progress::Answering;
        log.answer_begins(Instant::now());
        let owner = &self.reservation.owner;
        let (head, mut stream) = answer.into_parts();
        let mut body = BodyCollector::new(&head.headers, &owner.buffered_bytes)
            .map_err(|too_long| too_long.failure(&owner.endpoint))?;
        loop {
            match next_part(&mut stream).await {
                Ok(Some(part)) => body.push(part).map_err(|too_long| too_long.failure(&owner.endpoint))?,
                Ok(None) => return Ok(Response::from_parts(head, body.finish())),
                Err(error) => return Err(self.body_lost(&error)),
            }
        }
    }

    /// Waits for the head of the answer.
    pub(super) async fn head(&mut self) -> Result<http::Response<RecvStream>, Failure> {
        let answered = (&mut self.answer).await;
        answered.map_err(|error| {
            self.settle();
            let failure = no_answer_failure(&self.reservation.owner.endpoint, &error);
            self.reservation.record_failure(failure, &error)
        })
    }

    /// The failure of a request whose answer broke off.
    pub(super) fn body_lost(&self, error: &h2::Error) -> Failure {
        self.settle();
        self.reservation.record_failure(broken_body_failure(&self.reservation.owner.endpoint, error), error)
    }

    /// The failure of a request whose deadline has passed.
    pub(super) fn timeout_failure(&self, progress: Progress) -> Failure {
        self.settle();
        self.reservation.timeout_failure(progress, self.began_at)
    }

    /// Records that the whole answer has arrived. The head alone says little: on a connection
    /// whose bodies do not arrive, no request succeeds.
    pub(super) fn answered(&self, now: Instant) {
        self.settle();
        self.reservation.shard.core.vitals.answered(now);
    }

    /// From now on, dropping the exchange does not count against the connection.
    pub(super) fn settle(&self) {
        self.is_settled.store(true, Ordering::Relaxed);
    }
}

impl Reservation {
    /// Records a failure. If the whole connection ended, the failure is part of that
    /// incident. If the stream failed alone, the failure counts against the connection.
    fn record_failure(&self, failure: Failure, error: &h2::Error) -> Failure {
        let core = &self.shard.core;
        if is_connection_error(error) {
            return failure.with_incident(core.incident_of_end(&self.owner));
        }
        // A refused stream counts too: a connection that refuses every stream is of no use.
        core.vitals.failed();
        failure
    }

    /// The failure of a request whose deadline has passed. If nothing at all arrived on the
    /// connection since the request began, the connection is at fault. In that case the failure is
    /// part of the incident of this silence, as are the failures of the connection's other requests.
    pub(super) fn timeout_failure(&self, progress: Progress, began_at: Instant) -> Failure {
        let core = &self.shard.core;
        let is_under_way = matches!(progress, Progress::Accepted | Progress::Answering);
        if is_under_way && began_at.elapsed() >= FAILURE_COUNTED_AFTER {
            core.vitals.failed();
        }
        let failure = progress.timeout_failure(&self.owner.endpoint);
        if core.vitals.has_arrival_since(began_at) {
            return failure;
        }
        failure.with_incident(core.silence_incident(&self.owner))
    }
}

impl Drop for Exchange {
    /// A request that is given up before its whole answer counts against the connection, if it
    /// had enough time. Otherwise a connection that answers nothing but pings, or only heads,
    /// would stay in use as long as its callers give up before their deadlines.
    fn drop(&mut self) {
        if !*self.is_settled.get_mut() && self.began_at.elapsed() >= FAILURE_COUNTED_AFTER {
            self.reservation.shard.core.vitals.failed();
        }
    }
}

/// Sets `content-length` where HTTP/1.1 requires it: the front end of the service may
/// translate the request to HTTP/1.1.
fn set_content_length(method: &Method, headers: &mut HeaderMap, length: usize) {
    let expects_body = matches!(*method, Method::POST | Method::PUT | Method::PATCH);
    if (length > 0 || expects_body) && !headers.contains_key(CONTENT_LENGTH) {
        headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
    }
}

/// The failure of a request whose answer broke off.
fn broken_body_failure(endpoint: &Endpoint, error: &h2::Error) -> Failure {
    let kind = if error.is_library() { FailureKind::Protocol } else { FailureKind::Closed };
    Failure::new(kind, Sent::Yes, format!("{endpoint}: the answer's body broke off: {error}"))
}

/// Whether the error ended the whole connection, and not only one stream.
fn is_connection_error(error: &h2::Error) -> bool {
    error.is_io() || (error.is_library() && error.is_go_away())
}

/// The next part of the body. Its flow-control capacity is released at once, because
/// `BodyCollector` limits the length of the body. Trailers are read and ignored, so that
/// the stream ends instead of being reset.
pub(super) async fn next_part(stream: &mut RecvStream) -> Result<Option<Bytes>, h2::Error> {
    match poll_fn(|cx| stream.poll_data(cx)).await {
        Some(Ok(part)) => {
            // Fails only if the stream has ended; the next read reports that.
            let _ = stream.flow_control().release_capacity(part.len());
            Ok(Some(part))
        }
        Some(Err(error)) => Err(error),
        None if stream.is_end_stream() => Ok(None),
        None => poll_fn(|cx| stream.poll_trailers(cx)).await.map(|_| None),
    }
}

/// The failure of a request that got no answer. It says whether the request was sent.
fn no_answer_failure(endpoint: &Endpoint, error: &h2::Error) -> Failure {
    let fail = |kind, sent, text: &str| Failure::new(kind, sent, format!("{endpoint}: {text}: {error}"));
    if error.is_remote() && error.is_go_away() {
        return fail(FailureKind::Closed, Sent::No, "the server closed the connection before this request");
    }
    if error.is_remote() && error.reason() == Some(Reason::REFUSED_STREAM) {
        return fail(FailureKind::Closed, Sent::No, "the server refused the stream");
    }
    if error.is_remote() {
        return fail(FailureKind::Closed, Sent::Unknown, "the server reset the stream");
    }
    if error.is_io() {
        return fail(FailureKind::Closed, Sent::Unknown, "the connection ended before the answer");
    }
    fail(FailureKind::Protocol, Sent::Unknown, "the server violates HTTP/2")
}

/// Waits until the peer has answered a ping in HTTP/2.
async fn wait_for_pong<T>(
    connection: &mut Connection<T, Bytes>,
    pings: &mut PingPong,
) -> Result<(), h2::Error>
where
    T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    tokio::select! {
        biased;
        ended = connection => Err(ended.err().unwrap_or_else(|| Reason::NO_ERROR.into())),
        pong = pings.ping(Ping::opaque()) => pong.map(|_| ()),
    }
}
