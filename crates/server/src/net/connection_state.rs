//! `ConnectionState`: the state that the task of one connection and the supervisor
//! share. The connection counts its requests here; the supervisor and the draining
//! listener give their directives here.
//!
//! What always holds: a directive only grows (serve, drain, close), and a
//! connection that is told to close is dropped at its next poll.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

/// The order of the supervisor or the listener to a connection. A directive is only
/// replaced by a greater one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(super) enum Directive {
    Serve = 0,
    /// Answer the requests that have arrived, take no new ones, then close.
    Drain = 1,
    /// Close now.
    Close = 2,
}

/// The shared state of one connection.
#[derive(Debug)]
pub(super) struct ConnectionState {
    /// Requests received and not yet answered.
    in_flight: AtomicU32,
    /// Requests begun plus requests ended. When the sum has not changed since the last
    /// tick of the supervisor and no request is in flight, the connection was idle.
    events: AtomicU64,
    /// Whether bytes arrived since a request last began or ended. When no request is in
    /// flight, these bytes are part of a header block. Set on HTTP/1.1 connections only.
    is_header_pending: AtomicBool,
    /// Whether hyper serves the connection. Before that, there are no requests to drain.
    has_http_started: AtomicBool,
    /// Whether a request was rejected before it was read to its end. Then the connection
    /// stays open a little longer, so that the client can read the response.
    is_lingering: AtomicBool,
    directive: AtomicU8,
    /// Wakes the task of the connection; `None` before its first poll.
    waker: Mutex<Option<Waker>>,
}

impl ConnectionState {
    pub(super) fn new() -> ConnectionState {
        ConnectionState {
            in_flight: AtomicU32::new(0),
            events: AtomicU64::new(0),
            is_header_pending: AtomicBool::new(false),
            has_http_started: AtomicBool::new(false),
            is_lingering: AtomicBool::new(false),
            directive: AtomicU8::new(Directive::Serve as u8),
            waker: Mutex::new(None),
        }
    }

    /// Counts a request as in flight until the guard is dropped.
    pub(super) fn begin_request(&self) -> InFlight<'_> {
        self.is_header_pending.store(false, Ordering::Relaxed);
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        self.events.fetch_add(1, Ordering::Relaxed);
        InFlight { state: self }
    }

    /// Records that bytes arrived. Unless a request is in flight, they belong to a header
    /// block.
    pub(super) fn record_arrived_bytes(&self) {
        self.is_header_pending.store(true, Ordering::Relaxed);
    }

    /// Records that the protocol is known and the handshake is done.
    pub(super) fn set_http_started(&self) {
        self.has_http_started.store(true, Ordering::Relaxed);
    }

    /// Records that a request was rejected before it was read to its end.
    pub(super) fn set_lingering(&self) {
        self.is_lingering.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_lingering(&self) -> bool {
        self.is_lingering.load(Ordering::Relaxed)
    }

    pub(super) fn directive(&self) -> Directive {
        match self.directive.load(Ordering::Acquire) {
            0 => Directive::Serve,
            1 => Directive::Drain,
            _ => Directive::Close,
        }
    }

    /// Raises the directive and wakes the connection to follow it.
    pub(super) fn raise_directive(&self, directive: Directive) {
        self.directive.fetch_max(directive as u8, Ordering::AcqRel);
        if let Some(waker) = lock(&self.waker).as_ref() {
            waker.wake_by_ref();
        }
    }

    fn register_waker(&self, waker: &Waker) {
        let mut registered = lock(&self.waker);
        if !registered.as_ref().is_some_and(|known| known.will_wake(waker)) {
            *registered = Some(waker.clone());
        }
    }

    /// What the supervisor sees now.
    pub(super) fn observe(&self) -> Observation {
        Observation {
            is_busy: self.in_flight.load(Ordering::Relaxed) > 0,
            events: self.events.load(Ordering::Relaxed),
            is_header_pending: self.is_header_pending.load(Ordering::Relaxed),
        }
    }
}

/// A request in flight; see [`ConnectionState::begin_request`].
#[derive(Debug)]
pub(super) struct InFlight<'a> {
    state: &'a ConnectionState,
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        // The bytes that arrived meanwhile count as the body. If some of them were already
        // the start of a next request, the header timeout of that request starts when more
        // of its bytes arrive.
        self.state.is_header_pending.store(false, Ordering::Relaxed);
        self.state.events.fetch_add(1, Ordering::Relaxed);
        self.state.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What the supervisor sees of a connection at one tick.
#[derive(Clone, Copy, Debug)]
pub(super) struct Observation {
    /// Whether a request is in flight.
    pub(super) is_busy: bool,
    /// Requests begun plus requests ended.
    pub(super) events: u64,
    /// Whether bytes arrived since a request last began or ended.
    pub(super) is_header_pending: bool,
}

/// Runs a connection until it ends or is told to close. A connection that does
/// not speak HTTP yet has no requests to drain, so `Directive::Drain` ends it too.
pub(super) async fn run_supervised<F: Future<Output = ()>>(state: &ConnectionState, connection: F) {
    let mut connection = std::pin::pin!(connection);
    std::future::poll_fn(|cx| {
        state.register_waker(cx.waker());
        match state.directive() {
            Directive::Close => Poll::Ready(()),
            Directive::Drain if !state.has_http_started.load(Ordering::Relaxed) => Poll::Ready(()),
            Directive::Drain | Directive::Serve => connection.as_mut().poll(cx),
        }
    })
    .await;
}

/// Takes a lock, even a poisoned one. No code in `net` can panic while it holds a lock
/// and has changed the data only in part, so a poisoned lock still guards sound data.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
