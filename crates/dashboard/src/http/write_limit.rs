//! `WriteLimit`: a stream whose writes fail when the other side has taken nothing for some time.
//! Without it, a client that sends requests and never reads the answers keeps its connection for
//! ever.

use std::future::Future;
use std::io::{self, ErrorKind, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

/// A stream with a limit for writes that wait.
#[derive(Debug)]
pub(super) struct WriteLimit<S> {
    stream: S,
    wait_max: Duration,
    /// The time at which a waiting write fails. Only used while `is_waiting`.
    deadline: Pin<Box<Sleep>>,
    is_waiting: bool,
}

impl<S: Unpin> WriteLimit<S> {
    pub(super) fn new(stream: S, wait_max: Duration) -> WriteLimit<S> {
        let deadline = Box::pin(tokio::time::sleep(wait_max));
        WriteLimit { stream, wait_max, deadline, is_waiting: false }
    }

    /// Writes. Fails when writes have waited for `wait_max` without progress.
    fn limit<T>(
        &mut self,
        context: &mut Context<'_>,
        write: impl FnOnce(Pin<&mut S>, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        let written = write(Pin::new(&mut self.stream), context);
        if written.is_ready() {
            self.is_waiting = false;
            return written;
        }
        if !self.is_waiting {
            self.is_waiting = true;
            self.deadline.as_mut().reset(Instant::now() + self.wait_max);
        }
        let too_slow = || io::Error::new(ErrorKind::TimedOut, "the client does not read its answers");
        self.deadline.as_mut().poll(context).map(|()| Err(too_slow()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WriteLimit<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.limit(context, |stream, context| stream.poll_write(context, bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.limit(context, |stream, context| stream.poll_write_vectored(context, pieces))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.limit(context, |stream, context| stream.poll_flush(context))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.limit(context, |stream, context| stream.poll_shutdown(context))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WriteLimit<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_write_fails_if_the_other_side_takes_nothing() {
        let (near, mut far) = tokio::io::duplex(4);
        let mut near = WriteLimit::new(near, Duration::from_millis(200));
        // The waits together are longer than the limit, but each wait is shorter.
        let take_slowly = async {
            for _ in 0..3 {
                tokio::time::sleep(Duration::from_millis(100)).await;
                far.read_exact(&mut [0; 4]).await.unwrap();
            }
        };
        let (written, ()) = tokio::join!(near.write_all(b"1234567890123456"), take_slowly);
        written.unwrap();
        let failed = near.write_all(b"7").await.unwrap_err();
        assert_eq!(failed.kind(), ErrorKind::TimedOut);
    }
}
