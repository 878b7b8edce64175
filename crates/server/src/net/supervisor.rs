//! The supervisor: closes connections that are idle, or whose clients send requests or receive
//! responses too slowly.
//!
//! One task per listener checks all its connections at a fixed tick. So these timeouts need no
//! timer for each request: a request updates a few counters instead of arming and disarming a
//! timeout. (hyper's own header timeout arms a timer per request and also runs while
//! a connection is idle. A short header timeout would close the pooled connections of
//! clients.) The price: a timeout takes effect up to two ticks late, because both its
//! start and its end are noticed at a tick.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;

use super::Limits;
use super::connection_state::{ConnectionState, Directive, Observation, lock};
use super::limits::{RATE_FACTOR_UNDER_PRESSURE, RESPONSE_TIMEOUT_UNDER_PRESSURE};
use crate::memory::MemoryBudget;

/// How many ticks the shortest timeout lasts, unless a tick would be shorter than
/// `TICK_MIN`. A longer timeout lasts more ticks.
const TICKS_PER_TIMEOUT: u32 = 4;

/// The shortest tick, so that the short timeouts of tests do not make the
/// supervisor spin.
const TICK_MIN: Duration = Duration::from_millis(5);

/// What the supervisor remembers of a connection between two ticks.
#[derive(Debug)]
struct IdleTracker {
    /// [`Observation::events`] at the last tick.
    events: u64,
    /// The last tick that saw a request in flight, begun or ended; at first the time of
    /// the connection's start.
    idle_since: Instant,
    /// The first tick that saw part of a header block which is not complete yet.
    header_pending_since: Option<Instant>,
    /// The tick at which the idle connection was told to drain.
    draining_since: Option<Instant>,
}

impl IdleTracker {
    fn new(now: Instant) -> IdleTracker {
        IdleTracker { events: 0, idle_since: now, header_pending_since: None, draining_since: None }
    }

    /// The directive for a connection, from what it did since the last tick.
    fn next_directive(&mut self, seen: Observation, now: Instant, limits: &Limits) -> Directive {
        if let Some(since) = self.draining_since {
            let is_overdue = !seen.is_busy && now - since >= limits.close_timeout;
            return if is_overdue { Directive::Close } else { Directive::Drain };
        }
        if seen.is_busy || seen.events != self.events {
            self.events = seen.events;
            self.idle_since = now;
            self.header_pending_since = None;
            return Directive::Serve;
        }
        if seen.is_header_pending {
            let since = *self.header_pending_since.get_or_insert(now);
            return if now - since >= limits.header_timeout { Directive::Close } else { Directive::Serve };
        }
        self.header_pending_since = None;
        let timeout = if self.events == 0 { limits.first_request_timeout } else { limits.idle_timeout };
        if now - self.idle_since < timeout {
            return Directive::Serve;
        }
        self.draining_since = Some(now);
        Directive::Drain
    }
}

/// All open connections of a listener.
#[derive(Debug, Default)]
pub(super) struct ConnectionTable {
    connections: Mutex<Connections>,
}

#[derive(Debug, Default)]
struct Connections {
    /// The open connections, by a key of their own.
    open: HashMap<u64, (Arc<ConnectionState>, IdleTracker)>,
    next_key: u64,
}

impl ConnectionTable {
    /// Adds a connection; it is removed when the guard is dropped.
    pub(super) fn register(self: &Arc<ConnectionTable>, state: &Arc<ConnectionState>) -> Registration {
        let mut connections = lock(&self.connections);
        let key = connections.next_key;
        connections.next_key += 1;
        connections.open.insert(key, (Arc::clone(state), IdleTracker::new(Instant::now())));
        Registration { table: Arc::clone(self), key }
    }

    /// Raises the directive of every open connection to at least `directive`.
    pub(super) fn raise_directive_of_all(&self, directive: Directive) {
        for (state, _) in lock(&self.connections).open.values() {
            state.raise_directive(directive);
        }
    }

    pub(super) fn len(&self) -> usize {
        lock(&self.connections).open.len()
    }

