//! The account's regions: the order in which to use them, and which of their
//! endpoints are unavailable.
//!
//! An [`Account`] is a snapshot. Reading the account document, and marking an
//! endpoint, return the next snapshot. A region keeps its [`Site`], and so its
//! latencies, from snapshot to snapshot as long as its endpoint stays the same.
//!
//! What always holds: there is at least one site to read from and one to write
//! to; no list names a region twice; an endpoint that was marked unavailable
//! stays so until a probe has succeeded.

use std::sync::Arc;
use std::time::Duration;

use perihelion_wire::transport::Endpoint;
use serde::Deserialize;
use tokio::time::Instant;

use super::latency::LatencyWindow;
use crate::region::Region;

/// Regions that one account may name; the service has about a hundred.
const REGIONS_MAX: usize = 256;

/// The region name of the configured endpoint, until the account document names
/// its regions.
const HUB_REGION: &str = "global";

/// One region's endpoint, shared by all snapshots.
#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) region: Region,
    pub(crate) endpoint: Endpoint,
    pub(crate) latency: Arc<LatencyWindow>,
}

/// The account at one moment.
#[derive(Debug, Clone)]
pub(crate) struct Account {
    /// How often the account document was read.
    pub(crate) generation: u64,
    /// Sites for reads, best first.
    pub(crate) reads: Vec<Arc<Site>>,
    /// Sites for writes, best first; exactly one unless `is_multi_write`.
    pub(crate) writes: Vec<Arc<Site>>,
    /// Whether every region takes writes.
    pub(crate) is_multi_write: bool,
    /// The default consistency of reads.
    pub(crate) consistency: Consistency,
    /// The configured endpoint, used when there is no other.
    pub(crate) hub: Arc<Site>,
    /// The service asks clients not to hedge.
    pub(crate) is_hedging_disabled: bool,
    unavailable: Vec<UnavailableMark>,
}

/// What an endpoint is used for. An endpoint that refuses writes may serve reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Usage {
    Read,
    Write,
}

/// The account's default consistency.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Consistency {
    Strong,
    BoundedStaleness,
    Session,
    ConsistentPrefix,
    Eventual,
}

/// An endpoint that is avoided.
#[derive(Debug, Clone)]
struct UnavailableMark {
    endpoint: Endpoint,
    usage: Usage,
    probe_from: Instant,
}

impl Account {
    /// The account before its document was read. It has only the configured
    /// endpoint.
    pub(crate) fn bootstrap(endpoint: Endpoint) -> Account {
        let hub = Arc::new(Site::new(Region::new(HUB_REGION), endpoint));
        Account {
            generation: 0,
            reads: vec![Arc::clone(&hub)],
            writes: vec![Arc::clone(&hub)],
            is_multi_write: false,
            consistency: Consistency::Session,
            hub,
            is_hedging_disabled: false,
            unavailable: Vec::new(),
        }
    }

    /// The account after its document (the answer to `GET /`) was read.
    /// Preferred regions come first in their order, the others as the account
    /// lists them. Unknown members are ignored. Latencies and marks of endpoints
    /// that still exist are kept.
    pub(crate) fn from_properties(
        body: &[u8],
        preferred: &[Region],
        previous: &Account,
    ) -> Result<Account, String> {
        let document: AccountDocument = serde_json::from_slice(body)
            .map_err(|error| format!("the account document cannot be read: {error}"))?;
        let is_multi_write = document.enable_multiple_write_locations.unwrap_or(false);
        let mut readable = sites(document.readable_locations, previous);
        if readable.is_empty() {
            return Err("the account document names no region to read from".to_owned());
        }
        let mut writable = sites(document.writable_locations, previous);
        use_configured_loopback(&mut readable, &mut writable, previous);
        let reads = in_order(readable, preferred);
        let mut writes = if is_multi_write { in_order(writable, preferred) } else { writable };
        if writes.is_empty() {
            writes.push(Arc::clone(&previous.hub));
        }
        let is_known = |endpoint: &Endpoint| {
            *endpoint == previous.hub.endpoint
                || reads.iter().chain(&writes).any(|site| site.endpoint == *endpoint)
        };
        // A region may have refused writes before it became the write region.
        let is_new_writer = |mark: &UnavailableMark| {
            let named = |writes: &[Arc<Site>]| writes.iter().any(|site| site.endpoint == mark.endpoint);
            mark.usage == Usage::Write && named(&writes) && !named(&previous.writes)
        };
        let marks =
            previous.unavailable.iter().filter(|mark| is_known(&mark.endpoint) && !is_new_writer(mark));
        Ok(Account {
            generation: previous.generation + 1,
            unavailable: marks.cloned().collect(),
            is_multi_write,
            consistency: consistency(document.user_consistency_policy),
            hub: Arc::clone(&previous.hub),
            is_hedging_disabled: document.disable_cross_regional_hedging.unwrap_or(false),
            reads,
            writes,
        })
    }

