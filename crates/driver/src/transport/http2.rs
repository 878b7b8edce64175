//! One HTTP/2 connection: the task that drives it, and the requests on it.
//!
//! This module uses `h2` directly instead of hyper's client, for two reasons. First,
//! retries depend on whether a request was sent, and `h2` reports this exactly: a request
//! whose stream ends with the peer's GOAWAY was not processed. hyper reports the same error
//! for any connection that began to close. Second, with `h2` a request needs no task, no
//! channel and no copy of its body: its future waits on its own stream.
//!
//! What always holds: dropping a request's future resets its stream and does not
//! affect the connection; dropping the connection ends its task; once the peer has said how
//! many streams it allows, no streams beyond that number are opened. A request that waits
//! for a stream has not been sent.

use std::future::{pending, poll_fn};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use h2::client::{Connection, SendRequest};
use h2::{Ping, PingPong, Reason, RecvStream};
use http::header::CONTENT_LENGTH;
use http::{HeaderMap, HeaderValue, Method};
use perihelion_wire::transport::{Endpoint, Failure, FailureKind, Response, Sent};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time;

use super::body::BodyCollector;
use super::limits::{
    CONNECTION_WINDOW_BYTES, HEADER_BYTES_MAX, RESETS_REMEMBERED_FOR, RESETS_REMEMBERED_MAX,
    STREAM_WINDOW_BYTES, STREAMS_AT_FIRST, STREAMS_MAX,
};
use super::options::HttpOptions;
use super::progress::Progress;
use super::task::AbortOnDrop;

/// A connection that requests share.
pub(super) struct Http2Connection {
    sender: SendRequest<Bytes>,
    /// One permit for each stream that may be open. Closed when the connection ends.
    streams: Arc<Semaphore>,
    _task: AbortOnDrop,
}

/// When to ping the peer, and how long to wait for its pong.
#[derive(Debug, Clone, Copy)]
struct PingTimes {
    /// The time from a pong to the next ping; `None` for one ping only.
    interval: Option<Duration>,
    timeout: Duration,
}

/// The permission to open one stream on a connection, for one request.
pub(super) struct ReadyStream<'a> {
    sender: SendRequest<Bytes>,
    _stream: SemaphorePermit<'a>,
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

impl Http2Connection {
    /// Makes the HTTP/2 handshake and starts the task that drives the connection.
    /// With [`Http2Support::Assumed`], the result is an error when the peer answers in
    /// another protocol.
    pub(super) async fn open<T>(
        io: T,
        options: &HttpOptions,
        support: Http2Support,
    ) -> Result<Self, h2::Error>
    where
        T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
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
            .handshake::<_, Bytes>(io)
            .await?;
        let mut pings = connection.ping_pong().expect("nothing else has taken it");
        let mut granted = STREAMS_AT_FIRST;
        if support == Http2Support::Assumed {
            wait_for_pong(&mut connection, &mut pings).await?;
            granted = sender.current_max_send_streams().clamp(1, STREAMS_MAX);
        }
        let streams = Arc::new(Semaphore::new(granted));
        let times = PingTimes { interval: options.ping_interval, timeout: options.ping_timeout };
        let permits = StreamPermits { sender: sender.clone(), streams: Arc::clone(&streams), granted };
        let pinging = keep_alive(pings, times, permits);
        let task = AbortOnDrop::spawn(drive(connection, pinging, CloseOnDrop(Arc::clone(&streams))));
        Ok(Http2Connection { sender, streams, _task: task })
    }

    /// Waits until one more stream may be opened. `None` when the connection takes no
    /// more requests; then nothing was sent.
    pub(super) async fn ready(&self) -> Option<ReadyStream<'_>> {
        let stream = self.streams.acquire().await.ok()?;
        let mut sender = self.sender.clone();
        poll_fn(|cx| sender.poll_ready(cx)).await.ok()?;
        Some(ReadyStream { sender, _stream: stream })
    }
}

