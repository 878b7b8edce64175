//! The vital signs of one HTTP/2 connection: when something arrived last, since when a ping
//! waits for its pong, when a request was answered last, and how many requests failed since.
//! [`SocketWithVitals`] is the connection's socket, and notes when bytes arrive.
//!
//! The requests and the connection's task write these signs without a lock. `health` judges
//! them.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

/// The vital signs of one connection. A moment is stored as nanoseconds since `opened_at`.
#[derive(Debug)]
pub(super) struct Vitals {
    opened_at: Instant,
    /// When bytes arrived last.
    last_arrival_ns: AtomicU64,
    /// When a request began while there was no other.
    busy_since_ns: AtomicU64,
    /// When the last request in flight ended.
    idle_since_ns: AtomicU64,
    /// When the ping that has no pong yet was sent; [`NO_PING`] when there is no such ping.
    ping_sent_ns: AtomicU64,
    /// When a whole answer arrived last, or when the connection was opened.
    last_answer_ns: AtomicU64,
    /// The requests that failed since the last answer.
    failures: AtomicU32,
}

const NO_PING: u64 = u64::MAX;

impl Vitals {
    pub(super) fn new(now: Instant) -> Self {
        Vitals {
            opened_at: now,
            last_arrival_ns: AtomicU64::new(0),
            busy_since_ns: AtomicU64::new(0),
            idle_since_ns: AtomicU64::new(0),
            ping_sent_ns: AtomicU64::new(NO_PING),
            last_answer_ns: AtomicU64::new(0),
            failures: AtomicU32::new(0),
        }
    }

    /// Records that bytes arrived.
    pub(super) fn record_arrival(&self, now: Instant) {
        self.last_arrival_ns.store(self.nanos(now), Ordering::Relaxed);
    }

    /// Records that a request begins while there is no other.
    pub(super) fn begin_busy(&self, now: Instant) {
        self.busy_since_ns.store(self.nanos(now), Ordering::Relaxed);
    }

    /// Records that the last request in flight has ended.
    pub(super) fn begin_idle(&self, now: Instant) {
        self.idle_since_ns.store(self.nanos(now), Ordering::Relaxed);
    }

    pub(super) fn ping_sent(&self, now: Instant) {
        self.ping_sent_ns.store(self.nanos(now), Ordering::Relaxed);
    }

    pub(super) fn ping_answered(&self) {
        self.ping_sent_ns.store(NO_PING, Ordering::Relaxed);
    }

    /// Records that the whole answer to a request has arrived, with any status.
    pub(super) fn answered(&self, now: Instant) {
        self.last_answer_ns.store(self.nanos(now), Ordering::Relaxed);
        self.failures.store(0, Ordering::Relaxed);
    }

    /// Records that a request failed, and that this connection may be at fault.
    pub(super) fn failed(&self) {
        self.failures.fetch_add(1, Ordering::Relaxed);
    }

    /// The requests that failed since the last answer.
    pub(super) fn failures(&self) -> u32 {
        self.failures.load(Ordering::Relaxed)
    }

    /// Whether bytes have arrived since this moment.
    pub(super) fn has_arrival_since(&self, moment: Instant) -> bool {
        self.last_arrival_ns.load(Ordering::Relaxed) > self.nanos(moment)
    }

    /// The time since bytes arrived last.
    pub(super) fn silent_for(&self, now: Instant) -> Duration {
        self.since(self.last_arrival_ns.load(Ordering::Relaxed), now)
    }

    /// The time without any bytes while requests were waiting. Only meaningful while
    /// requests are in flight.
    pub(super) fn hung_for(&self, now: Instant) -> Duration {
        let from =
            self.last_arrival_ns.load(Ordering::Relaxed).max(self.busy_since_ns.load(Ordering::Relaxed));
        self.since(from, now)
    }

    /// The time since the last request ended. Only meaningful while no request is in flight.
    pub(super) fn idle_for(&self, now: Instant) -> Duration {
        self.since(self.idle_since_ns.load(Ordering::Relaxed), now)
    }

    /// How long a ping has been waiting for its pong; `None` when no ping waits.
    pub(super) fn ping_waiting_for(&self, now: Instant) -> Option<Duration> {
        let pinged = self.ping_sent_ns.load(Ordering::Relaxed);
        (pinged != NO_PING).then(|| self.since(pinged, now))
    }

    /// The time since a request was answered last, or since the connection was opened.
    pub(super) fn unanswered_for(&self, now: Instant) -> Duration {
        self.since(self.last_answer_ns.load(Ordering::Relaxed), now)
    }

    /// Whether a request was ever answered.
    pub(super) fn has_answered(&self) -> bool {
        self.last_answer_ns.load(Ordering::Relaxed) > 0
    }

    fn nanos(&self, moment: Instant) -> u64 {
        let since = moment.saturating_duration_since(self.opened_at).as_nanos();
        u64::try_from(since).unwrap_or(NO_PING - 1)
    }

    fn since(&self, nanos: u64, now: Instant) -> Duration {
        Duration::from_nanos(self.nanos(now).saturating_sub(nanos))
    }
}

/// A socket that notes when bytes arrive.
pub(super) struct SocketWithVitals<T> {
    io: T,
    vitals: Arc<Vitals>,
}

impl<T> SocketWithVitals<T> {
    pub(super) fn new(io: T, vitals: Arc<Vitals>) -> Self {
        SocketWithVitals { io, vitals }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for SocketWithVitals<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.io).poll_read(cx, buffer);
        if buffer.filled().len() > before {
            self.vitals.record_arrival(Instant::now());
        }
        polled
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for SocketWithVitals<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }
}
