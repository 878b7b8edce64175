//! One HTTP/2 connection: a task that drives it, and the requests on it.
//!
//! This talks to `h2` itself, not through hyper's client, for two reasons. The
//! fact that a retry rests on, whether a request was sent, is exact here: a
//! stream that ends with the peer's GOAWAY was beyond the last one it processed,
//! while hyper reports a connection that began to close in the same way. And a
//! request costs no task, no channel and no copy of its body: its future waits
//! on its own stream.
//!
//! What always holds: dropping a request's future resets its stream and leaves
//! the connection alone; dropping the connection ends its task; no more streams
//! are opened than the peer allows, the rest waits where it is known not to
//! have been sent.

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

use super::body::Gathering;
use super::limits::{
    CONNECTION_WINDOW, HEADER_BYTES_MAX, RESETS_REMEMBERED_FOR, RESETS_REMEMBERED_MAX, STREAM_WINDOW,
    STREAMS_AT_FIRST, STREAMS_MAX,
};
use super::options::HttpOptions;
use super::progress::Progress;
use super::task::AbortOnDrop;

/// A connection that requests share.
pub(super) struct Http2Connection {
    sender: SendRequest<Bytes>,
    streams: Arc<Semaphore>,
    _task: AbortOnDrop,
}

/// When to ask whether the peer is still there.
#[derive(Debug, Clone, Copy)]
struct Pulse {
    interval: Option<Duration>,
    timeout: Duration,
}

/// Room for one request on a connection.
pub(super) struct Ready<'a> {
    sender: SendRequest<Bytes>,
    _stream: SemaphorePermit<'a>,
}

/// Whether to wait for the peer's first words before the connection is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Greeting {
    /// The protocol was agreed on: requests may leave with the first bytes.
    Agreed,
    /// The protocol is a guess: the peer has to answer in it first.
    Guess,
}

impl Http2Connection {
    /// Shakes hands and starts the task that drives the connection. With
    /// [`Greeting::Guess`] it fails when the peer answers in another protocol.
    pub(super) async fn open<T>(io: T, options: &HttpOptions, greeting: Greeting) -> Result<Self, h2::Error>
    where
        T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let (sender, mut connection) = h2::client::Builder::new()
            .initial_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_header_list_size(HEADER_BYTES_MAX)
            .initial_max_send_streams(STREAMS_AT_FIRST)
            .max_concurrent_reset_streams(RESETS_REMEMBERED_MAX)
            .reset_stream_duration(RESETS_REMEMBERED_FOR)
            // Counts late answers to forgotten streams over a whole life, to
            // protect servers; it would end a connection that did no wrong.
            .max_local_error_reset_streams(None)
            .enable_push(false)
            .handshake::<_, Bytes>(io)
            .await?;
        let mut pings = connection.ping_pong().expect("nobody else has taken it");
        let mut granted = STREAMS_AT_FIRST;
        if greeting == Greeting::Guess {
            greet(&mut connection, &mut pings).await?;
            granted = sender.current_max_send_streams().clamp(1, STREAMS_MAX);
        }
        let streams = Arc::new(Semaphore::new(granted));
        let pulse = Pulse { interval: options.ping_interval, timeout: options.ping_timeout };
        let grants = Grants { sender: sender.clone(), streams: Arc::clone(&streams), granted };
        let life = keep_alive(pings, pulse, grants);
        let task = AbortOnDrop::spawn(drive(connection, life, CloseOnDrop(Arc::clone(&streams))));
        Ok(Http2Connection { sender, streams, _task: task })
    }

    /// Waits for room for one more stream; `None` when the connection takes no
    /// more requests: then nothing was sent.
    pub(super) async fn ready(&self) -> Option<Ready<'_>> {
        let stream = self.streams.acquire().await.ok()?;
        let mut sender = self.sender.clone();
        poll_fn(|cx| sender.poll_ready(cx)).await.ok()?;
        Some(Ready { sender, _stream: stream })
    }
}

/// Sends those who wait for a stream elsewhere when the connection ends.
struct CloseOnDrop(Arc<Semaphore>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl Ready<'_> {
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
            // Held by reference until the peer's windows let it out. A stream
            // that is already reset says so through its answer.
            let _ = stream.send_data(body, true);
        }
        let (head, body) = answer.await.map_err(|error| head_failure(endpoint, &error))?.into_parts();
        *progress = Progress::Answering;
        let body = read_body(endpoint, &head.headers, body).await?;
        Ok(Response::from_parts(head, body))
    }
}