    /// The sites from which to read the account document, in this order, each
    /// endpoint once: the configured one, then the regions. Unavailable endpoints
    /// and `suspect` come last. The configured endpoint leads to the write region,
    /// so it comes last if the write region is suspect.
    ///
    /// Before the account was read, the preferred regions are asked by the host
    /// names that the service gives its regions.
    pub(crate) fn sites_to_ask(&self, preferred: &[Region], suspect: Option<&Endpoint>) -> Vec<Arc<Site>> {
        let is_hub_suspect = self.writes.iter().any(|site| Some(&site.endpoint) == suspect);
        let mut asked: Vec<Arc<Site>> = Vec::new();
        let guesses = preferred.iter().filter(|_| self.generation == 0).take(REGIONS_MAX);
        let guesses = guesses.filter_map(|region| {
            let endpoint = regional_endpoint(&self.hub.endpoint, region)?;
            Some(Arc::new(Site::new(region.clone(), endpoint)))
        });
        let known = std::iter::once(&self.hub).chain(&self.reads).chain(&self.writes).cloned();
        for site in known.chain(guesses) {
            if asked.iter().all(|earlier| earlier.endpoint != site.endpoint) {
                asked.push(site);
            }
        }
        asked.sort_by_key(|site| {
            !self.is_available(&site.endpoint, Usage::Read)
                || Some(&site.endpoint) == suspect
                || (is_hub_suspect && site.endpoint == self.hub.endpoint)
        });
        asked
    }

    /// The next snapshot when `endpoint` has failed: the endpoint is avoided, and may
    /// be probed after `period`.
    pub(crate) fn mark_unavailable(
        &self,
        endpoint: &Endpoint,
        usage: Usage,
        now: Instant,
        period: Duration,
    ) -> Account {
        let mut next = self.clone();
        next.unavailable.retain(|mark| !(mark.usage == usage && mark.endpoint == *endpoint));
        next.unavailable.push(UnavailableMark {
            endpoint: endpoint.clone(),
            usage,
            probe_from: now + period,
        });
        next
    }

    /// The next snapshot when `endpoint` has answered a probe.
    pub(crate) fn mark_available(&self, endpoint: &Endpoint) -> Account {
        let mut next = self.clone();
        next.unavailable.retain(|mark| mark.endpoint != *endpoint);
        next
    }

    /// Whether `endpoint` is not marked unavailable.
    pub(crate) fn is_available(&self, endpoint: &Endpoint, usage: Usage) -> bool {
        !self.unavailable.iter().any(|mark| mark.usage == usage && mark.endpoint == *endpoint)
    }

    /// The write region; `None` where all regions take writes.
    pub(crate) fn only_write_region(&self) -> Option<&Region> {
        self.writes.first().filter(|_| !self.is_multi_write).map(|site| &site.region)
    }

    /// Whether any endpoint is avoided.
    pub(crate) fn is_avoiding(&self) -> bool {
        !self.unavailable.is_empty()
    }

    /// Endpoints that are to be probed now, each once. An endpoint that is marked for
    /// reads and for writes is probed when the later mark is due.
    pub(crate) fn due_for_probe(&self, now: Instant) -> Vec<Endpoint> {
        let is_waiting = |endpoint: &Endpoint| {
            self.unavailable.iter().any(|mark| mark.endpoint == *endpoint && mark.probe_from > now)
        };
        let mut due: Vec<Endpoint> = Vec::new();
        for mark in &self.unavailable {
            if !is_waiting(&mark.endpoint) && !due.contains(&mark.endpoint) {
                due.push(mark.endpoint.clone());
            }
        }
        due
    }
}

