//! Picks the region for an attempt, from one snapshot: by the order of
//! preference, exclusions, unavailable endpoints, circuit breakers and the
//! regions tried before.
//!
//! [`resolve`] always finds a route: regions that are known to fail rank last, and
//! are used when no other region is left. It allocates nothing.

use std::sync::Arc;

use tokio::time::Instant;

use super::account::{Account, Site, Usage};
use super::circuit_breaker::{BreakerKey, Breakers, Gate, Partition};
use crate::region::Region;

/// The region that the verdict on one attempt asks for in the next attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RouteTo {
    /// The region just tried.
    Same,
    /// The next region that was not tried yet.
    Next,
    /// The region that takes writes, because it has seen every write.
    WriteRegion,
}

/// The region chosen for an attempt.
#[derive(Debug, Clone)]
pub(crate) struct Route {
    pub(crate) site: Arc<Site>,
    /// The number of regions that the operation may use, this one included; at
    /// least 1.
    pub(crate) candidates: u32,
    /// The attempt is a probe: it finds out whether an open breaker may close.
    pub(crate) is_probe: bool,
}

/// The inputs of [`resolve`] and [`alternate`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct RouteRequest<'a> {
    pub(crate) usage: Usage,
    pub(crate) account: &'a Account,
    pub(crate) breakers: &'a Breakers,
    /// The operation's partition, when there is exactly one.
    pub(crate) partition: Option<&'a Partition>,
    pub(crate) excluded: &'a [Region],
    /// Regions of earlier attempts of this operation.
    pub(crate) tried: &'a [Region],
    /// The region that the verdict asks for; `None` for the first attempt.
    pub(crate) route_to: Option<RouteTo>,
    /// The region of the last attempt.
    pub(crate) last: Option<&'a Region>,
    pub(crate) now: Instant,
}

/// Picks the region of an attempt.
pub(crate) fn resolve(request: &RouteRequest<'_>) -> Route {
    let candidates = request.candidates().count().max(1) as u32;
    let named = match request.route_to {
        Some(RouteTo::Same) => request.last_site(),
        Some(RouteTo::WriteRegion) => request.write_site(),
        Some(RouteTo::Next) | None => None,
    };
    if let Some(site) = named {
        return Route { site: Arc::clone(site), candidates, is_probe: false };
    }
    let best = request.candidates().enumerate().min_by_key(|(index, site)| request.rank(*index, site));
    let site = best.map_or(&request.account.hub, |(_, site)| site);
    Route { site: Arc::clone(site), candidates, is_probe: request.gate(site) == Gate::ProbeDue }
}

/// The second region for a hedge: one that the operation may use and has not
/// tried, that is available and has no open breaker.
pub(crate) fn alternate(request: &RouteRequest<'_>, primary: &Route) -> Option<Route> {
    let mut others = request.candidates().filter(|site| {
        site.region != primary.site.region
            && site.endpoint != primary.site.endpoint
            && !request.is_tried(site)
            && request.is_available(site)
            && request.gate(site) == Gate::Closed
    });
    let site = Arc::clone(others.next()?);
    Some(Route { site, candidates: primary.candidates, is_probe: false })
}

/// The rank of a region: smaller is better. Regions not tried yet come first; then
/// regions without a known failure; then the order of preference. Once all were tried, the order
/// continues after the last one tried.
type Rank = (bool, bool, bool, usize);

impl<'a> RouteRequest<'a> {
    /// The regions to choose from, in order of preference.
    fn candidates(&self) -> impl Iterator<Item = &'a Arc<Site>> + use<'a> {
        let account = self.account;
        let (first, rest): (&[Arc<Site>], &[Arc<Site>]) = match self.usage {
            Usage::Read => (&account.reads, &[]),
            // A single write region may have moved before the account document
            // says so: the other regions are asked one after the other.
            Usage::Write if self.is_looking_for_write_region() => (&account.writes, &account.reads),
            Usage::Write => (&account.writes, &[]),
        };
        let excluded = if self.is_exclusion_void() { &[] } else { self.excluded };
        let further = rest.iter().filter(|site| first.iter().all(|other| other.region != site.region));
        first.iter().chain(further).filter(move |site| !excluded.contains(&site.region))
    }

    fn is_looking_for_write_region(&self) -> bool {
        !self.account.is_multi_write && self.route_to == Some(RouteTo::Next)
    }

    /// Whether the exclusions do not apply: a single write region cannot be
    /// excluded.
    fn is_exclusion_void(&self) -> bool {
        let is_excluded = |site: &Arc<Site>| self.excluded.contains(&site.region);
        self.usage == Usage::Write
            && !self.account.is_multi_write
            && self.account.writes.iter().all(is_excluded)
    }

    fn last_site(&self) -> Option<&'a Arc<Site>> {
        let (account, last) = (self.account, self.last?);
        let known = account.reads.iter().chain(&account.writes).chain(std::iter::once(&account.hub));
        self.candidates().chain(known).find(|site| site.region == *last)
    }

    /// The write region, if it may be used and is available. Once all other regions
    /// were tried it is used even if it is marked unavailable, because no other
    /// region has all writes.
    fn write_site(&self) -> Option<&'a Arc<Site>> {
        let (account, excluded) = (self.account, self.excluded);
        let mut writes = account.writes.iter().filter(|site| !excluded.contains(&site.region));
        let reachable = writes.clone().find(|site| self.is_available(site));
        reachable.or_else(|| writes.next().filter(|_| self.candidates().all(|site| self.is_tried(site))))
    }

    fn rank(&self, index: usize, site: &Arc<Site>) -> Rank {
        let is_tried = self.is_tried(site);
        let is_bad = !self.is_available(site) || self.gate(site) == Gate::Open;
        // Only regions that were tried are ordered around the last one.
        let last_index = || self.candidates().position(|site| Some(&site.region) == self.last);
        let is_before_next = is_tried && last_index().is_some_and(|last| index <= last);
        (is_tried, is_bad, is_before_next, index)
    }

    fn is_tried(&self, site: &Site) -> bool {
        self.tried.contains(&site.region) || self.last == Some(&site.region)
    }

    fn is_available(&self, site: &Site) -> bool {
        self.account.is_available(&site.endpoint, self.usage)
    }

    fn gate(&self, site: &Site) -> Gate {
        match self.partition {
            Some(partition) if !self.breakers.is_empty() => {
                let key = BreakerKey { partition, region: &site.region, usage: self.usage };
                self.breakers.gate(key, self.now)
            }
            _ => Gate::Closed,
        }
    }
}

#[cfg(test)]
mod tests;
