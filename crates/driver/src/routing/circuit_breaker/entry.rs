//! One partition in one region: what is counted against its reads and its
//! writes, and whether the breaker is open for either.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::{Gate, PartitionKeyRef};
use crate::region::Region;
use crate::routing::account::Usage;

/// A probe whose outcome was never reported (its caller went away) counts as
/// lost after this long, and another request may try.
const CLAIM_MAX: Duration = Duration::from_secs(10);

/// A partition that nobody asks for is forgotten after this many times the
/// period after which counters are reset.
const STALE_AFTER_RESETS: u32 = 2;

/// One partition in one region.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) container: Arc<str>,
    pub(super) range: Arc<str>,
    pub(super) region: Region,
    pub(super) read: Side,
    pub(super) write: Side,
}

/// One usage of it.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Side {
    /// Failures since the last success.
    pub(super) failures: u32,
    /// Hedges won by another region since this one last answered in time.
    pub(super) hedge_losses: u32,
    /// When the last of either was counted; `None` at rest.
    pub(super) last: Option<Instant>,
    pub(super) open: Option<Open>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Open {
    pub(super) probe_from: Instant,
    /// A request is probing; until then nobody else does.
    pub(super) claimed_until: Option<Instant>,
}

impl Entry {
    pub(super) fn new(partition: PartitionKeyRef<'_>, region: &Region) -> Self {
        Entry {
            container: partition.container.into(),
            range: partition.range.into(),
            region: region.clone(),
            read: Side::default(),
            write: Side::default(),
        }
    }

    pub(super) fn key(&self) -> (&str, &str) {
        (&self.container, &self.range)
    }

    pub(super) fn side(&self, usage: Usage) -> &Side {
        match usage {
            Usage::Read => &self.read,
            Usage::Write => &self.write,
        }
    }

    pub(super) fn side_mut(&mut self, usage: Usage) -> &mut Side {
        match usage {
            Usage::Read => &mut self.read,
            Usage::Write => &mut self.write,
        }
    }

    pub(super) fn is_at_rest(&self) -> bool {
        self.read == Side::default() && self.write == Side::default()
    }

    pub(super) fn is_open(&self) -> bool {
        self.read.open.is_some() || self.write.open.is_some()
    }

    pub(super) fn last(&self) -> Option<Instant> {
        self.read.last.max(self.write.last)
    }
}

impl Side {
    pub(super) fn gate(&self, now: Instant) -> Gate {
        self.open.map_or(Gate::Closed, |open| open.gate(now))
    }

    /// The counters to go on from: what is long past is not consecutive.
    pub(super) fn counting_from(self, now: Instant, reset: Duration) -> Side {
        let is_recent = self.last.is_some_and(|last| now.saturating_duration_since(last) < reset);
        if is_recent { self } else { Side::default() }
    }

    pub(super) fn is_stale(&self, reset: Duration, now: Instant) -> bool {
        match (self.open, self.last) {
            (Some(open), _) => {
                now.saturating_duration_since(open.probe_from) >= reset * STALE_AFTER_RESETS
                    && open.gate(now) == Gate::ProbeDue
            }
            (None, Some(last)) => now.saturating_duration_since(last) >= reset,
            (None, None) => false,
        }
    }
}

impl Open {
    pub(super) fn gate(&self, now: Instant) -> Gate {
        let is_claimed = self.claimed_until.is_some_and(|until| now < until);
        if now < self.probe_from || is_claimed { Gate::Open } else { Gate::ProbeDue }
    }

    /// The same with one request probing.
    pub(super) fn claimed(self, now: Instant) -> Open {
        Open { claimed_until: Some(now + CLAIM_MAX), ..self }
    }

    /// Whether an outcome now is that of a probe, claimed or not.
    pub(super) fn is_probed(&self, now: Instant) -> bool {
        now >= self.probe_from
    }
}
