//! Picks the region for an attempt, from one snapshot: by the order of
//! preference, exclusions, unavailable endpoints, circuit breakers and the
//! regions tried before.
//!
//! [`resolve`] always finds a route, and allocates nothing. Among the regions that were
//! not tried yet, those that are known to fail come last. If the operation may use no
//! region, the route is the configured endpoint.

use std::sync::Arc;

use tokio::time::Instant;

use super::account::{Account, Location, Usage};
use super::circuit_breaker::{BreakerKey, BreakerState, Breakers, Partition};
use crate::region::Region;

/// The region that the verdict on one attempt asks for in the next attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RouteTo {
    /// The region just tried.
    Same,
    /// The best region that was not tried yet. Once all regions were tried, the next region
    /// in order.
    Next,
    /// A region that takes writes. If only one region takes writes, it has seen every
    /// write.
    WriteRegion,
    /// The same region as for [`RouteTo::Next`]. The attempt is a read. Only the region that takes
    /// the partition's writes may answer it.
    NextAsWriteRegion,
}

/// The region chosen for an attempt.
#[derive(Debug, Clone)]
pub(crate) struct Route {
    pub(crate) location: Arc<Location>,
    /// The number of regions that the operation may use, this one included; at
    /// least 1.
    pub(crate) candidates: u32,
    /// Whether the attempt is a probe, which finds out if an open breaker may close.
    pub(crate) is_probe: bool,
}

/// The inputs of [`resolve`] and [`alternate`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct RouteRequest<'a> {
    pub(crate) usage: Usage,
    /// Whether the operation is on documents, and not on metadata.
    pub(crate) is_data_plane: bool,
    pub(crate) account: &'a Account,
    pub(crate) breakers: &'a Breakers,
    /// The operation's partition, when there is exactly one.
    pub(crate) partition: Option<&'a Partition>,
    /// Whether the writes of a partition may move to another region, one partition at a time.
    /// Only for operations on documents, in accounts with one write region.
    pub(crate) has_partition_failover: bool,
    /// The region to which the writes of the partition have moved; `None` if they have not.
    pub(crate) moved_to: Option<&'a Region>,
    pub(crate) excluded_regions: &'a [Region],
    /// The only region that may answer; `None` when any region may.
    pub(crate) only_region: Option<&'a Region>,
    /// Regions of earlier attempts of this operation.
    pub(crate) tried_regions: &'a [Region],
    /// The region that the last verdict asks for; `None` for most first attempts, which
    /// go to the best region.
    pub(crate) route_to: Option<RouteTo>,
    /// The region of the last attempt; `None` for the first attempt.
    pub(crate) last_region: Option<&'a Region>,
    pub(crate) now: Instant,
}

/// Picks the region of an attempt.
pub(crate) fn resolve(request: &RouteRequest<'_>) -> Route {
    let candidates = request.candidates().count().max(1) as u32;
    let requested = match request.route_to {
        Some(RouteTo::Same) => request.last_location(),
        Some(RouteTo::WriteRegion) => request.write_location(),
        Some(RouteTo::Next | RouteTo::NextAsWriteRegion) | None => None,
    };
    if let Some(location) = requested {
        return Route { location: Arc::clone(location), candidates, is_probe: false };
    }
    let best =
        request.candidates().enumerate().min_by_key(|(index, location)| request.rank(*index, location));
    let location = best.map_or(&request.account.configured_location, |(_, location)| location);
    Route {
        location: Arc::clone(location),
        candidates,
        is_probe: request.breaker_state(location) == BreakerState::ProbeDue,
    }
}

/// The second region for a hedge. The operation may use this region and has not tried it,
/// and the region is available and has no open breaker. `None` when there is no such
/// region.
pub(crate) fn alternate(request: &RouteRequest<'_>, primary: &Route) -> Option<Route> {
    let mut others = request.candidates().filter(|location| {
        location.region != primary.location.region
            && location.endpoint != primary.location.endpoint
            && !request.is_tried(location)
            && request.is_available(location)
            && request.breaker_state(location) == BreakerState::Closed
    });
    let location = Arc::clone(others.next()?);
    Some(Route { location, candidates: primary.candidates, is_probe: false })
}

/// The rank of a region: the region with the smallest rank is chosen. Regions that were
/// not tried yet come first. Among equals, regions without a known failure come first,
/// then the order of preference decides. Once all regions were tried, the order begins
/// after the region that was tried last.
type Rank = (bool, bool, bool, usize);

