//! Watches connections from outside: who is idle, who is too slow, who must go.
//!
//! One task per front looks over all connections at a fixed beat. That keeps
//! timers out of the path of a request: serving one costs two relaxed counters
//! instead of arming and disarming a timeout. (hyper's own header timeout arms
//! one per request and also runs while a connection is merely idle, so that it
//! cannot be short and let pools keep connections.) The price is that a bound
//! acts up to one beat late.
//!
//! What always holds: orders only grow (serve, finish, leave), and a
//! connection told to leave is dropped at its next poll.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

use tokio::time::Instant;

use super::Limits;

/// A bound is checked this many times within its length, so it acts at most a
/// quarter late.
const BEATS_PER_BOUND: u32 = 4;

/// Even with the tiny bounds of tests, looking is not busy waiting.
const BEAT_MIN: Duration = Duration::from_millis(5);

/// What a connection has been told to do. Grows, never shrinks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(super) enum Order {
    Serve = 0,
    /// Answer what was asked, take nothing new, then close.
    Finish = 1,
    /// Close now.
    Leave = 2,
}

/// The control block of one connection, shared by its task and the watch.
#[derive(Debug)]
pub(super) struct Line {
    /// Requests received and not yet answered.
    in_flight: AtomicU32,
    /// Requests begun plus requests ended: unchanged means nothing happened.
    events: AtomicU64,
    /// Bytes arrived since the last request began: part of a header block.
    head_pending: AtomicBool,
    /// An HTTP dialect is being spoken; before that there is nothing to finish.
    speaking: AtomicBool,
    /// A request was refused unread: close only once the answer was seen.
    lingering: AtomicBool,
    order: AtomicU8,
    waker: Mutex<Option<Waker>>,
    watch: Mutex<Watch>,
}

impl Line {
    pub(super) fn new(now: Instant) -> Line {
        Line {
            in_flight: AtomicU32::new(0),
            events: AtomicU64::new(0),
            head_pending: AtomicBool::new(false),
            speaking: AtomicBool::new(false),
            lingering: AtomicBool::new(false),
            order: AtomicU8::new(Order::Serve as u8),
            waker: Mutex::new(None),
            watch: Mutex::new(Watch::new(now)),
        }
    }

    /// Marks a request as being served until the guard is dropped.
    pub(super) fn busy(&self) -> Busy<'_> {
        self.head_pending.store(false, Ordering::Relaxed);
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        self.events.fetch_add(1, Ordering::Relaxed);
        Busy { line: self }
    }

    /// Bytes arrived: unless a request is being read, they are of a header block.
    pub(super) fn bytes_arrived(&self) {
        self.head_pending.store(true, Ordering::Relaxed);
    }

    /// The first bytes are judged and the handshake is done.
    pub(super) fn begin_speaking(&self) {
        self.speaking.store(true, Ordering::Relaxed);
    }

    /// A request was refused before it was read to its end.
    pub(super) fn set_lingering(&self) {
        self.lingering.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_lingering(&self) -> bool {
        self.lingering.load(Ordering::Relaxed)
    }

    pub(super) fn order(&self) -> Order {
        match self.order.load(Ordering::Acquire) {
            0 => Order::Serve,
            1 => Order::Finish,
            _ => Order::Leave,
        }
    }

    /// Gives an order and wakes the connection to obey it.
    pub(super) fn give(&self, order: Order) {
        self.order.fetch_max(order as u8, Ordering::AcqRel);
        if let Some(waker) = lock(&self.waker).as_ref() {
            waker.wake_by_ref();
        }
    }

    fn listen(&self, waker: &Waker) {
        let mut slot = lock(&self.waker);
        if !slot.as_ref().is_some_and(|known| known.will_wake(waker)) {
            *slot = Some(waker.clone());
        }
    }

    fn look(&self) -> Look {
        Look {
            in_flight: self.in_flight.load(Ordering::Relaxed) > 0,
            events: self.events.load(Ordering::Relaxed),
            head_pending: self.head_pending.load(Ordering::Relaxed),
        }
    }
}

/// See [`Line::busy`].
#[derive(Debug)]
pub(super) struct Busy<'a> {
    line: &'a Line,
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        // Body bytes came in meanwhile; they are no header block.
        self.line.head_pending.store(false, Ordering::Relaxed);
        self.line.events.fetch_add(1, Ordering::Relaxed);
        self.line.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Runs a connection until it ends or is told to leave. An order to finish
/// ends it too while no dialect is spoken yet: there is nothing to finish.
pub(super) async fn supervised<F: Future<Output = ()>>(line: &Line, connection: F) {
    let mut connection = std::pin::pin!(connection);
    std::future::poll_fn(|cx| {
        line.listen(cx.waker());
        match line.order() {
            Order::Leave => Poll::Ready(()),
            Order::Finish if !line.speaking.load(Ordering::Relaxed) => Poll::Ready(()),
            Order::Finish | Order::Serve => connection.as_mut().poll(cx),
        }
    })
    .await;
}

/// What the watch sees of a connection at one beat.
#[derive(Clone, Copy, Debug)]
struct Look {
    in_flight: bool,
    events: u64,
    head_pending: bool,
}

/// What the watch remembers of a connection between beats. Written by the
/// watch only.
#[derive(Debug)]
struct Watch {
    events: u64,
    quiet_since: Instant,
    head_since: Option<Instant>,
    finishing_since: Option<Instant>,
}

