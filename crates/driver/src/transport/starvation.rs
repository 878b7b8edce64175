//! Notices when this process gets too little CPU: a timer then fires late. In such a time
//! an answer may have arrived long before this process reads it, so silence says nothing
//! about the peer, and no connection is evicted.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// A timer that fires later than this shows starvation. A runtime with idle cores fires
/// timers within 2 ms, and one that uses 90 % of its CPU mostly within some tens.
const LATE: Duration = Duration::from_millis(100);

/// How late the timers of this process fire.
#[derive(Debug)]
pub(super) struct Starvation {
    from: Instant,
    /// Until when evictions are held back, in nanoseconds since `from`.
    until: AtomicU64,
    /// How long one late timer holds evictions back. Within this time a peer that works is
    /// heard again.
    hold: Duration,
}

impl Starvation {
    pub(super) fn new(now: Instant, hold: Duration) -> Self {
        Starvation { from: now, until: AtomicU64::new(0), hold }
    }

    /// Notes that a timer fired at `now` that was due at `due`.
    pub(super) fn timer_fired(&self, due: Instant, now: Instant) {
        if now.saturating_duration_since(due) > LATE {
            tracing::debug!(late = ?now.saturating_duration_since(due), "a timer fired late");
            self.until.fetch_max(self.nanos(now + self.hold), Ordering::Relaxed);
        }
    }

    /// Whether evictions are held back.
    pub(super) fn is_starved(&self, now: Instant) -> bool {
        self.nanos(now) < self.until.load(Ordering::Relaxed)
    }

    fn nanos(&self, moment: Instant) -> u64 {
        u64::try_from(moment.saturating_duration_since(self.from).as_nanos()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_timer_holds_evictions_back_for_a_while() {
        let (from, second) = (Instant::now(), Duration::from_secs(1));
        let starvation = Starvation::new(from, 2 * second);
        starvation.timer_fired(from, from + LATE);
        assert!(!starvation.is_starved(from + LATE));
        starvation.timer_fired(from, from + second);
        assert!(starvation.is_starved(from + second));
        assert!(starvation.is_starved(from + 3 * second - LATE));
        assert!(!starvation.is_starved(from + 3 * second));
    }
}
