//! Runs one connection from its first byte to its last.
//!
//! First the protocol is detected, then the TLS handshake is done if the client uses TLS.
//! Then hyper serves HTTP/1.1 or HTTP/2 until the peer leaves or the supervisor ends the
//! connection. Errors are not passed on, because they concern one peer. They are logged
//! at debug level, because any peer can cause them.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hyper::server::conn::{http1, http2};
use hyper::service::{HttpService, service_fn};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::buffered_body::BufferedBody;
use super::connection_state::{ConnectionState, Directive};
use super::limits::{
    BUFFER_BYTES, LINGER_BYTES, LINGER_TIMEOUT, STREAMS_RESET_BY_ERROR, STREAMS_RESET_PENDING, WINDOW_BYTES,
};
use super::serve::{Context, serve};
use super::sniff::{Protocol, sniff};
use super::tracked_stream::TrackedStream;
use super::{Handler, Limits, Peer, Scheme};
use crate::memory::MemoryBudget;

/// The name of HTTP/2 in ALPN.
const ALPN_HTTP2: &[u8] = b"h2";

/// The parts of a listener that all its connections share.
pub(super) struct Shared<H> {
    pub(super) handler: Arc<H>,
    pub(super) limits: Arc<Limits>,
    pub(super) memory: Arc<MemoryBudget>,
    pub(super) tls: Option<TlsAcceptor>,
}

/// Serves a connection until it ends.
pub(super) async fn run<H: Handler>(
    shared: &Shared<H>,
    state: Arc<ConnectionState>,
    stream: TcpStream,
    remote: SocketAddr,
) {
    let peer = |scheme| Peer { scheme, remote };
    let Some((protocol, stream)) = detect_protocol(stream, shared.limits.first_request_timeout).await else {
        return;
    };
    match protocol {
        Protocol::Http1 => serve_http1(stream, shared.context(state, peer(Scheme::Http))).await,
        Protocol::Http2 => serve_http2(stream, shared.context(state, peer(Scheme::Http))).await,
        Protocol::Tls => run_tls(shared, state, stream, peer(Scheme::Https)).await,
    }
}

async fn run_tls<H: Handler, I>(shared: &Shared<H>, state: Arc<ConnectionState>, stream: I, peer: Peer)
where
    I: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let Some(acceptor) = &shared.tls else { return };
    let handshake = tokio::time::timeout(shared.limits.handshake_timeout, acceptor.accept(stream));
    let stream = match handshake.await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return tracing::debug!(remote = %peer.remote, %error, "TLS handshake failed"),
        Err(_elapsed) => return tracing::debug!(remote = %peer.remote, "TLS handshake timed out"),
    };
    let is_http2 = stream.get_ref().1.alpn_protocol().map(|protocol| protocol == ALPN_HTTP2);
    match is_http2 {
        Some(true) => serve_http2(stream, shared.context(state, peer)).await,
        Some(false) => serve_http1(stream, shared.context(state, peer)).await,
        // Without ALPN, the first bytes inside TLS tell the version of HTTP.
        None => match detect_protocol(stream, shared.limits.first_request_timeout).await {
            Some((Protocol::Http2, stream)) => serve_http2(stream, shared.context(state, peer)).await,
            Some((Protocol::Http1, stream)) => serve_http1(stream, shared.context(state, peer)).await,
            Some((Protocol::Tls, _)) | None => (),
        },
    }
}

/// Detects the protocol from the first bytes. `None` when the bytes do not arrive in time,
/// or the peer leaves.
async fn detect_protocol<I>(
    stream: I,
    timeout: Duration,
) -> Option<(Protocol, super::sniff::ReplayedStream<I>)>
where
    I: AsyncRead + Unpin,
{
    tokio::time::timeout(timeout, sniff(stream)).await.ok()?.ok()?
}

impl<H> Shared<H> {
    fn context(&self, state: Arc<ConnectionState>, peer: Peer) -> Arc<Context<H>> {
        Arc::new(Context {
            handler: Arc::clone(&self.handler),
            limits: Arc::clone(&self.limits),
            memory: Arc::clone(&self.memory),
            state,
            peer,
        })
    }
}

