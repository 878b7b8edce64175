//! Circuit breakers: one physical partition of one container in one region is
//! taken out of use after consecutive failures, and tried again by a single
//! request some seconds later.
//!
//! [`Breakers`] is a snapshot holding only what is not in order, so it is empty
//! while all is well and a look at it costs nothing. A transition returns the
//! next snapshot, or `None` when nothing changes and nothing need be published:
//! in an outage most failures find their breaker open already. Reads and writes
//! of a partition are counted apart, because a region may refuse one and serve
//! the other. The key has the container's `_rid` in it: every container has a
//! range "0".
//!
//! What always holds: entries are sorted by container and range, there are at
//! most [`ENTRIES_MAX`], and none is at rest on both sides.

mod entry;

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use self::entry::{Entry, Open, Side};
use super::account::Usage;
use crate::options::CircuitBreakerOptions;
use crate::region::Region;

/// Partitions in regions that are kept track of. A snapshot is copied on each
/// change, entry by entry as pointers; this many take some ten microseconds.
const ENTRIES_MAX: usize = 2048;

/// A physical partition of a container.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PartitionKeyRef<'a> {
    /// The container's `_rid`.
    pub(crate) container: &'a str,
    /// The range's id.
    pub(crate) range: &'a str,
}

/// Whether requests may pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Gate {
    /// They may.
    Closed,
    /// They should not.
    Open,
    /// One may, to find out.
    ProbeDue,
}

/// All circuit breakers at one moment.
#[derive(Debug, Clone)]
pub(crate) struct Breakers {
    options: Arc<CircuitBreakerOptions>,
    entries: Vec<Arc<Entry>>,
}

impl Breakers {
    /// No breaker is open, nothing is counted.
    pub(crate) fn new(options: CircuitBreakerOptions) -> Self {
        Breakers { options: Arc::new(options), entries: Vec::new() }
    }

    /// Whether all is well.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether anything is counted against this partition in this region, so
    /// that a success is worth reporting.
    pub(crate) fn has(&self, container: &str, range: &str, region: &Region) -> bool {
        self.find(PartitionKeyRef { container, range }, region).is_some()
    }

    /// Whether requests may pass.
    pub(crate) fn gate(
        &self,
        partition: &PartitionKeyRef<'_>,
        region: &Region,
        usage: Usage,
        now: Instant,
    ) -> Gate {
        match self.find(*partition, region) {
            Some(entry) => entry.side(usage).gate(now),
            None => Gate::Closed,
        }
    }

    /// A request failed in a way that speaks against the partition. `sample`
    /// (0 to 1) spreads the probes of partitions that failed together.
    pub(crate) fn failed(
        &self,
        partition: &PartitionKeyRef<'_>,
        region: &Region,
        usage: Usage,
        now: Instant,
        sample: f64,
    ) -> Option<Breakers> {
        let limit = match usage {
            Usage::Read => self.options.read_failures,
            Usage::Write => self.options.write_failures,
        };
        let count = |side: &mut Side| {
            side.failures = side.failures.saturating_add(1);
            side.failures >= limit
        };
        self.counted(partition, region, usage, now, sample, count)
    }

    /// Another region answered first though it was asked later.
    pub(crate) fn hedge_lost(
        &self,
        partition: &PartitionKeyRef<'_>,
        region: &Region,
        usage: Usage,
        now: Instant,
        sample: f64,
    ) -> Option<Breakers> {
        let limit = self.options.hedge_losses;
        let count = |side: &mut Side| {
            side.hedge_losses = side.hedge_losses.saturating_add(1);
            side.hedge_losses >= limit
        };
        self.counted(partition, region, usage, now, sample, count)
    }

    /// This region answered first though another was asked too. Says nothing
    /// about failures.
    pub(crate) fn hedge_won(
        &self,
        partition: &PartitionKeyRef<'_>,
        region: &Region,
        usage: Usage,
    ) -> Option<Breakers> {
        let side = self.find(*partition, region)?.side(usage);
        let is_counting = side.failures > 0 || side.open.is_some();
        let next = Side { hedge_losses: 0, last: side.last.filter(|_| is_counting), ..*side };
        self.with_side(partition, region, usage, next)
    }

    /// A request succeeded: counters start again, and an open breaker closes.
    pub(crate) fn succeeded(
        &self,
        partition: &PartitionKeyRef<'_>,
        region: &Region,
        usage: Usage,
    ) -> Option<Breakers> {
        self.with_side(partition, region, usage, Side::default())
    }

