//! Reads the whole body of a request, within the limits.
//!
//! A body that arrives in one piece, as nearly all do, is passed on without a
//! copy. Bytes are taken from the server's common budget when they arrive, not when
//! `content-length` announces them: an attacker can announce a length without effort, but
//! has to send the bytes. If a body does not arrive in one piece, the head of the request is
//! checked before more of the body is read. So a client without a valid signature cannot
//! hold memory.

use bytes::{Bytes, BytesMut};
use http::Response;
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};

use super::{Limits, Rejection};
use crate::memory::{Exhausted, MemoryShare};

/// Why a body could not be read.
#[derive(Debug)]
pub(super) enum BodyError {
    Rejected(Rejection),
    /// The head of the request shows that it is refused.
    Refused(Response<Bytes>),
    /// The client left, or the framing of the body is broken. The client gets no response.
    Unreadable,
}

impl From<Exhausted> for BodyError {
    fn from(_: Exhausted) -> BodyError {
        BodyError::Rejected(Rejection::Overloaded)
    }
}

/// Reads a body of at most `limits.body_bytes`, in at most
/// `limits.body_timeout`. A body that announces more bytes is rejected unread. `refuse` is
/// called before a second piece is read.
pub(super) async fn read(
    body: Incoming,
    limits: &Limits,
    share: &mut MemoryShare,
    refuse: impl FnOnce() -> Option<Response<Bytes>>,
) -> Result<Bytes, BodyError> {
    if body.is_end_stream() {
        return Ok(Bytes::new());
    }
    match tokio::time::timeout(limits.body_timeout, collect(body, limits.body_bytes, share, refuse)).await {
        Ok(outcome) => outcome,
        Err(_elapsed) => Err(BodyError::Rejected(Rejection::BodyTimeout)),
    }
}

async fn collect(
    mut body: Incoming,
    limit: usize,
    share: &mut MemoryShare,
    refuse: impl FnOnce() -> Option<Response<Bytes>>,
) -> Result<Bytes, BodyError> {
    let too_large = || BodyError::Rejected(Rejection::BodyTooLarge { limit });
    if body.size_hint().lower() > limit as u64 {
        return Err(too_large());
    }
    let first = next_data(&mut body).await?.unwrap_or_default();
    share.take(first.len())?;
    if body.is_end_stream() && first.len() <= limit {
        return Ok(first);
    }
    if let Some(response) = refuse() {
        return Err(BodyError::Refused(response));
    }
    let mut whole = BytesMut::from(first);
    while whole.len() <= limit {
        let Some(data) = next_data(&mut body).await? else {
            return Ok(whole.freeze());
        };
        share.take(data.len())?;
        whole.extend_from_slice(&data);
    }
    Err(too_large())
}

/// The next piece of data. Trailers have no meaning here and are skipped.
async fn next_data(body: &mut Incoming) -> Result<Option<Bytes>, BodyError> {
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| BodyError::Unreadable)?;
        if let Ok(data) = frame.into_data() {
            return Ok(Some(data));
        }
    }
    Ok(None)
}