/// Closes the semaphore when the connection ends, so that requests that wait
/// for a stream go to another connection.
struct CloseOnDrop(Arc<Semaphore>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl ReadyStream<'_> {
    /// Sends one request and reads its answer.
    pub(super) async fn send(
        mut self,
        endpoint: &Endpoint,
        mut request: http::Request<()>,
        body: Bytes,
        progress: &mut Progress,
    ) -> Result<Response, Failure> {
        *request.version_mut() = http::Version::HTTP_2;
        set_content_length(&request.method().clone(), request.headers_mut(), body.len());
        let (answer, mut stream) = self.sender.send_request(request, body.is_empty()).map_err(|error| {
            Failure::new(
                FailureKind::Closed,
                Sent::No,
                format!("{endpoint}: the request was not taken: {error}"),
            )
        })?;
        *progress = Progress::Accepted;
        if !body.is_empty() {
            // `h2` stores the body until the peer's windows allow sending it. If the
            // stream was reset already, waiting for the answer below fails.
            let _ = stream.send_data(body, true);
        }
        let (head, body) = answer.await.map_err(|error| no_answer_failure(endpoint, &error))?.into_parts();
        *progress = Progress::Answering;
        let body = read_body(endpoint, &head.headers, body).await?;
        Ok(Response::from_parts(head, body))
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

async fn read_body(
    endpoint: &Endpoint,
    headers: &HeaderMap,
    mut stream: RecvStream,
) -> Result<Bytes, Failure> {
    let mut body = BodyCollector::new(headers).map_err(|error| error.failure(endpoint))?;
    loop {
        match next_part(&mut stream).await {
            Ok(Some(part)) => body.push(part).map_err(|error| error.failure(endpoint))?,
            Ok(None) => return Ok(body.finish()),
            Err(error) => {
                let kind = if error.is_library() { FailureKind::Protocol } else { FailureKind::Closed };
                let text = format!("{endpoint}: the answer's body broke off: {error}");
                return Err(Failure::new(kind, Sent::Yes, text));
            }
        }
    }
}

/// The next part of the body. Its flow-control capacity is released at once, because
/// `BodyCollector` limits the length of the body. Trailers are read and ignored, so that
/// the stream ends instead of being reset.
async fn next_part(stream: &mut RecvStream) -> Result<Option<Bytes>, h2::Error> {
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

/// The failure of a request that got no answer, with whether it was sent.
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

/// The connection's task. The task ends when the connection ends, or when a ping is not
/// answered. Then dropping `_streams` closes the semaphore.
async fn drive<T>(connection: Connection<T, Bytes>, pinging: impl Future<Output = ()>, _streams: CloseOnDrop)
where
    T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    tokio::select! {
        // The connection is polled first, so that a pong that has arrived is seen.
        biased;
        ended = connection => tracing::debug!(?ended, "an HTTP/2 connection ended"),
        () = pinging => tracing::debug!("an HTTP/2 connection was closed: a ping was not answered"),
    }
}

/// Sends pings until one is not answered. The first ping is sent at once. Its pong comes
/// after the peer's settings, which say how many streams the peer allows. Without an
/// interval there is only the first ping.
async fn keep_alive(mut pings: PingPong, times: PingTimes, mut permits: StreamPermits) {
    loop {
        match time::timeout(times.timeout, pings.ping(Ping::opaque())).await {
            Ok(Ok(_)) => permits.adjust(),
            // The connection is ending, and its own future reports that.
            Ok(Err(_)) => return pending().await,
            Err(_) => return,
        }
        match times.interval {
            Some(interval) => time::sleep(interval).await,
            None => return pending().await,
        }
    }
}

/// The number of streams that may be open: as many as the peer allows, up to
/// [`STREAMS_MAX`].
struct StreamPermits {
    sender: SendRequest<Bytes>,
    streams: Arc<Semaphore>,
    /// The number of permits of `streams`, free or in use.
    granted: usize,
}

impl StreamPermits {
    /// Adjusts the permits of the semaphore to the number that the peer allows now.
    /// Permits in use cannot be removed; the next pong, if there is one, adjusts again.
    fn adjust(&mut self) {
        let allowed = self.sender.current_max_send_streams().clamp(1, STREAMS_MAX);
        if allowed >= self.granted {
            self.streams.add_permits(allowed - self.granted);
            self.granted = allowed;
        } else {
            self.granted -= self.streams.forget_permits(self.granted - allowed);
        }
    }
}
