//! `ConnectionState`: the state that the task of one connection and the supervisor
//! share. The connection counts its requests here; the supervisor and the draining
//! listener give their directives here.
//!
//! What always holds: a directive only grows (serve, drain, close), and a
//! connection that is told to close is dropped at its next poll.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

/// A command of the supervisor or the listener to a connection. A directive is only
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
    /// The responses that the client has not taken yet.
    responses: Mutex<PendingResponses>,
    /// Notified when the client has taken a response.
    response_taken: Notify,
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
            responses: Mutex::default(),
            response_taken: Notify::new(),
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

    /// Counts a response as pending until the guard is dropped. The guard is dropped when the last
    /// byte of the response is written.
    pub(super) fn begin_response(state: &Arc<ConnectionState>, bytes: usize) -> ResponseGuard {
        let mut responses = lock(&state.responses);
        let key = responses.next_key;
        responses.next_key += 1;
        responses.bytes += bytes;
        let response = PendingResponse { since: Instant::now(), bytes, bytes_until_sent: responses.bytes };
        responses.pending.insert(key, response);
        ResponseGuard { state: Arc::clone(state), key }
    }

    /// Waits until the client has taken so much that fewer than `bytes_max` bytes of responses
    /// are pending. A client that takes nothing is disconnected by the supervisor.
    pub(super) async fn wait_for_taken_responses(&self, bytes_max: usize) {
        loop {
            let taken = self.response_taken.notified();
            if lock(&self.responses).bytes < bytes_max {
                return;
            }
            taken.await;
        }
    }

    /// Whether a response has been pending for longer than `timeout`, plus the time that its bytes
    /// and those of the responses before it take at `bytes_per_second`. A client that asks for many
    /// pages at the same time receives them one after the other.
    pub(super) fn has_overdue_response(
        &self,
        now: Instant,
        timeout: Duration,
        bytes_per_second: usize,
    ) -> bool {
        let responses = lock(&self.responses);
        responses.pending.values().any(|response| {
            let time =
                Duration::from_secs_f64(response.bytes_until_sent as f64 / bytes_per_second.max(1) as f64);
            now.saturating_duration_since(response.since) > timeout + time
        })
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

/// Counts a request as in flight until it is dropped; see [`ConnectionState::begin_request`].
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

/// The responses of a connection that the client has not taken yet. Their number is bounded by
/// the number of streams.
#[derive(Debug, Default)]
struct PendingResponses {
    /// The responses, each by a key of its own.
    pending: HashMap<u64, PendingResponse>,
    next_key: u64,
    bytes: usize,
}

/// A response that waits for the client.
#[derive(Debug)]
struct PendingResponse {
    /// When it was ready.
    since: Instant,
    bytes: usize,
    /// Its bytes, and those of the responses that were pending when it was ready.
    bytes_until_sent: usize,
}

/// Counts a response as pending until it is dropped; see [`ConnectionState::begin_response`].
#[derive(Debug)]
pub(super) struct ResponseGuard {
    state: Arc<ConnectionState>,
    key: u64,
}

impl Drop for ResponseGuard {
    fn drop(&mut self) {
        let mut responses = lock(&self.state.responses);
        if let Some(response) = responses.pending.remove(&self.key) {
            responses.bytes -= response.bytes;
        }
        drop(responses);
        // Every waiting request checks again; at most as many wait as there are streams.
        self.state.response_taken.notify_waiters();
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Story of a bug: each page had only the time for its own bytes, so a client that asked for
    /// forty large pages on one connection was disconnected although it took them at the required rate.
    #[tokio::test(start_paused = true)]
    async fn a_response_has_time_for_the_responses_before_it() {
        let state = Arc::new(ConnectionState::new());
        // At 1000 bytes per second, each page of 10,000 bytes takes 10 s.
        let timeout = Duration::from_secs(1);
        let is_overdue = || state.has_overdue_response(Instant::now(), timeout, 1000);
        let mut pages: Vec<ResponseGuard> =
            (0..40).map(|_| ConnectionState::begin_response(&state, 10_000)).collect();
        while !pages.is_empty() {
            tokio::time::advance(Duration::from_secs(10)).await;
            assert!(!is_overdue(), "{} pages left", pages.len());
            pages.remove(0);
        }
        let slow = ConnectionState::begin_response(&state, 10_000);
        tokio::time::advance(Duration::from_millis(11_001)).await;
        assert!(is_overdue());
        drop(slow);
        assert!(!is_overdue());
    }
}