impl<'a> RouteRequest<'a> {
    /// The regions to choose from, in order of preference. The region to which the partition
    /// has moved comes first for its writes. For its reads, that region and the account's
    /// write region change places: the write region may be behind.
    fn candidates(&self) -> impl Iterator<Item = &'a Arc<Location>> + use<'a> {
        let account = self.account;
        let (first, rest): (&[Arc<Location>], &[Arc<Location>]) = match self.usage {
            Usage::Read => (&account.read_locations, &[]),
            // The only write region may have moved before the account document says
            // so, or the partition alone may have moved. In both cases the other regions are
            // asked one after the other.
            Usage::Write if self.is_looking_for_write_region() || self.has_partition_failover => {
                (self.write_locations(), &account.read_locations)
            }
            Usage::Write => (self.write_locations(), &[]),
        };
        let further =
            rest.iter().filter(|location| first.iter().all(|other| other.region != location.region));
        let (usage, moved) = (self.usage, self.moved());
        let moved_location = moved.filter(|_| usage == Usage::Write).map(|(_, to)| to);
        let others = first.iter().chain(further);
        let others =
            others.filter(move |location| moved_location.is_none_or(|other| other.region != location.region));
        let ordered = moved_location.into_iter().chain(others).map(move |location| match moved {
            Some((from, to)) if usage == Usage::Read && location.region == from.region => to,
            Some((from, to)) if usage == Usage::Read && location.region == to.region => from,
            Some(_) | None => location,
        });
        let excluded = if self.ignores_exclusions() { &[] } else { self.excluded_regions };
        // The account's write region, and the region that a partition has moved to, cannot be
        // excluded: no other region takes the write.
        let required = first.first().filter(|_| usage == Usage::Write && self.has_partition_failover);
        let is_required = move |location: &Location| {
            [required, moved_location].into_iter().flatten().any(|other| other.region == location.region)
        };
        let only_region = self.only_region;
        ordered.filter(move |location| {
            (!excluded.contains(&location.region) || is_required(location))
                && only_region.is_none_or(|only| *only == location.region)
        })
    }

    /// The account's write region and the region to which the partition has moved.
    fn moved(&self) -> Option<(&'a Arc<Location>, &'a Arc<Location>)> {
        let (account, to) = (self.account, self.moved_to?);
        let from = account.write_locations.first()?;
        let to = account.read_locations.iter().find(|location| location.region == *to)?;
        (from.region != to.region).then_some((from, to))
    }

    /// The locations that take the operation, if it is a write.
    fn write_locations(&self) -> &'a [Arc<Location>] {
        match self.account.only_write_location(self.is_data_plane) {
            Some(only) if self.account.is_multi_write => std::slice::from_ref(only),
            Some(_) | None => &self.account.write_locations,
        }
    }

    /// Whether only one location takes the operation, if it is a write.
    fn has_one_writer(&self) -> bool {
        self.account.only_write_location(self.is_data_plane).is_some()
    }

    fn is_looking_for_write_region(&self) -> bool {
        self.has_one_writer() && self.route_to == Some(RouteTo::Next)
    }

    /// Whether exclusions are ignored. A write ignores them when the only write region is
    /// excluded, because no other region could take the write. Where partitions fail over one
    /// by one, exclusions count, except that the write region itself cannot be excluded (see
    /// `candidates`).
    fn ignores_exclusions(&self) -> bool {
        let is_excluded = |location: &Arc<Location>| self.excluded_regions.contains(&location.region);
        self.usage == Usage::Write
            && self.has_one_writer()
            && !self.has_partition_failover
            && self.write_locations().iter().all(is_excluded)
    }

    /// The location of the last attempt, if the account still has that region.
    fn last_location(&self) -> Option<&'a Arc<Location>> {
        let (account, last) = (self.account, self.last_region?);
        let known = account
            .read_locations
            .iter()
            .chain(&account.write_locations)
            .chain(std::iter::once(&account.configured_location));
        self.candidates().chain(known).find(|location| location.region == *last)
    }

    /// The first write region that is not excluded, is available and has no open breaker. If
    /// the partition has moved, the region to which it has moved comes first.
    ///
    /// If there is no such region, the order of preference decides: a write region that is down is
    /// then asked once, after the other regions. Only the read of a witness asks for a write region
    /// in its first attempt. That attempt ignores the breaker, because only a write region proves
    /// that a write was not applied.
    fn write_location(&self) -> Option<&'a Arc<Location>> {
        let excluded = self.excluded_regions;
        let moved_location = self.moved().map(|(_, to)| to);
        moved_location.into_iter().chain(self.write_locations()).find(|location| {
            !excluded.contains(&location.region)
                && self.is_available(location)
                && (self.last_region.is_none() || self.breaker_state(location) != BreakerState::Open)
        })
    }

    fn rank(&self, index: usize, location: &Arc<Location>) -> Rank {
        let is_tried = self.is_tried(location);
        // A write that looks for the region of its partition ignores the breakers of regions that
        // it has tried: it asks them again in turn.
        let is_looking = is_tried && self.has_partition_failover && self.usage == Usage::Write;
        let is_failing = !self.is_available(location)
            || (!is_looking && self.breaker_state(location) == BreakerState::Open);
        // Regions that were tried are tried again in a circle. The circle continues after the
        // region of the last attempt.
        let last_index = || self.candidates().position(|location| Some(&location.region) == self.last_region);
        let is_up_to_last = is_tried && last_index().is_some_and(|last| index <= last);
        (is_tried, is_failing, is_up_to_last, index)
    }

    fn is_tried(&self, location: &Location) -> bool {
        self.tried_regions.contains(&location.region) || self.last_region == Some(&location.region)
    }

    fn is_available(&self, location: &Location) -> bool {
        self.account.is_available(&location.endpoint, self.usage)
    }

    fn breaker_state(&self, location: &Location) -> BreakerState {
        match self.partition {
            Some(partition) if !self.breakers.is_empty() => {
                let key = BreakerKey { partition, region: &location.region, usage: self.usage };
                self.breakers.breaker_state(key, self.now)
            }
            _ => BreakerState::Closed,
        }
    }
}

#[cfg(test)]
mod tests;
