//! Collects the parts of a body. A single part is returned without a copy, several
//! parts are copied into one buffer, and a body above the limit is refused.

use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http::header::CONTENT_LENGTH;
use perihelion_wire::transport::{Endpoint, Failure, FailureKind, Sent};

use super::limits::BODY_BYTES_MAX;

/// The error for a body that is longer than the limit, or whose announced length is above the
/// limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TooLong;

impl TooLong {
    pub(super) fn failure(self, endpoint: &Endpoint) -> Failure {
        let text = format!("{endpoint}: the answer's body is over {BODY_BYTES_MAX} bytes");
        Failure::new(FailureKind::Protocol, Sent::Yes, text)
    }
}

/// A body of which parts have arrived. Its bytes are counted until the body is complete or
/// given up.
#[derive(Debug)]
pub(super) struct BodyCollector<'a> {
    /// The bytes of all bodies of an endpoint that are not complete.
    buffered_bytes: &'a AtomicUsize,
    /// The length of the body as the headers name it; 0 when they do not name it.
    announced_bytes: usize,
    /// The only part so far; empty once there are several parts.
    first: Bytes,
    /// All parts so far; empty until there are several parts.
    joined: BytesMut,
}

impl<'a> BodyCollector<'a> {
    /// An empty body of an answer with these headers.
    pub(super) fn new(headers: &HeaderMap, buffered_bytes: &'a AtomicUsize) -> Result<Self, TooLong> {
        let length = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok());
        let announced_bytes = match length.map(str::parse::<u64>) {
            Some(Ok(length)) if length > BODY_BYTES_MAX as u64 => return Err(TooLong),
            Some(Ok(length)) => length as usize,
            // The HTTP libraries refuse a length that is not well-formed.
            Some(Err(_)) | None => 0,
        };
        Ok(BodyCollector { buffered_bytes, announced_bytes, first: Bytes::new(), joined: BytesMut::new() })
    }

    /// Adds a part.
    pub(super) fn push(&mut self, part: Bytes) -> Result<(), TooLong> {
        let length = self.first.len() + self.joined.len();
        if length + part.len() > BODY_BYTES_MAX {
            return Err(TooLong);
        }
        self.buffered_bytes.fetch_add(part.len(), Ordering::Relaxed);
        if length == 0 {
            self.first = part;
            return Ok(());
        }
        if self.joined.is_empty() {
            self.joined.reserve(self.announced_bytes.max(length + part.len()));
            self.joined.extend_from_slice(&std::mem::take(&mut self.first));
        }
        self.joined.extend_from_slice(&part);
        Ok(())
    }

    /// The whole body.
    pub(super) fn finish(mut self) -> Bytes {
        self.uncount();
        // The bytes are taken out, so the drop of `self` subtracts nothing.
        if self.joined.is_empty() {
            std::mem::take(&mut self.first)
        } else {
            std::mem::take(&mut self.joined).freeze()
        }
    }

    fn uncount(&self) {
        self.buffered_bytes.fetch_sub(self.first.len() + self.joined.len(), Ordering::Relaxed);
    }
}

impl Drop for BodyCollector<'_> {
    fn drop(&mut self) {
        self.uncount();
    }
}

#[cfg(test)]
mod tests;
