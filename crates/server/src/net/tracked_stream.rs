//! `TrackedStream`: wraps the stream of an HTTP/1.1 connection and reports arriving
//! bytes to the connection's state.
//!
//! hyper owns the `TrackedStream` and drops it with the connection. After a rejected
//! request the inner stream is needed a little longer, for an orderly close. So the
//! drop moves the inner stream into a [`StreamSlot`] that the connection's task holds.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::connection_state::ConnectionState;

/// A stream that reports its reads. `stream` is `Some` until drop.
#[derive(Debug)]
pub(super) struct TrackedStream<I> {
    stream: Option<I>,
    state: Arc<ConnectionState>,
    slot: StreamSlot<I>,
}

/// Receives the stream when its [`TrackedStream`] is dropped.
#[derive(Debug)]
pub(super) struct StreamSlot<I>(Arc<Mutex<Option<I>>>);

impl<I> StreamSlot<I> {
    pub(super) fn take(&self) -> Option<I> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl<I> TrackedStream<I> {
    pub(super) fn new(stream: I, state: Arc<ConnectionState>) -> (TrackedStream<I>, StreamSlot<I>) {
        let shared = Arc::new(Mutex::new(None));
        let tracked = TrackedStream { stream: Some(stream), state, slot: StreamSlot(Arc::clone(&shared)) };
        (tracked, StreamSlot(shared))
    }

    fn stream(&mut self) -> io::Result<Pin<&mut I>>
    where
        I: Unpin,
    {
        self.stream.as_mut().map(Pin::new).ok_or_else(|| io::ErrorKind::NotConnected.into())
    }
}

impl<I> Drop for TrackedStream<I> {
    fn drop(&mut self) {
        *self.slot.0.lock().unwrap_or_else(PoisonError::into_inner) = self.stream.take();
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for TrackedStream<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = self.stream()?.poll_read(cx, buffer);
        if buffer.filled().len() > before {
            self.state.record_arrived_bytes();
        }
        polled
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for TrackedStream<I> {
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
