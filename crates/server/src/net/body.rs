//! Reads the whole body of a request, within the limits.
//!
//! A body that arrives in one piece, as nearly all do, is passed on without a
//! copy. Bytes are taken from the listener's common budget when they arrive, not when
//! `content-length` announces them. An attacker can announce a length without
//! effort, but has to send the bytes.

use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};

use super::{Limits, Rejection};

/// Why a body could not be read.
#[derive(Debug)]
pub(super) enum BodyError {
    Rejected(Rejection),
    /// The client left, or the framing of the body is broken. The client gets no response.
    Gone,
}

/// The body bytes that all requests of a listener may hold together.
#[derive(Debug)]
pub(super) struct Budget {
    used_bytes: AtomicUsize,
    total_bytes: usize,
}

impl Budget {
    pub(super) fn new(total_bytes: usize) -> Budget {
        Budget { used_bytes: AtomicUsize::new(0), total_bytes }
    }

    /// The share of a new request. It holds no bytes yet.
    pub(super) fn new_share(&self) -> BudgetShare<'_> {
        BudgetShare { budget: self, bytes: 0 }
    }
}

/// The bytes of the budget that one request holds. They are given back on drop: after the
/// handler's answer.
#[derive(Debug)]
pub(super) struct BudgetShare<'a> {
    budget: &'a Budget,
    bytes: usize,
}

impl BudgetShare<'_> {
    /// Takes bytes from the budget. Fails when the budget is exceeded.
    fn take(&mut self, bytes: usize) -> Result<(), BodyError> {
        self.bytes += bytes;
        let before = self.budget.used_bytes.fetch_add(bytes, Ordering::Relaxed);
        if before.saturating_add(bytes) > self.budget.total_bytes {
            return Err(BodyError::Rejected(Rejection::Overloaded));
        }
        Ok(())
    }
}

impl Drop for BudgetShare<'_> {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.budget.used_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        }
    }
}

/// Reads a body of at most `limits.body_bytes`, in at most
/// `limits.body_timeout`. A body that announces more bytes is rejected unread.
pub(super) async fn read(
    body: Incoming,
    limits: &Limits,
    share: &mut BudgetShare<'_>,
) -> Result<Bytes, BodyError> {
    if body.is_end_stream() {
        return Ok(Bytes::new());
    }
    match tokio::time::timeout(limits.body_timeout, collect(body, limits.body_bytes, share)).await {
        Ok(outcome) => outcome,
        Err(_elapsed) => Err(BodyError::Rejected(Rejection::BodyTimeout)),
    }
}

async fn collect(mut body: Incoming, limit: usize, share: &mut BudgetShare<'_>) -> Result<Bytes, BodyError> {
    let too_large = || BodyError::Rejected(Rejection::BodyTooLarge { limit });
    if body.size_hint().lower() > limit as u64 {
        return Err(too_large());
    }
    let first = next_data(&mut body).await?.unwrap_or_default();
    share.take(first.len())?;
    if body.is_end_stream() && first.len() <= limit {
        return Ok(first);
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
        let frame = frame.map_err(|_| BodyError::Gone)?;
        if let Ok(data) = frame.into_data() {
            return Ok(Some(data));
        }
    }
    Ok(None)
}
