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

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::account::Usage;
use crate::options::CircuitBreakerOptions;
use crate::region::Region;

/// Partitions in regions that are kept track of. A snapshot is copied on each
/// change, entry by entry as pointers; this many take some ten microseconds.
const ENTRIES_MAX: usize = 2048;

/// A probe whose outcome was never reported (its caller went away) counts as
/// lost after this long, and another request may try.
const CLAIM_MAX: Duration = Duration::from_secs(10);

/// A partition that nobody asks for is forgotten after this many times the
/// period after which counters are reset.
const STALE_AFTER_RESETS: u32 = 2;

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

/// One partition in one region.
#[derive(Debug, Clone)]
struct Entry {
    container: Arc<str>,
    range: Arc<str>,
    region: Region,
    read: Side,
    write: Side,
}

/// One usage of it.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Side {
    /// Failures since the last success.
    failures: u32,
    /// Hedges won by another region since this one last answered in time.
    hedge_losses: u32,
    /// When the last of either was counted; `None` at rest.
    last: Option<Instant>,
    open: Option<Open>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Open {
    probe_from: Instant,
    /// A request is probing; until then nobody else does.
    claimed_until: Option<Instant>,
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
        let open = Open { claimed_until: Some(now + CLAIM_MAX), ..open };
        self.with_side(partition, region, usage, Side { open: Some(open), ..*side })
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

impl Entry {
    fn new(partition: PartitionKeyRef<'_>, region: &Region) -> Self {
        Entry {
            container: partition.container.into(),
            range: partition.range.into(),
            region: region.clone(),
            read: Side::default(),
            write: Side::default(),
        }
    }

    fn key(&self) -> (&str, &str) {
        (&self.container, &self.range)
    }

    fn side(&self, usage: Usage) -> &Side {
        match usage {
            Usage::Read => &self.read,
            Usage::Write => &self.write,
        }
    }

    fn side_mut(&mut self, usage: Usage) -> &mut Side {
        match usage {
            Usage::Read => &mut self.read,
            Usage::Write => &mut self.write,
        }
    }

    fn is_at_rest(&self) -> bool {
        self.read == Side::default() && self.write == Side::default()
    }

    fn is_open(&self) -> bool {
        self.read.open.is_some() || self.write.open.is_some()
    }

    fn last(&self) -> Option<Instant> {
        self.read.last.max(self.write.last)
    }
}

impl Side {
    fn gate(&self, now: Instant) -> Gate {
        self.open.map_or(Gate::Closed, |open| open.gate(now))
    }

    /// The counters to go on from: what is long past is not consecutive.
    fn counting_from(self, now: Instant, reset: Duration) -> Side {
        let is_recent = self.last.is_some_and(|last| now.saturating_duration_since(last) < reset);
        if is_recent { self } else { Side::default() }
    }

    fn is_stale(&self, reset: Duration, now: Instant) -> bool {
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
    fn gate(&self, now: Instant) -> Gate {
        let is_claimed = self.claimed_until.is_some_and(|until| now < until);
        if now < self.probe_from || is_claimed { Gate::Open } else { Gate::ProbeDue }
    }

    /// Whether an outcome now is that of a probe, claimed or not.
    fn is_probed(&self, now: Instant) -> bool {
        now >= self.probe_from
    }
}

#[cfg(test)]
mod tests;
