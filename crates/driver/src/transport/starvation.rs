//! Notices when the runtime of a connection gets too little CPU: its timers fire late. At such a
//! time an answer may have arrived long before this process reads it, so a silent connection may
//! have a peer that works. So a late timer begins a *hold*: a time in which the connection is not
//! *evicted*. `health` then neither suspects nor breaks it, and retires it only if it is idle.
//!
//! Each connection notices this for itself, because a process may have several runtimes. A runtime
//! that is late, for example because it is run only during calls, says nothing about the others.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use super::vitals::Vitals;

/// A timer that fires later than this shows starvation. A runtime with idle cores fires
/// timers within 2 ms, and one that uses 90 % of its CPU mostly within some tens of
/// milliseconds.
const LATE: Duration = Duration::from_millis(100);

/// The most holds in a row without a byte from the peer. A runtime that is run only during calls is
/// late at the beginning of every call, and a call may be shorter than a hold. Even on such a
/// runtime, a dead connection must be evicted.
const SILENT_HOLDS_MAX: u32 = 3;

/// How late the timers of a connection fire.
#[derive(Debug)]
pub(super) struct Starvation {
    created_at: Instant,
    /// When a late timer last began a hold, in nanoseconds since `created_at`; 0 before the first
    /// hold. A hold that [`SILENT_HOLDS_MAX`] prevented counts too.
    last_hold_ns: AtomicU64,
    /// The end of the hold, in nanoseconds since `created_at`.
    held_until_ns: AtomicU64,
    /// The holds in a row without a byte from the peer.
    silent_holds: AtomicU32,
    /// How long a hold lasts after a late timer. Within this time, bytes of a peer that works arrive
    /// again.
    hold: Duration,
}

impl Starvation {
    pub(super) fn new(now: Instant, hold: Duration) -> Self {
        Starvation {
            created_at: now,
            last_hold_ns: AtomicU64::new(0),
            held_until_ns: AtomicU64::new(0),
            silent_holds: AtomicU32::new(0),
            hold,
        }
    }

    /// Notes that a timer of the connection was due at `due` and fired at `now`. Only the task of
    /// the connection calls this.
    pub(super) fn timer_fired(&self, due: Instant, now: Instant, vitals: &Vitals) {
        if now.saturating_duration_since(due) <= LATE {
            return;
        }
        tracing::debug!(late = ?now.saturating_duration_since(due), "a timer fired late");
        if !self.is_starved(now) {
            let last_hold_ns = self.last_hold_ns.swap(self.nanos(now), Ordering::Relaxed);
            let last_hold = self.created_at + Duration::from_nanos(last_hold_ns);
            let holds = self.silent_holds.load(Ordering::Relaxed);
            let holds = if vitals.has_arrival_since(last_hold) { 1 } else { holds.saturating_add(1) };
            self.silent_holds.store(holds, Ordering::Relaxed);
            if holds > SILENT_HOLDS_MAX {
                return;
            }
        }
        self.held_until_ns.fetch_max(self.nanos(now + self.hold), Ordering::Relaxed);
    }

    /// Whether evictions are held back.
    pub(super) fn is_starved(&self, now: Instant) -> bool {
        self.nanos(now) < self.held_until_ns.load(Ordering::Relaxed)
    }

    fn nanos(&self, moment: Instant) -> u64 {
        u64::try_from(moment.saturating_duration_since(self.created_at).as_nanos()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_timer_holds_evictions_back_for_a_while() {
        let (from, second) = (Instant::now(), Duration::from_secs(1));
        let (starvation, vitals) = (Starvation::new(from, 2 * second), Vitals::new(from));
        starvation.timer_fired(from, from + LATE, &vitals);
        assert!(!starvation.is_starved(from + LATE));
        starvation.timer_fired(from, from + second, &vitals);
        assert!(starvation.is_starved(from + second));
        assert!(starvation.is_starved(from + 3 * second - LATE));
        assert!(!starvation.is_starved(from + 3 * second));
    }

    /// The runtime is run for a moment once a minute.
    #[test]
    fn a_silent_peer_does_not_hold_evictions_back_for_ever() {
        let (from, minute) = (Instant::now(), Duration::from_secs(60));
        let (starvation, vitals) = (Starvation::new(from, Duration::from_secs(2)), Vitals::new(from));
        let mut call = |number: u32| {
            let now = from + number * minute;
            starvation.timer_fired(now - minute, now, &vitals);
            starvation.is_starved(now)
        };
        assert_eq!([1, 2, 3, 4, 5].map(&mut call), [true, true, true, false, false]);
        vitals.record_arrival(from + 5 * minute + Duration::from_secs(1));
        assert_eq!([6, 7, 8, 9].map(call), [true, true, true, false]);
    }
}
