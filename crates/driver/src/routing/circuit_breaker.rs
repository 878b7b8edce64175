//! Circuit breakers: after consecutive failures or lost hedges, a breaker takes one
//! physical partition of one container in one region out of use. Some seconds later a
//! single request may probe the partition.
//!
//! [`Breakers`] is a snapshot. It has breakers only for partitions with failures or
//! lost hedges, so it is empty while everything works. A method that changes the breakers
//! returns the next snapshot, or `None` when nothing changes. In an outage, most failures
//! change nothing, because the breaker is open already. Reads and writes of a
//! partition are counted separately, because a region may refuse writes and serve reads.
//! The key contains the container's `_rid`, because ranges of different containers have
//! the same ids.
//!
//! What always holds: breakers are sorted by partition, there are at most
//! [`BREAKERS_MAX`], and each has counted a failure or a lost hedge.

mod breaker;

use std::sync::Arc;
use std::time::Duration;

use perihelion_wire::transport::Incident;
use tokio::time::Instant;

use self::breaker::{Breaker, OpenState, UsageState};
use super::account::Usage;
use crate::options::CircuitBreakerOptions;
use crate::region::Region;

/// The most breakers in one snapshot. Each change copies the snapshot, one pointer
/// for each breaker; copying this many takes about ten microseconds.
const BREAKERS_MAX: usize = 2048;

/// A physical partition of a container.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Partition {
    /// The container's `_rid`.
    pub(crate) container: Arc<str>,
    /// The range's id.
    pub(crate) range: Arc<str>,
}

/// The key of the counters: reads or writes of one partition in one region.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BreakerKey<'a> {
    pub(crate) partition: &'a Partition,
    pub(crate) region: &'a Region,
    pub(crate) usage: Usage,
}

/// The state of a breaker. As in an electric circuit, an open breaker stops the requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BreakerState {
    /// The breaker is closed: requests may pass.
    Closed,
    /// The breaker is open: requests should go to another region.
    Open,
    /// The breaker is open, but one request may pass as a probe.
    ProbeDue,
}

/// All circuit breakers at one moment.
#[derive(Debug, Clone)]
pub(crate) struct Breakers {
    options: Arc<CircuitBreakerOptions>,
    breakers: Vec<Arc<Breaker>>,
}

impl Breakers {
    /// A snapshot without breakers.
    pub(crate) fn new(options: CircuitBreakerOptions) -> Self {
        Breakers { options: Arc::new(options), breakers: Vec::new() }
    }

    /// Whether nothing is counted for any partition.
    pub(crate) fn is_empty(&self) -> bool {
        self.breakers.is_empty()
    }

    /// Whether anything is counted for this partition in this region, so that a
    /// success must be reported.
    pub(crate) fn has_breaker(&self, partition: &Partition, region: &Region) -> bool {
        self.find(partition, region).is_some()
    }

    /// The state of the breaker of these reads or writes.
    pub(crate) fn breaker_state(&self, key: BreakerKey<'_>, now: Instant) -> BreakerState {
        self.state(key).breaker_state(now)
    }

    /// Counts a failed attempt that began at `began_at` and for which the partition may be at fault.
    /// `sample` (0 to 1) spreads the probes of partitions that failed at the same time. All failures
    /// of one incident, such as the end of a connection with many requests, count once.
    pub(crate) fn failed_in(
        &self,
        key: BreakerKey<'_>,
        incident: Option<Incident>,
        (began_at, now): (Instant, Instant),
        sample: f64,
    ) -> Option<Breakers> {
        if incident.is_some() && self.state(key).last_incident == incident {
            return None;
        }
        let failures_max = match key.usage {
            Usage::Read => self.options.read_failures,
            Usage::Write => self.options.write_failures,
        };
        self.count_event(key, (began_at, now), sample, |state| {
            state.last_incident = incident.or(state.last_incident);
            increment(&mut state.failures) >= failures_max
        })
    }

    /// Counts an attempt that fails at once and belongs to no incident.
    #[cfg(test)]
    pub(crate) fn failed(&self, key: BreakerKey<'_>, now: Instant, sample: f64) -> Option<Breakers> {
        self.failed_in(key, None, (now, now), sample)
    }

    /// Counts a hedge of this region that began at `began_at` and was lost: another region was asked
    /// later, and its leg won. `sample` (0 to 1) spreads the probes of partitions whose breakers
    /// opened at the same time.
    pub(crate) fn hedge_lost(
        &self,
        key: BreakerKey<'_>,
        (began_at, now): (Instant, Instant),
        sample: f64,
    ) -> Option<Breakers> {
        let losses_max = self.options.hedge_losses;
        self.count_event(key, (began_at, now), sample, |state| {
            increment(&mut state.hedge_losses) >= losses_max
        })
    }

    /// Records that this region won a hedge, though another region was asked too. The count of
    /// lost hedges starts again; the count of failures does not change.
    pub(crate) fn hedge_won(&self, key: BreakerKey<'_>) -> Option<Breakers> {
        let state = self.state(key);
        let is_counting = state.failures > 0 || state.open.is_some();
        let next = UsageState {
            hedge_losses: 0,
            last_event_at: state.last_event_at.filter(|_| is_counting),
            ..state
        };
        self.with_state(key, next)
    }