impl Site {
    pub(crate) fn new(region: Region, endpoint: Endpoint) -> Self {
        Site { region, endpoint, latency: Arc::new(LatencyWindow::new()) }
    }
}

/// The members of the account document that the driver uses.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AccountDocument {
    readable_locations: Option<Vec<Location>>,
    writable_locations: Option<Vec<Location>>,
    enable_multiple_write_locations: Option<bool>,
    user_consistency_policy: Option<ConsistencyPolicy>,
    disable_cross_regional_hedging: Option<bool>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Location {
    name: String,
    database_account_endpoint: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ConsistencyPolicy {
    default_consistency_level: Option<String>,
}

/// The sites of a list, in its order, each region once. A region whose endpoint
/// cannot be parsed is left out.
fn sites(locations: Option<Vec<Location>>, previous: &Account) -> Vec<Arc<Site>> {
    let mut sites: Vec<Arc<Site>> = Vec::new();
    for location in locations.unwrap_or_default().into_iter().take(REGIONS_MAX) {
        let region = Region::new(&location.name);
        let Ok(endpoint) = Endpoint::parse(&location.database_account_endpoint) else { continue };
        if sites.iter().all(|site| site.region != region) {
            sites.push(previous.site(region, endpoint));
        }
    }
    sites
}

impl Account {
    /// The site of a region: the existing one, if its endpoint is the same, or a
    /// new one.
    fn site(&self, region: Region, endpoint: Endpoint) -> Arc<Site> {
        let known = self.reads.iter().chain(&self.writes);
        let known = known.chain(std::iter::once(&self.hub));
        let mut known = known.filter(|site| site.region == region && site.endpoint == endpoint);
        known.next().cloned().unwrap_or_else(|| Arc::new(Site::new(region, endpoint)))
    }
}

/// The endpoint of a region, by the service's naming: West US of
/// `shop.documents.azure.com` is `shop-westus.documents.azure.com`. `None` for
/// other hosts.
fn regional_endpoint(hub: &Endpoint, region: &Region) -> Option<Endpoint> {
    let (account, rest) = hub.host().split_once('.')?;
    if !rest.starts_with("documents.azure.") {
        return None;
    }
    let region: String = region.name().split_whitespace().collect::<String>().to_ascii_lowercase();
    let scheme = if hub.is_tls() { "https" } else { "http" };
    Endpoint::parse(&format!("{scheme}://{account}-{region}.{rest}:{}", hub.port())).ok()
}

/// Keeps the configured endpoint of a local emulator with one region. An emulator
/// in a container names itself by an address inside that container
/// (`127.0.0.1:8081`, `172.17.0.2`), while the client uses a mapped port.
fn use_configured_loopback(readable: &mut [Arc<Site>], writable: &mut [Arc<Site>], previous: &Account) {
    let hub = &previous.hub.endpoint;
    let [only] = readable else { return };
    if hub.is_loopback() && only.endpoint != *hub {
        *only = previous.site(only.region.clone(), hub.clone());
        let same = writable.iter_mut().filter(|site| site.region == only.region);
        same.for_each(|site| *site = Arc::clone(only));
    }
}

/// Sorts the preferred regions first, in their order; the others keep their order.
fn in_order(mut sites: Vec<Arc<Site>>, preferred: &[Region]) -> Vec<Arc<Site>> {
    let rank = |site: &Arc<Site>| {
        preferred.iter().position(|region| *region == site.region).unwrap_or(preferred.len())
    };
    sites.sort_by_key(rank);
    sites
}

/// The account's consistency. An unknown level counts as session: requests then
/// carry tokens, which a service with a stronger level ignores.
fn consistency(policy: Option<ConsistencyPolicy>) -> Consistency {
    let level = policy.and_then(|policy| policy.default_consistency_level).unwrap_or_default();
    match level.as_str() {
        "Strong" => Consistency::Strong,
        "BoundedStaleness" => Consistency::BoundedStaleness,
        "ConsistentPrefix" => Consistency::ConsistentPrefix,
        "Eventual" => Consistency::Eventual,
        _ => Consistency::Session,
    }
}

#[cfg(test)]
mod tests;
