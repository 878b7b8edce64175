//! Tells the dialects apart by the first bytes, and gives those bytes back.
//!
//! A TLS record starts with 0x16, which starts no HTTP method; an HTTP/2
//! connection starts with a fixed preface whose method, `PRI`, is reserved so
//! that it is no HTTP/1.1 request. Everything else is left to the HTTP/1.1
//! parser, garbage included: it answers 400 and closes.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};

/// What every HTTP/2 connection opens with (RFC 9113, section 3.4).
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The content type of a TLS handshake record.
const TLS_HANDSHAKE: u8 = 0x16;

/// What the first bytes of a connection announce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    Tls,
    Http1,
    Http2,
}

/// Decides from the bytes seen so far, or asks for more with `None`.
pub(super) fn dialect(seen: &[u8]) -> Option<Dialect> {
    match seen.first() {
        None => None,
        Some(&TLS_HANDSHAKE) => Some(Dialect::Tls),
        Some(_) if seen.starts_with(PREFACE) => Some(Dialect::Http2),
        Some(_) if PREFACE.starts_with(seen) => None,
        Some(_) => Some(Dialect::Http1),
    }
}

/// Reads until the dialect is known; `None` when the peer left before that.
/// Never reads more than the preface's length.
pub(super) async fn sniff<I>(mut io: I) -> io::Result<Option<(Dialect, Replayed<I>)>>
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
        if let Some(dialect) = dialect(&seen[..length]) {
            let replayed = Replayed { io, seen, next: 0, end: length };
            return Ok(Some((dialect, replayed)));
        }
    }
}

/// A stream whose first bytes were looked at: reading yields them again, then
/// what follows. Writing passes straight through.
#[derive(Debug)]
pub(super) struct Replayed<I> {
    io: I,
    seen: [u8; PREFACE.len()],
    /// What is still to be replayed is `seen[next..end]`.
    next: usize,
    end: usize,
}

impl<I: AsyncRead + Unpin> AsyncRead for Replayed<I> {
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

impl<I: AsyncWrite + Unpin> AsyncWrite for Replayed<I> {
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
