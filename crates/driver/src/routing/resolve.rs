//! The stage that picks a region for an attempt: preferred order, exclusions,
//! unavailable endpoints, circuit breakers and what was tried before, in one
//! look at one snapshot.
//!
//! It never fails to route: what is known to be bad ranks behind what is not,
//! and is used when nothing else is left. It allocates nothing.

use std::sync::Arc;

use tokio::time::Instant;

use super::account::{Account, Site, Usage};
use super::circuit_breaker::{BreakerKey, Breakers, Gate, Partition};
use crate::region::Region;

/// Where the next attempt goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RouteTo {
    /// The region just tried.
    Same,
    /// The next region that was not tried yet.
    Next,
    /// The region that takes writes, because it has seen every write.
    WriteRegion,
}

/// Where an attempt goes.
#[derive(Debug, Clone)]
pub(crate) struct Route {
    pub(crate) site: Arc<Site>,
    /// Regions the operation may use, this one included; at least 1.
    pub(crate) candidates: u32,
    /// It goes there to find out whether an open breaker may close.
    pub(crate) is_probe: bool,
}

/// What the decision rests on.
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
    /// Where the judge wants the attempt; `None` for the first one.
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
    let best = request.candidates().enumerate().min_by_key(|(place, site)| request.rank(*place, site));
    let site = best.map_or(&request.account.hub, |(_, site)| site);
    Route { site: Arc::clone(site), candidates, is_probe: request.gate(site) == Gate::ProbeDue }
}

/// A second region to ask while the first has not answered: one that the
/// operation may use and has not tried, and that nothing speaks against.
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

/// Smaller is better. Regions not tried yet come before those that were; then
/// those that nothing speaks against; then the order of preference, which once
/// all were tried goes on after the last one tried.
type Rank = (bool, bool, bool, usize);

impl<'a> RouteRequest<'a> {
    /// The regions to choose from, in order of preference.
    fn candidates(&self) -> impl Iterator<Item = &'a Arc<Site>> + use<'a> {
        let account = self.account;
        let (first, rest): (&[Arc<Site>], &[Arc<Site>]) = match self.usage {
            Usage::Read => (&account.reads, &[]),
            // A single write region may have moved without the account
            // document saying so yet: the others are asked in turn.
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

    /// A single write region cannot be excluded: there is no other.
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

    /// The region that has seen every write, if it may be used and can be
    /// reached; and once all others were tried also if it is said that it
    /// cannot, because nobody else knows.
    fn write_site(&self) -> Option<&'a Arc<Site>> {
        let (account, excluded) = (self.account, self.excluded);
        let mut writes = account.writes.iter().filter(|site| !excluded.contains(&site.region));
        let reachable = writes.clone().find(|site| self.is_available(site));
        reachable.or_else(|| writes.next().filter(|_| self.candidates().all(|site| self.is_tried(site))))
    }

    fn rank(&self, place: usize, site: &Arc<Site>) -> Rank {
        let is_tried = self.is_tried(site);
        let is_bad = !self.is_available(site) || self.gate(site) == Gate::Open;
        // Only those that were tried are ordered around the last one.
        let last_place = || self.candidates().position(|site| Some(&site.region) == self.last);
        let is_before_next = is_tried && last_place().is_some_and(|last| place <= last);
        (is_tried, is_bad, is_before_next, place)
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
