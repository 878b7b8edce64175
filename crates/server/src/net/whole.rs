//! A response body that is all there.
//!
//! It differs from `http_body_util::Full` in one point: an empty body behind
//! an explicit `content-length: 0` does not claim to have ended already.
//! hyper drops the header of a body that has, and the service sends it on a
//! 204, where HTTP asks for none (`docs/cosmos.md`, answers).

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::Response;
use http::header::CONTENT_LENGTH;
use hyper::body::{Body, Frame, SizeHint};

/// The whole body, until it is taken.
pub(super) struct Whole {
    bytes: Option<Bytes>,
    /// Nothing is left to send, and nothing needs to be shown for it.
    has_ended: bool,
}

impl Whole {
    pub(super) fn response(response: Response<Bytes>) -> Response<Whole> {
        let is_shown = response.headers().contains_key(CONTENT_LENGTH);
        response.map(|bytes| Whole { has_ended: bytes.is_empty() && !is_shown, bytes: Some(bytes) })
    }
}

impl Body for Whole {
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
