//! The stream under an HTTP/1.1 connection: tells its line when bytes arrive,
//! and outlives the connection.
//!
//! hyper keeps the stream to itself and drops it with the connection. To close
//! in peace after a refusal the stream is needed for a little longer, so on
//! drop it goes to whoever holds the [`Estate`].

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::watch::Line;

/// See the module's words. The stream is there until drop.
#[derive(Debug)]
pub(super) struct Watched<I> {
    stream: Option<I>,
    line: Arc<Line>,
    estate: Estate<I>,
}

/// Receives the stream when its [`Watched`] is dropped.
#[derive(Debug)]
pub(super) struct Estate<I>(Arc<Mutex<Option<I>>>);

impl<I> Estate<I> {
    pub(super) fn take(&self) -> Option<I> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl<I> Watched<I> {
    pub(super) fn new(stream: I, line: Arc<Line>) -> (Watched<I>, Estate<I>) {
        let slot = Arc::new(Mutex::new(None));
        let watched = Watched { stream: Some(stream), line, estate: Estate(Arc::clone(&slot)) };
        (watched, Estate(slot))
    }

    fn stream(&mut self) -> io::Result<Pin<&mut I>>
    where
        I: Unpin,
    {
        self.stream.as_mut().map(Pin::new).ok_or_else(|| io::ErrorKind::NotConnected.into())
    }
}

impl<I> Drop for Watched<I> {
    fn drop(&mut self) {
        *self.estate.0.lock().unwrap_or_else(PoisonError::into_inner) = self.stream.take();
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for Watched<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = self.stream()?.poll_read(cx, buffer);
        if buffer.filled().len() > before {
            self.line.bytes_arrived();
        }
        polled
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for Watched<I> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &[u8]) -> Poll<io::Result<usize>> {
        self.stream()?.poll_write(cx, buffer)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.stream()?.poll_write_vectored(cx, buffers)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.as_ref().is_some_and(AsyncWrite::is_write_vectored)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream()?.poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream()?.poll_shutdown(cx)
    }
}
