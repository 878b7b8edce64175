//! One connection from its first byte to its last.
//!
//! Sniff, perhaps a TLS handshake, then HTTP/1.1 or HTTP/2 by hyper until the
//! peer leaves or the watch says so. Errors end here: they concern one peer
//! and are logged at debug level, because anybody can cause them.

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

use super::body::Budget;
use super::limits::{
    BUFFER_BYTES, LINGER_BYTES, LINGER_TIMEOUT, STREAMS_RESET_BY_ERROR, STREAMS_RESET_PENDING, WINDOW_BYTES,
};
use super::serve::{Context, serve};
use super::sniff::{Dialect, sniff};
use super::watch::{Line, Order};
use super::watched::Watched;
use super::whole::Whole;
use super::{Handler, Limits, Peer, Scheme};

/// The protocol that ALPN names HTTP/2.
const ALPN_HTTP2: &[u8] = b"h2";

/// What all connections of a front share.
pub(super) struct Shared<H> {
    pub(super) handler: Arc<H>,
    pub(super) limits: Arc<Limits>,
    pub(super) budget: Arc<Budget>,
    pub(super) tls: Option<TlsAcceptor>,
}

/// Serves a connection until it ends.
pub(super) async fn run<H: Handler>(
    shared: &Shared<H>,
    line: Arc<Line>,
    stream: TcpStream,
    remote: SocketAddr,
) {
    let peer = |scheme| Peer { scheme, remote };
    let Some((dialect, stream)) = first_bytes(stream, shared.limits.first_byte_timeout).await else {
        return;
    };
    match dialect {
        Dialect::Http1 => speak_http1(stream, shared.context(line, peer(Scheme::Http))).await,
        Dialect::Http2 => speak_http2(stream, shared.context(line, peer(Scheme::Http))).await,
        Dialect::Tls => run_tls(shared, line, stream, peer(Scheme::Https)).await,
    }
}

async fn run_tls<H: Handler, I>(shared: &Shared<H>, line: Arc<Line>, stream: I, peer: Peer)
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
    let agreed = stream.get_ref().1.alpn_protocol().map(|protocol| protocol == ALPN_HTTP2);
    match agreed {
        Some(true) => speak_http2(stream, shared.context(line, peer)).await,
        Some(false) => speak_http1(stream, shared.context(line, peer)).await,
        // A client without ALPN is judged by its bytes once more.
        None => match first_bytes(stream, shared.limits.first_byte_timeout).await {
            Some((Dialect::Http2, stream)) => speak_http2(stream, shared.context(line, peer)).await,
            Some((Dialect::Http1, stream)) => speak_http1(stream, shared.context(line, peer)).await,
            Some((Dialect::Tls, _)) | None => (),
        },
    }
}

async fn first_bytes<I>(stream: I, patience: Duration) -> Option<(Dialect, super::sniff::Replayed<I>)>
where
    I: AsyncRead + Unpin,
{
    // Silence, a reset and an early goodbye are all the same: nobody to serve.
    tokio::time::timeout(patience, sniff(stream)).await.ok()?.ok()?
}

impl<H> Shared<H> {
    fn context(&self, line: Arc<Line>, peer: Peer) -> Arc<Context<H>> {
        Arc::new(Context {
            handler: Arc::clone(&self.handler),
            limits: Arc::clone(&self.limits),
            budget: Arc::clone(&self.budget),
            line,
            peer,
        })
    }
}

async fn speak_http1<H: Handler, I>(stream: I, context: Arc<Context<H>>)
where
    I: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let line = Arc::clone(&context.line);
    let mut builder = http1::Builder::new();
    builder
        // The watch bounds the time for a header block.
        .header_read_timeout(None)
        .max_header_size(context.limits.header_bytes)
        .max_buf_size(BUFFER_BYTES.max(context.limits.header_bytes))
        // hyper then holds an answer back while any byte of a next request is
        // buffered, and so never sends the 400 for garbage.
        .pipeline_flush(false)
        .half_close(false);
    let service = service_fn(move |request| serve(Arc::clone(&context), request));
    let (stream, estate) = Watched::new(stream, Arc::clone(&line));
    drive(builder.serve_connection(TokioIo::new(stream), service), &line).await;
    if line.is_lingering()
        && let Some(stream) = estate.take()
    {
        // Whether the peer waits for the end is its own affair.
        let _ = tokio::time::timeout(LINGER_TIMEOUT, linger(stream)).await;
    }
}

/// Ends our side, then reads what the peer still sends, so that closing does
/// not reset the connection under an answer on its way.
async fn linger<I: AsyncRead + AsyncWrite + Unpin>(mut stream: I) -> std::io::Result<()> {
    stream.shutdown().await?;
    let mut scrap = [0; 8 * 1024];
    let mut left = LINGER_BYTES;
    while left > 0 {
        match stream.read(&mut scrap).await? {
            0 => return Ok(()),
            read => left = left.saturating_sub(read),
        }
    }
    Ok(())
}

async fn speak_http2<H: Handler, I>(stream: I, context: Arc<Context<H>>)
where
    I: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let line = Arc::clone(&context.line);
    let mut builder = http2::Builder::new(Streams::default());
    builder
        .max_concurrent_streams(context.limits.streams)
        .max_header_list_size(u32::try_from(context.limits.header_bytes).unwrap_or(u32::MAX))
        .max_pending_accept_reset_streams(STREAMS_RESET_PENDING)
        .max_local_error_reset_streams(STREAMS_RESET_BY_ERROR)
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES);
    let service = service_fn(move |request| serve(Arc::clone(&context), request));
    drive(builder.serve_connection(TokioIo::new(stream), service), &line).await;
}

/// Polls a hyper connection, passing on an order to finish once.
async fn drive<C: Finish>(connection: C, line: &Line) {
    line.begin_speaking();
    let mut connection = std::pin::pin!(connection);
    let mut finishing = false;
    let ended = std::future::poll_fn(|cx| {
        if !finishing && line.order() >= Order::Finish {
            finishing = true;
            connection.as_mut().finish();
        }
        connection.as_mut().poll(cx)
    });
    if let Err(error) = ended.await {
        if error.is_parse() {
            line.set_lingering(); // hyper has answered 400, 414 or 431.
        }
        tracing::debug!(%error, "connection ended early");
    }
}

/// A hyper connection of either version.
trait Finish: Future<Output = hyper::Result<()>> {
    fn finish(self: Pin<&mut Self>);
}

impl<I, S> Finish for http1::Connection<TokioIo<I>, S>
where
    I: AsyncRead + AsyncWrite + Unpin + 'static,
    S: HttpService<hyper::body::Incoming, ResBody = Whole>,
    S::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    fn finish(self: Pin<&mut Self>) {
        self.graceful_shutdown();
    }
}

impl<I, S> Finish for http2::Connection<TokioIo<I>, S, Streams>
where
    I: AsyncRead + AsyncWrite + Unpin + 'static,
    S: HttpService<hyper::body::Incoming, ResBody = Whole>,
    S::Future: Send + 'static,
    S::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    fn finish(self: Pin<&mut Self>) {
        self.graceful_shutdown();
    }
}

/// Runs the streams of one HTTP/2 connection as tasks that end with it: the
/// connection owns the set, and dropping a set aborts its tasks.
#[derive(Clone, Default)]
struct Streams {
    tasks: Arc<Mutex<JoinSet<()>>>,
}

impl<F> hyper::rt::Executor<F> for Streams
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, stream: F) {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(stream);
    }
}
