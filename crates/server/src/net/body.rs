//! Reads a request's body whole, within the bounds.
//!
//! A body that arrives in one piece, as nearly all do, is passed on without a
//! copy. Bytes are charged to the front's common budget as they arrive, not as
//! they are announced: announcing is free for an attacker, sending is not.

use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};

use super::{Limits, Refusal};

/// Why a body could not be read.
#[derive(Debug)]
pub(super) enum Trouble {
    Refused(Refusal),
    /// The client left or broke the framing; nobody is there to be answered.
    Gone,
}

/// Body bytes held by all requests of a front together.
#[derive(Debug)]
pub(super) struct Budget {
    used: AtomicUsize,
    total: usize,
}

impl Budget {
    pub(super) fn new(total: usize) -> Budget {
        Budget { used: AtomicUsize::new(0), total }
    }

    pub(super) fn hold(&self) -> Held<'_> {
        Held { budget: self, bytes: 0 }
    }
}

/// One request's share of the budget, given back on drop.
#[derive(Debug)]
pub(super) struct Held<'a> {
    budget: &'a Budget,
    bytes: usize,
}

impl Held<'_> {
    fn take(&mut self, bytes: usize) -> Result<(), Trouble> {
        self.bytes += bytes;
        let before = self.budget.used.fetch_add(bytes, Ordering::Relaxed);
        if before.saturating_add(bytes) > self.budget.total {
            return Err(Trouble::Refused(Refusal::Overloaded));
        }
        Ok(())
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.budget.used.fetch_sub(self.bytes, Ordering::Relaxed);
        }
    }
}

/// Reads a body of at most `limits.body_bytes`, in at most
/// `limits.body_timeout`. One that announces more is refused unread.
pub(super) async fn read(body: Incoming, limits: &Limits, held: &mut Held<'_>) -> Result<Bytes, Trouble> {
    if body.is_end_stream() {
        return Ok(Bytes::new());
    }
    match tokio::time::timeout(limits.body_timeout, collect(body, limits.body_bytes, held)).await {
        Ok(read) => read,
        Err(_elapsed) => Err(Trouble::Refused(Refusal::BodyTimeout)),
    }
}

async fn collect(mut body: Incoming, limit: usize, held: &mut Held<'_>) -> Result<Bytes, Trouble> {
    let too_large = || Trouble::Refused(Refusal::BodyTooLarge { limit });
    if body.size_hint().lower() > limit as u64 {
        return Err(too_large());
    }
    let first = next_data(&mut body).await?.unwrap_or_default();
    held.take(first.len())?;
    if body.is_end_stream() && first.len() <= limit {
        return Ok(first);
    }
    let mut whole = BytesMut::from(first);
    while whole.len() <= limit {
        let Some(data) = next_data(&mut body).await? else {
            return Ok(whole.freeze());
        };
        held.take(data.len())?;
        whole.extend_from_slice(&data);
    }
    Err(too_large())
}

/// The next piece of data; trailers mean nothing here and are skipped.
async fn next_data(body: &mut Incoming) -> Result<Option<Bytes>, Trouble> {
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| Trouble::Gone)?;
        if let Ok(data) = frame.into_data() {
            return Ok(Some(data));
        }
    }
    Ok(None)
}