    /// Takes the right to probe; `None` when another request has it, or there
    /// is nothing to probe.
    pub(crate) fn claim_probe(
        &self,
        partition: &PartitionKeyRef<'_>,
        region: &Region,
        usage: Usage,
        now: Instant,
    ) -> Option<Breakers> {
        let side = self.find(*partition, region)?.side(usage);
        let open = side.open.filter(|open| open.gate(now) == Gate::ProbeDue)?;
        self.with_side(partition, region, usage, Side { open: Some(open.claimed(now)), ..*side })
    }

    /// Forgets what is too old to count: failures long past, and open breakers
    /// of partitions that nobody has asked for since (deleted, split).
    pub(crate) fn sweep(&self, now: Instant) -> Option<Breakers> {
        let is_stale = |side: &Side| side.is_stale(self.options.counter_reset, now);
        if !self.entries.iter().any(|entry| is_stale(&entry.read) || is_stale(&entry.write)) {
            return None;
        }
        let kept = |side: &Side| if is_stale(side) { Side::default() } else { *side };
        let entries = self.entries.iter().map(|entry| {
            Arc::new(Entry { read: kept(&entry.read), write: kept(&entry.write), ..Entry::clone(entry) })
        });
        let entries = entries.filter(|entry| !entry.is_at_rest()).collect();
        Some(Breakers { options: Arc::clone(&self.options), entries })
    }
}

impl Breakers {
    /// Counts an event against a partition with `count`, which says whether the
    /// limit is reached. An open breaker counts nothing more; only a probe that
    /// failed puts the next one off.
    fn counted(
        &self,
        partition: &PartitionKeyRef<'_>,
        region: &Region,
        usage: Usage,
        now: Instant,
        sample: f64,
        count: impl Fn(&mut Side) -> bool,
    ) -> Option<Breakers> {
        if !self.options.enabled {
            return None;
        }
        let mut side = self.find(*partition, region).map_or(Side::default(), |entry| *entry.side(usage));
        let opened = Open { probe_from: now + self.pause(sample), claimed_until: None };
        match side.open {
            Some(open) if !open.is_probed(now) => return None,
            Some(_) => side = Side { open: Some(opened), last: Some(now), ..side },
            None => {
                side = side.counting_from(now, self.options.counter_reset);
                side.last = Some(now);
                side.open = count(&mut side).then_some(opened);
            }
        }
        self.with_side(partition, region, usage, side)
    }

    /// How long a breaker stays open: up to half as long again by `sample`.
    fn pause(&self, sample: f64) -> Duration {
        self.options.probe_after + self.options.probe_after.mul_f64(sample.clamp(0.0, 1.0) / 2.0)
    }

    fn find(&self, partition: PartitionKeyRef<'_>, region: &Region) -> Option<&Arc<Entry>> {
        let from = self.entries.partition_point(|entry| entry.key() < key(partition));
        let mut same = self.entries[from..].iter().take_while(|entry| entry.key() == key(partition));
        same.find(|entry| entry.region == *region)
    }

    /// The snapshot with one side replaced, made, or removed when at rest.
    fn with_side(
        &self,
        partition: &PartitionKeyRef<'_>,
        region: &Region,
        usage: Usage,
        side: Side,
    ) -> Option<Breakers> {
        let found = self.find(*partition, region);
        if found.map_or(Side::default(), |entry| *entry.side(usage)) == side {
            return None;
        }
        let mut next = self.clone();
        let mut entry = match found {
            Some(entry) => Entry::clone(entry),
            None => Entry::new(*partition, region),
        };
        *entry.side_mut(usage) = side;
        next.entries.retain(|other| !(other.key() == entry.key() && other.region == entry.region));
        if !entry.is_at_rest() {
            next.make_room();
            let place = next.entries.partition_point(|other| other.key() < entry.key());
            next.entries.insert(place, Arc::new(entry));
        }
        Some(next)
    }

    /// When full, the oldest entry goes: one that is closed, if there is one.
    fn make_room(&mut self) {
        if self.entries.len() < ENTRIES_MAX {
            return;
        }
        let oldest = self.entries.iter().enumerate().min_by_key(|(_, entry)| (entry.is_open(), entry.last()));
        if let Some((place, _)) = oldest {
            self.entries.remove(place);
        }
    }
}

fn key(partition: PartitionKeyRef<'_>) -> (&str, &str) {
    (partition.container, partition.range)
}

#[cfg(test)]
mod tests;
