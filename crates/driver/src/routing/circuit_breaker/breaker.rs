//! The breaker of one partition in one region: the counters of its reads and of
//! its writes, and whether the breaker is open for either.

use std::time::Duration;

use perihelion_wire::transport::Incident;
use tokio::time::Instant;

use super::{BreakerState, Partition};
use crate::region::Region;
use crate::routing::account::Usage;

/// If the outcome of a probe is not reported within this time, such as when its caller
/// was cancelled, another request may probe.
const PROBE_CLAIM_MAX: Duration = Duration::from_secs(10);

/// An open breaker is removed when its probe has been due for this many reset
/// periods (`CircuitBreakerOptions::counter_reset`) and no request is probing.
const STALE_AFTER_RESETS: u32 = 2;

/// The breaker of one partition in one region.
#[derive(Debug, Clone)]
pub(super) struct Breaker {
    pub(super) partition: Partition,
    pub(super) region: Region,
    pub(super) read: UsageState,
    pub(super) write: UsageState,
}

/// The counters of one usage (reads or writes), and whether the breaker is open for this
/// usage.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct UsageState {
    /// Failures since the last success, counted while the breaker is closed.
    pub(super) failures: u32,
    /// The incident that was counted last among the failures.
    pub(super) last_incident: Option<Incident>,
    /// Hedges that another region won, since this region last won a hedge or
    /// succeeded.
    pub(super) hedge_losses: u32,
    /// When the last failure or hedge loss was counted, or the last probe failed; `None`
    /// when nothing is counted and the breaker is closed.
    pub(super) last_event_at: Option<Instant>,
    /// `None` when the breaker is closed.
    pub(super) open: Option<OpenState>,
}

/// An open breaker.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct OpenState {
    /// When one request may probe.
    pub(super) probe_from: Instant,
    /// Until when the request that has claimed the probe is the only one that may probe;
    /// `None` when no request has claimed the probe.
    pub(super) claimed_until: Option<Instant>,
}

impl Breaker {
    pub(super) fn new(partition: &Partition, region: &Region) -> Self {
        Breaker {
            partition: partition.clone(),
            region: region.clone(),
            read: UsageState::default(),
            write: UsageState::default(),
        }
    }

    pub(super) fn state(&self, usage: Usage) -> &UsageState {
        match usage {
            Usage::Read => &self.read,
            Usage::Write => &self.write,
        }
    }

    pub(super) fn state_mut(&mut self, usage: Usage) -> &mut UsageState {
        match usage {
            Usage::Read => &mut self.read,
            Usage::Write => &mut self.write,
        }
    }

    /// Whether nothing is counted and the breaker is closed, for reads and for writes.
    pub(super) fn has_no_counts(&self) -> bool {
        self.read == UsageState::default() && self.write == UsageState::default()
    }

    pub(super) fn is_open(&self) -> bool {
        self.read.open.is_some() || self.write.open.is_some()
    }

    /// The later `last_event_at` of reads and of writes.
    pub(super) fn last_event_at(&self) -> Option<Instant> {
        self.read.last_event_at.max(self.write.last_event_at)
    }
}

impl UsageState {
    pub(super) fn breaker_state(&self, now: Instant) -> BreakerState {
        self.open.map_or(BreakerState::Closed, |open| open.breaker_state(now))
    }

    /// This state if its last event is less than `reset` ago, or else a state without
    /// counts, because failures or hedge losses that far apart are not consecutive.
    pub(super) fn reset_unless_recent(self, now: Instant, reset: Duration) -> UsageState {
        let is_recent = self.last_event_at.is_some_and(|last| now.saturating_duration_since(last) < reset);
        if is_recent { self } else { UsageState::default() }
    }

    /// Whether an attempt that began at `began_at` shows how the region works now. Called only for
    /// an open breaker: its last event is its opening or a failed probe, and the attempt must have
    /// begun at that moment or later.
    pub(super) fn is_after_last_event(&self, began_at: Instant) -> bool {
        self.last_event_at.is_none_or(|event_at| began_at >= event_at)
    }

    /// Whether the state is too old to keep. If the breaker is closed, the last count must be
    /// older than `reset`. If it is open, its probe must have been due for
    /// [`STALE_AFTER_RESETS`] times `reset`, and no request may be probing.
    pub(super) fn is_stale(&self, reset: Duration, now: Instant) -> bool {
        match (self.open, self.last_event_at) {
            (Some(open), _) => {
                now.saturating_duration_since(open.probe_from) >= reset * STALE_AFTER_RESETS
                    && open.breaker_state(now) == BreakerState::ProbeDue
            }
            (None, Some(last)) => now.saturating_duration_since(last) >= reset,
            (None, None) => false,
        }
    }
}

impl OpenState {
    pub(super) fn breaker_state(&self, now: Instant) -> BreakerState {
        let is_claimed = self.claimed_until.is_some_and(|until| now < until);
        if now < self.probe_from || is_claimed { BreakerState::Open } else { BreakerState::ProbeDue }
    }

    /// The state while one request probes.
    pub(super) fn claimed(self, now: Instant) -> OpenState {
        OpenState { claimed_until: Some(now + PROBE_CLAIM_MAX), ..self }
    }

    /// Whether an outcome at `now` counts as the outcome of a probe, even if no
    /// request claimed the probe.
    pub(super) fn is_probe_outcome(&self, now: Instant) -> bool {
        now >= self.probe_from
    }
}