    /// Records the success of an attempt that began at `began_at`: the counters start again, and an
    /// open breaker closes. An attempt that began before the breaker opened, or before the last
    /// probe failed, does not close the breaker: its answer may be late because the region is slow,
    /// and does not show whether the region works now.
    pub(crate) fn succeeded(&self, key: BreakerKey<'_>, began_at: Instant) -> Option<Breakers> {
        let state = self.state(key);
        if state.open.is_some() && !state.is_after_last_event(began_at) {
            return None;
        }
        self.with_state(key, UsageState::default())
    }

    /// Claims the probe. `None` when another request has claimed it, or when no
    /// probe is due.
    pub(crate) fn claim_probe(&self, key: BreakerKey<'_>, now: Instant) -> Option<Breakers> {
        let state = self.state(key);
        let open = state.open.filter(|open| open.breaker_state(now) == BreakerState::ProbeDue)?;
        self.with_state(key, UsageState { open: Some(open.claimed(now)), ..state })
    }

    /// Removes counts that are too old, and open breakers of partitions that no longer
    /// get requests, such as partitions that were split or deleted.
    pub(crate) fn remove_stale(&self, now: Instant) -> Option<Breakers> {
        let is_stale = |state: &UsageState| state.is_stale(self.options.counter_reset, now);
        if !self.breakers.iter().any(|breaker| is_stale(&breaker.read) || is_stale(&breaker.write)) {
            return None;
        }
        let kept = |state: &UsageState| if is_stale(state) { UsageState::default() } else { *state };
        let breakers = self.breakers.iter().map(|breaker| {
            let (read, write) = (kept(&breaker.read), kept(&breaker.write));
            Arc::new(Breaker { read, write, ..Breaker::clone(breaker) })
        });
        let breakers = breakers.filter(|breaker| !breaker.has_no_counts()).collect();
        Some(Breakers { options: Arc::clone(&self.options), breakers })
    }
}

impl Breakers {
    /// Counts a failure or a lost hedge with `count`, which returns whether the limit
    /// is reached and the breaker opens. An open breaker counts nothing. A failed probe
    /// postpones the next probe. An attempt that began before the breaker opened, or before the last
    /// probe failed, is not a probe, however late it fails.
    fn count_event(
        &self,
        key: BreakerKey<'_>,
        (began_at, now): (Instant, Instant),
        sample: f64,
        count: impl Fn(&mut UsageState) -> bool,
    ) -> Option<Breakers> {
        if !self.options.enabled {
            return None;
        }
        let mut state = self.state(key);
        let opened = OpenState { probe_from: now + self.probe_delay(sample), claimed_until: None };
        match state.open {
            Some(open) if !open.is_probe_outcome(now) || !state.is_after_last_event(began_at) => return None,
            Some(_) => state = UsageState { open: Some(opened), last_event_at: Some(now), ..state },
            None => {
                state = state.reset_unless_recent(now, self.options.counter_reset);
                state.last_event_at = Some(now);
                state.open = count(&mut state).then_some(opened);
            }
        }
        self.with_state(key, state)
    }

    /// The time until the next probe: `probe_after`, plus up to half of it as jitter.
    /// `sample` is from 0 to 1.
    fn probe_delay(&self, sample: f64) -> Duration {
        self.options.probe_after + self.options.probe_after.mul_f64(sample.clamp(0.0, 1.0) / 2.0)
    }

    fn find(&self, partition: &Partition, region: &Region) -> Option<&Arc<Breaker>> {
        let from = self.breakers.partition_point(|breaker| breaker.partition < *partition);
        let mut same = self.breakers[from..].iter().take_while(|breaker| breaker.partition == *partition);
        same.find(|breaker| breaker.region == *region)
    }

    /// The state for this key; the default state when there is no breaker.
    fn state(&self, key: BreakerKey<'_>) -> UsageState {
        self.find(key.partition, key.region)
            .map_or(UsageState::default(), |breaker| *breaker.state(key.usage))
    }

    /// The next snapshot, with this state for this key. A breaker without counts is
    /// removed.
    fn with_state(&self, key: BreakerKey<'_>, state: UsageState) -> Option<Breakers> {
        if self.state(key) == state {
            return None;
        }
        let mut next = self.clone();
        let mut breaker = match self.find(key.partition, key.region) {
            Some(breaker) => Breaker::clone(breaker),
            None => Breaker::new(key.partition, key.region),
        };
        *breaker.state_mut(key.usage) = state;
        next.breakers
            .retain(|other| !(other.partition == breaker.partition && other.region == breaker.region));
        if !breaker.has_no_counts() {
            next.make_room();
            let index = next.breakers.partition_point(|other| other.partition < breaker.partition);
            next.breakers.insert(index, Arc::new(breaker));
        }
        Some(next)
    }

    /// When the snapshot is full, removes the oldest closed breaker, or the oldest open
    /// breaker if none is closed.
    fn make_room(&mut self) {
        if self.breakers.len() < BREAKERS_MAX {
            return;
        }
        let oldest = self
            .breakers
            .iter()
            .enumerate()
            .min_by_key(|(_, breaker)| (breaker.is_open(), breaker.last_event_at()));
        if let Some((index, _)) = oldest {
            self.breakers.remove(index);
        }
    }
}

/// Counts one more, and returns the count.
fn increment(count: &mut u32) -> u32 {
    *count = count.saturating_add(1);
    *count
}

#[cfg(test)]
mod tests;
