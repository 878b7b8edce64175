//! The streams of one HTTP/2 connection: how many are in use, how many are allowed, and
//! whether the connection takes requests. All of it is one atomic number, so that reserving
//! a stream is one step: no two requests get the last stream, and no request gets a stream of
//! a connection that was closed before.
//!
//! What always holds: every successful [`Slots::reserve`] is followed by one
//! [`Slots::release`]; a lower limit takes no stream away from a request that has one.

use std::sync::atomic::{AtomicU64, Ordering};

/// Bits 0 to 31 count the streams in use, bits 32 to 61 are the limit.
const LIMIT_SHIFT: u32 = 32;
const IN_USE_MASK: u64 = (1 << LIMIT_SHIFT) - 1;
const LIMIT_MASK: u64 = ((1 << 30) - 1) << LIMIT_SHIFT;
/// The greatest limit that fits.
const LIMIT_MAX: u32 = (1 << 30) - 1;
/// The connection is silent, and gets no requests until something arrives.
const SUSPECT: u64 = 1 << 62;
/// The connection takes no more requests.
const CLOSED: u64 = 1 << 63;

/// The streams of one connection.
#[derive(Debug)]
pub(super) struct Slots(AtomicU64);

/// The streams of one connection at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SlotsView {
    pub(super) in_use: u32,
    pub(super) limit: u32,
    /// Whether the connection takes requests: it is neither closed nor suspect.
    pub(super) is_usable: bool,
}

impl SlotsView {
    fn of(bits: u64) -> Self {
        SlotsView {
            in_use: (bits & IN_USE_MASK) as u32,
            limit: ((bits & LIMIT_MASK) >> LIMIT_SHIFT) as u32,
            is_usable: bits & (CLOSED | SUSPECT) == 0,
        }
    }

    /// Whether one more stream may be opened.
    pub(super) fn has_room(self) -> bool {
        self.is_usable && self.in_use < self.limit
    }
}

impl Slots {
    /// No stream is in use, and `limit` streams are allowed.
    pub(super) fn new(limit: u32) -> Self {
        Slots(AtomicU64::new(limit_bits(limit)))
    }

    pub(super) fn view(&self) -> SlotsView {
        SlotsView::of(self.0.load(Ordering::SeqCst))
    }

    /// Reserves a stream, and returns how many were in use before; `None` when there is no
    /// room.
    pub(super) fn reserve(&self) -> Option<u32> {
        let update = |bits| SlotsView::of(bits).has_room().then_some(bits + 1);
        let before = self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, update).ok()?;
        Some(SlotsView::of(before).in_use)
    }

    /// Gives a stream back, and returns how many are in use now.
    pub(super) fn release(&self) -> u32 {
        let before = SlotsView::of(self.0.fetch_sub(1, Ordering::SeqCst)).in_use;
        debug_assert!(before > 0, "a stream is given back once");
        before - 1
    }

    /// Sets how many streams are allowed. Returns whether the limit was raised.
    pub(super) fn set_limit(&self, limit: u32) -> bool {
        let update = |bits: u64| Some((bits & !LIMIT_MASK) | limit_bits(limit));
        match self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, update) {
            Ok(before) | Err(before) => SlotsView::of(before).limit < limit,
        }
    }

    /// Marks the connection as suspect or not. Returns whether this changed the mark.
    pub(super) fn set_suspect(&self, is_suspect: bool) -> bool {
        let before = if is_suspect {
            self.0.fetch_or(SUSPECT, Ordering::SeqCst)
        } else {
            self.0.fetch_and(!SUSPECT, Ordering::SeqCst)
        };
        (before & SUSPECT != 0) != is_suspect
    }

    /// Takes no more requests from now on. Returns whether the connection was open.
    pub(super) fn close(&self) -> bool {
        self.0.fetch_or(CLOSED, Ordering::SeqCst) & CLOSED == 0
    }

    /// Closes the connection if no stream is in use. Returns whether this closed it.
    pub(super) fn close_if_idle(&self) -> bool {
        let update = |bits: u64| (bits & (IN_USE_MASK | CLOSED) == 0).then_some(bits | CLOSED);
        self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, update).is_ok()
    }
}

/// The bits of a limit. At least one stream is allowed: if the peer allows none yet, h2 holds the
/// request back and sends it as soon as the peer allows it.
fn limit_bits(limit: u32) -> u64 {
    u64::from(limit.clamp(1, LIMIT_MAX)) << LIMIT_SHIFT
}

#[cfg(test)]
mod tests;