/// As HTTP/1.1 has it, because the service's front may translate to that.
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
    let mut body = Gathering::new(headers).map_err(|error| error.failure(endpoint))?;
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

/// The next part of the body, its room in the windows given back at once: the
/// bound is ours, not the windows'. Trailers are read and ignored, so that the
/// stream ends instead of being reset.
async fn next_part(stream: &mut RecvStream) -> Result<Option<Bytes>, h2::Error> {
    match poll_fn(|cx| stream.poll_data(cx)).await {
        Some(Ok(part)) => {
            // Fails only on a stream that is gone, which the next read tells.
            let _ = stream.flow_control().release_capacity(part.len());
            Ok(Some(part))
        }
        Some(Err(error)) => Err(error),
        None if stream.is_end_stream() => Ok(None),
        None => poll_fn(|cx| stream.poll_trailers(cx)).await.map(|_| None),
    }
}

/// Why there is no head, and what that says about the request.
fn head_failure(endpoint: &Endpoint, error: &h2::Error) -> Failure {
    let fail = |kind, sent, text: &str| Failure::new(kind, sent, format!("{endpoint}: {text}: {error}"));
    if error.is_remote() && error.is_go_away() {
        return fail(FailureKind::Closed, Sent::No, "the server closed the connection before this request");
    }
    if error.is_remote() && error.reason() == Some(Reason::REFUSED_STREAM) {
        return fail(FailureKind::Closed, Sent::No, "the server refused the stream");
    }
    if error.is_remote() {
        return fail(FailureKind::Closed, Sent::Unknown, "the server gave up on the request");
    }
    if error.is_io() {
        return fail(FailureKind::Closed, Sent::Unknown, "the connection ended before the answer");
    }
    fail(FailureKind::Protocol, Sent::Unknown, "the server does not keep to HTTP/2")
}

/// Waits until the peer has answered in HTTP/2.
async fn greet<T>(connection: &mut Connection<T, Bytes>, pings: &mut PingPong) -> Result<(), h2::Error>
where
    T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    tokio::select! {
        biased;
        ended = connection => Err(ended.err().unwrap_or_else(|| Reason::NO_ERROR.into())),
        pong = pings.ping(Ping::opaque()) => pong.map(|_| ()),
    }
}

/// The connection's task: ends with the connection, or when the peer is gone.
async fn drive<T>(connection: Connection<T, Bytes>, life: impl Future<Output = ()>, _streams: CloseOnDrop)
where
    T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    tokio::select! {
        // The connection first: a pong that is already here must count.
        biased;
        ended = connection => tracing::debug!(?ended, "an HTTP/2 connection ended"),
        () = life => tracing::debug!("an HTTP/2 connection was closed: a ping went unanswered"),
    }
}

/// Pings until one goes unanswered. The first leaves at once: its pong comes
/// after the peer's settings, and so tells how many streams it allows.
async fn keep_alive(mut pings: PingPong, pulse: Pulse, mut grants: Grants) {
    loop {
        match time::timeout(pulse.timeout, pings.ping(Ping::opaque())).await {
            Ok(Ok(_)) => grants.follow(),
            // The connection is ending; its own future says so.
            Ok(Err(_)) => return pending().await,
            Err(_) => return,
        }
        match pulse.interval {
            Some(interval) => time::sleep(interval).await,
            None => return pending().await,
        }
    }
}

/// How many streams may be open: what the peer allows, within our bounds.
struct Grants {
    sender: SendRequest<Bytes>,
    streams: Arc<Semaphore>,
    granted: usize,
}

impl Grants {
    /// Follows what the peer allows now. Streams in use are not taken back:
    /// that happens at a later pong.
    fn follow(&mut self) {
        let allowed = self.sender.current_max_send_streams().clamp(1, STREAMS_MAX);
        if allowed >= self.granted {
            self.streams.add_permits(allowed - self.granted);
            self.granted = allowed;
        } else {
            self.granted -= self.streams.forget_permits(self.granted - allowed);
        }
    }
}