impl Watch {
    fn new(now: Instant) -> Watch {
        Watch { events: 0, quiet_since: now, head_since: None, finishing_since: None }
    }

    /// Judges a connection by what it did since the last beat.
    fn judge(&mut self, look: Look, now: Instant, limits: &Limits) -> Order {
        if let Some(since) = self.finishing_since {
            let overdue = !look.in_flight && now - since >= limits.close_timeout;
            return if overdue { Order::Leave } else { Order::Finish };
        }
        if look.in_flight || look.events != self.events {
            self.events = look.events;
            self.quiet_since = now;
            self.head_since = None;
            return Order::Serve;
        }
        if look.head_pending {
            let since = *self.head_since.get_or_insert(now);
            return if now - since >= limits.header_timeout { Order::Leave } else { Order::Serve };
        }
        self.head_since = None;
        let patience = if self.events == 0 { limits.first_byte_timeout } else { limits.idle_timeout };
        if now - self.quiet_since < patience {
            return Order::Serve;
        }
        self.finishing_since = Some(now);
        Order::Finish
    }
}

/// All open connections of a front.
#[derive(Debug, Default)]
pub(super) struct Roster {
    lines: Mutex<Lines>,
}

#[derive(Debug, Default)]
struct Lines {
    open: HashMap<u64, Arc<Line>>,
    next: u64,
}

impl Roster {
    /// Enters a connection; it is struck off when the guard is dropped.
    pub(super) fn enter(self: &Arc<Roster>, line: &Arc<Line>) -> Entry {
        let mut lines = lock(&self.lines);
        let key = lines.next;
        lines.next += 1;
        lines.open.insert(key, Arc::clone(line));
        Entry { roster: Arc::clone(self), key }
    }

    pub(super) fn give_all(&self, order: Order) {
        for line in lock(&self.lines).open.values() {
            line.give(order);
        }
    }

    pub(super) fn len(&self) -> usize {
        lock(&self.lines).open.len()
    }

    /// Looks over every connection, for as long as the front lives.
    pub(super) async fn keep_watch(&self, limits: &Limits) {
        let mut beat = tokio::time::interval(beat(limits));
        beat.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            self.look_over(beat.tick().await, limits);
        }
    }

    fn look_over(&self, now: Instant, limits: &Limits) {
        for line in lock(&self.lines).open.values() {
            let order = lock(&line.watch).judge(line.look(), now, limits);
            if order > line.order() {
                tracing::debug!(?order, "connection idle or too slow");
                line.give(order);
            }
        }
    }
}

/// See [`Roster::enter`].
#[derive(Debug)]
pub(super) struct Entry {
    roster: Arc<Roster>,
    key: u64,
}

impl Drop for Entry {
    fn drop(&mut self) {
        lock(&self.roster.lines).open.remove(&self.key);
    }
}

fn beat(limits: &Limits) -> Duration {
    let shortest = limits
        .header_timeout
        .min(limits.first_byte_timeout)
        .min(limits.idle_timeout)
        .min(limits.close_timeout);
    (shortest / BEATS_PER_BOUND).max(BEAT_MIN)
}

/// No lock here is held across code that can panic with the data half changed,
/// so a poisoned lock still guards sound data.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod judgements {
    use super::*;

    const IDLE: Look = Look { in_flight: false, events: 2, head_pending: false };

    fn limits() -> Limits {
        Limits {
            first_byte_timeout: Duration::from_secs(3),
            header_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(60),
            close_timeout: Duration::from_secs(5),
            ..Limits::default()
        }
    }

    /// Plays looks at given seconds and expects the orders.
    fn check(story: &[(u64, Look, Order)]) {
        let start = Instant::now();
        let mut watch = Watch::new(start);
        for &(second, look, expected) in story {
            let order = watch.judge(look, start + Duration::from_secs(second), &limits());
            assert_eq!(order, expected, "at second {second}");
        }
    }

    #[test]
    fn a_connection_that_never_asks_is_closed_early() {
        let silent = Look { events: 0, ..IDLE };
        check(&[(1, silent, Order::Serve), (3, silent, Order::Finish)]);
    }

    #[test]
    fn an_idle_connection_finishes_then_leaves() {
        check(&[
            (0, IDLE, Order::Serve),
            (59, IDLE, Order::Serve),
            (60, IDLE, Order::Finish),
            (64, IDLE, Order::Finish),
            (65, IDLE, Order::Leave),
        ]);
    }

    #[test]
    fn a_trickled_header_block_is_cut() {
        let head = Look { head_pending: true, ..IDLE };
        check(&[(0, IDLE, Order::Serve), (1, head, Order::Serve), (11, head, Order::Leave)]);
    }

    #[test]
    fn a_request_resets_the_header_clock() {
        let head = |events| Look { head_pending: true, events, ..IDLE };
        check(&[
            (0, head(2), Order::Serve),
            (9, head(2), Order::Serve),
            (10, head(4), Order::Serve),
            (19, head(4), Order::Serve),
            (29, head(4), Order::Leave),
        ]);
    }

    #[test]
    fn a_slow_answer_is_not_idleness() {
        let busy = Look { in_flight: true, ..IDLE };
        check(&[(0, busy, Order::Serve), (1000, busy, Order::Serve), (1001, IDLE, Order::Serve)]);
    }
}