    /// Supervises every connection, for as long as the listener lives.
    pub(super) async fn supervise(&self, limits: &Limits, memory: &MemoryBudget) {
        let mut ticks = tokio::time::interval(tick_length(limits));
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            self.check_all(ticks.tick().await, limits, memory);
        }
    }

    fn check_all(&self, now: Instant, limits: &Limits, memory: &MemoryBudget) {
        // While much memory is used, clients have to take their responses quickly.
        let (timeout, bytes_per_second) = match memory.is_under_pressure() {
            false => (limits.response_timeout, limits.response_bytes_per_second),
            true => (
                limits.response_timeout.min(RESPONSE_TIMEOUT_UNDER_PRESSURE),
                limits.response_bytes_per_second.saturating_mul(RATE_FACTOR_UNDER_PRESSURE),
            ),
        };
        for (state, tracker) in lock(&self.connections).open.values_mut() {
            let directive = match state.has_overdue_response(now, timeout, bytes_per_second) {
                true => Directive::Close,
                false => tracker.next_directive(state.observe(), now, limits),
            };
            if directive > state.directive() {
                tracing::debug!(?directive, "connection idle or too slow");
                state.raise_directive(directive);
            }
        }
    }
}

/// The entry of a connection in the table; see [`ConnectionTable::register`].
#[derive(Debug)]
pub(super) struct Registration {
    table: Arc<ConnectionTable>,
    key: u64,
}

impl Drop for Registration {
    fn drop(&mut self) {
        lock(&self.table.connections).open.remove(&self.key);
    }
}

/// The time between two checks.
fn tick_length(limits: &Limits) -> Duration {
    let shortest = limits
        .header_timeout
        .min(limits.first_request_timeout)
        .min(limits.idle_timeout)
        .min(limits.response_timeout.min(RESPONSE_TIMEOUT_UNDER_PRESSURE))
        .min(limits.close_timeout);
    (shortest / TICKS_PER_TIMEOUT).max(TICK_MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: Observation = Observation { is_busy: false, events: 2, is_header_pending: false };

    fn limits() -> Limits {
        Limits {
            first_request_timeout: Duration::from_secs(3),
            header_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(60),
            close_timeout: Duration::from_secs(5),
            ..Limits::default()
        }
    }

    /// Gives a new tracker each observation at its second, and expects the directive.
    fn check(ticks: &[(u64, Observation, Directive)]) {
        let start = Instant::now();
        let mut tracker = IdleTracker::new(start);
        for &(second, observation, expected) in ticks {
            let directive =
                tracker.next_directive(observation, start + Duration::from_secs(second), &limits());
            assert_eq!(directive, expected, "at second {second}");
        }
    }

    #[test]
    fn a_connection_that_sends_nothing_is_drained_after_the_first_request_timeout() {
        let silent = Observation { events: 0, ..IDLE };
        check(&[(1, silent, Directive::Serve), (3, silent, Directive::Drain)]);
    }

    #[test]
    fn an_idle_connection_is_drained_then_closed() {
        check(&[
            (0, IDLE, Directive::Serve),
            (59, IDLE, Directive::Serve),
            (60, IDLE, Directive::Drain),
            (64, IDLE, Directive::Drain),
            (65, IDLE, Directive::Close),
        ]);
    }

    #[test]
    fn a_connection_that_trickles_its_header_block_is_closed() {
        let header = Observation { is_header_pending: true, ..IDLE };
        check(&[(0, IDLE, Directive::Serve), (1, header, Directive::Serve), (11, header, Directive::Close)]);
    }

    #[test]
    fn a_request_restarts_the_header_timeout() {
        let header = |events| Observation { is_header_pending: true, events, ..IDLE };
        check(&[
            (0, header(2), Directive::Serve),
            (9, header(2), Directive::Serve),
            (10, header(4), Directive::Serve),
            (19, header(4), Directive::Serve),
            (29, header(4), Directive::Close),
        ]);
    }

    #[test]
    fn a_connection_that_waits_for_a_slow_response_is_not_idle() {
        let busy = Observation { is_busy: true, ..IDLE };
        check(&[(0, busy, Directive::Serve), (1000, busy, Directive::Serve), (1001, IDLE, Directive::Serve)]);
    }
}
