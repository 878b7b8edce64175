//! Protocol detection: tells TLS, HTTP/1.1 and HTTP/2 apart by the first bytes,
//! and replays those bytes to the next reader.
//!
//! A TLS connection starts with 0x16, which cannot start an HTTP method. An HTTP/2
//! connection starts with a fixed preface; its method `PRI` is reserved, so it
//! cannot be an HTTP/1.1 request. Everything else goes to the HTTP/1.1 parser, which
//! answers invalid bytes with 400 and closes the connection.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};

/// The first bytes of every HTTP/2 connection (RFC 9113, section 3.4).
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The content type of a TLS handshake record.
const TLS_HANDSHAKE: u8 = 0x16;

/// The protocol that the first bytes of a connection announce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    Tls,
    Http1,
    Http2,
}

/// The protocol that the bytes seen so far announce; `None` when more bytes are needed.
fn recognize(seen: &[u8]) -> Option<Protocol> {
    match seen.first() {
        None => None,
        Some(&TLS_HANDSHAKE) => Some(Protocol::Tls),
        Some(_) if seen.starts_with(PREFACE) => Some(Protocol::Http2),
        Some(_) if PREFACE.starts_with(seen) => None,
        Some(_) => Some(Protocol::Http1),
    }
}

/// Reads until the protocol is known; `None` when the peer left before that. It reads at
/// most as many bytes as the preface has.
pub(super) async fn sniff<I>(mut io: I) -> io::Result<Option<(Protocol, ReplayedStream<I>)>>
where
    I: AsyncRead + Unpin,
{
    let mut seen = [0; PREFACE.len()];
    let mut length = 0;
    loop {
        let read = io.read(&mut seen[length..]).await?;
        if read == 0 {
            return Ok(None);
        }
        length += read;
        if let Some(protocol) = recognize(&seen[..length]) {
            let replayed = ReplayedStream { io, seen, next: 0, end: length };
            return Ok(Some((protocol, replayed)));
        }
    }
}

/// A stream whose first bytes were read already: reading yields them again, then
/// the bytes that follow. Writing passes straight through.
#[derive(Debug)]
pub(super) struct ReplayedStream<I> {
    io: I,
    seen: [u8; PREFACE.len()],
    /// `seen[next..end]` is still to be replayed.
    next: usize,
    end: usize,
}

impl<I: AsyncRead + Unpin> AsyncRead for ReplayedStream<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.next < self.end {
            let count = buffer.remaining().min(self.end - self.next);
            buffer.put_slice(&self.seen[self.next..self.next + count]);
            self.next += count;
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.io).poll_read(cx, buffer)
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for ReplayedStream<I> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, buffer)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, buffers)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
