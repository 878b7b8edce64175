//! `BufferedBody`: a response body that is wholly in memory. A body that is not small is tracked: it
//! keeps values alive that are dropped when the client has taken the body.
//!
//! Unlike `http_body_util::Full`, an empty body of a response with a `content-length` header does
//! not report itself as ended. hyper drops that header from a response whose body has ended. Cosmos
//! DB sends `content-length: 0` on a 204, although HTTP forbids the header there.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::Response;
use http::header::CONTENT_LENGTH;
use hyper::body::{Body, Frame, SizeHint};

/// A response body; `bytes` is `Some` until hyper takes them.
pub(super) struct BufferedBody {
    bytes: Option<Bytes>,
    /// Whether the body reports itself as ended. It does so once hyper has taken its
    /// bytes. An empty body of a response without a `content-length` header does so from
    /// the start.
    has_ended: bool,
}

/// A shorter body is not tracked, because the tracking would cost more than the body.
const TRACKED_BYTES_MIN: usize = 1024;

/// A body with the values that are dropped when its last byte is written.
struct TrackedBytes<T> {
    bytes: Bytes,
    _guards: T,
}

impl<T> AsRef<[u8]> for TrackedBytes<T> {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl BufferedBody {
    /// The response with its body as a `BufferedBody`. `guards` is called with the length of a
    /// body that is tracked, and what it returns lives as long as any part of the body does.
    pub(super) fn response<T: Send + 'static>(
        response: Response<Bytes>,
        guards: impl FnOnce(usize) -> T,
    ) -> Response<BufferedBody> {
        let has_length = response.headers().contains_key(CONTENT_LENGTH);
        response.map(|bytes| {
            let has_ended = bytes.is_empty() && !has_length;
            let bytes = if bytes.len() < TRACKED_BYTES_MIN {
                bytes
            } else {
                Bytes::from_owner(TrackedBytes { _guards: guards(bytes.len()), bytes })
            };
            BufferedBody { has_ended, bytes: Some(bytes) }
        })
    }
}

impl Body for BufferedBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.has_ended = true;
        let bytes = self.bytes.take().filter(|bytes| !bytes.is_empty());
        Poll::Ready(bytes.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.has_ended
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
    }
}