async fn serve_http1<H: Handler, I>(stream: I, context: Arc<Context<H>>)
where
    I: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let state = Arc::clone(&context.state);
    let mut builder = http1::Builder::new();
    builder
        // The supervisor bounds the time for a header block.
        .header_read_timeout(None)
        .max_header_size(context.limits.header_bytes)
        .max_buf_size(BUFFER_BYTES.max(context.limits.header_bytes))
        // With `true`, hyper holds a response back while any byte of a next request is
        // buffered. So it would never send the 400 for invalid bytes.
        .pipeline_flush(false)
        .half_close(false);
    let service = service_fn(move |request| serve(Arc::clone(&context), request));
    // When hyper drops the stream, the stream moves into `dropped_stream`.
    let (stream, dropped_stream) = TrackedStream::new(stream, Arc::clone(&state));
    drive(builder.serve_connection(TokioIo::new(stream), service), &state).await;
    if state.is_lingering()
        && let Some(stream) = dropped_stream.take()
    {
        // The response has been written, so an error or a timeout here loses nothing.
        let _ = tokio::time::timeout(LINGER_TIMEOUT, linger(stream)).await;
    }
}

/// Shuts down the sending side, then reads and discards what the peer still sends, up
/// to `LINGER_BYTES`. If the connection were closed with unread bytes, it would be reset,
/// and the response on its way would be lost.
async fn linger<I: AsyncRead + AsyncWrite + Unpin>(mut stream: I) -> std::io::Result<()> {
    stream.shutdown().await?;
    let mut discarded = [0; 8 * 1024];
    let mut bytes_left = LINGER_BYTES;
    while bytes_left > 0 {
        match stream.read(&mut discarded).await? {
            0 => return Ok(()),
            read => bytes_left = bytes_left.saturating_sub(read),
        }
    }
    Ok(())
}

async fn serve_http2<H: Handler, I>(stream: I, context: Arc<Context<H>>)
where
    I: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let state = Arc::clone(&context.state);
    let mut builder = http2::Builder::new(StreamTasks::default());
    builder
        .max_concurrent_streams(context.limits.streams)
        .max_header_list_size(u32::try_from(context.limits.header_bytes).unwrap_or(u32::MAX))
        .max_pending_accept_reset_streams(STREAMS_RESET_PENDING)
        .max_local_error_reset_streams(STREAMS_RESET_BY_ERROR)
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES);
    let service = service_fn(move |request| serve(Arc::clone(&context), request));
    drive(builder.serve_connection(TokioIo::new(stream), service), &state).await;
}

/// Polls a hyper connection to its end. Starts the graceful shutdown when the directive
/// becomes [`Directive::Drain`].
async fn drive<C: GracefulShutdown>(connection: C, state: &ConnectionState) {
    state.set_http_started();
    let mut connection = std::pin::pin!(connection);
    let mut is_draining = false;
    let ended = std::future::poll_fn(|cx| {
        if !is_draining && state.directive() >= Directive::Drain {
            is_draining = true;
            connection.as_mut().shut_down();
        }
        connection.as_mut().poll(cx)
    });
    if let Err(error) = ended.await {
        if error.is_parse() {
            state.set_lingering(); // hyper has answered 400, 414 or 431.
        }
        tracing::debug!(%error, "connection ended early");
    }
}

/// A connection of hyper, HTTP/1.1 or HTTP/2.
trait GracefulShutdown: Future<Output = hyper::Result<()>> {
    fn shut_down(self: Pin<&mut Self>);
}

impl<I, S> GracefulShutdown for http1::Connection<TokioIo<I>, S>
where
    I: AsyncRead + AsyncWrite + Unpin + 'static,
    S: HttpService<hyper::body::Incoming, ResBody = BufferedBody>,
    S::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    fn shut_down(self: Pin<&mut Self>) {
        self.graceful_shutdown();
    }
}

impl<I, S> GracefulShutdown for http2::Connection<TokioIo<I>, S, StreamTasks>
where
    I: AsyncRead + AsyncWrite + Unpin + 'static,
    S: HttpService<hyper::body::Incoming, ResBody = BufferedBody>,
    S::Future: Send + 'static,
    S::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    fn shut_down(self: Pin<&mut Self>) {
        self.graceful_shutdown();
    }
}

/// Runs the streams of one HTTP/2 connection as tasks. The connection owns the task set,
/// and dropping the set aborts its tasks. So the tasks end with the connection.
#[derive(Clone, Default)]
struct StreamTasks {
    tasks: Arc<Mutex<JoinSet<()>>>,
}

impl<F> hyper::rt::Executor<F> for StreamTasks
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, stream: F) {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(stream);
    }
}
