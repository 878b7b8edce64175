//! The account as the driver sees it: which regions there are, in which order
//! to use them, and which of their endpoints cannot be reached just now.
//!
//! An [`Account`] is a snapshot. Reading the account document, or learning
//! that an endpoint fails or works again, gives the next one. A region keeps
//! its [`Site`] (and with it the latencies measured there) from snapshot to
//! snapshot as long as its endpoint stays.
//!
//! What always holds: there is at least one site to read from and one to write
//! to; no list names a region twice; an endpoint that was marked unavailable
//! stays so until a probe has succeeded, time alone does not clear it.

use std::sync::Arc;
use std::time::Duration;

use perihelion_wire::transport::Endpoint;
use serde::Deserialize;
use tokio::time::Instant;

use super::latency::LatencyWindow;
use crate::region::Region;

/// Regions that one account may name; the service has about a hundred.
const REGIONS_MAX: usize = 256;

/// The name of the region behind the configured endpoint, before or unless the
/// account says which it is.
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
    /// How often the account document has been read; 0 before the first time.
    pub(crate) generation: u64,
    /// Where to read, best first.
    pub(crate) reads: Vec<Arc<Site>>,
    /// Where to write, best first; one unless `is_multi_write`.
    pub(crate) writes: Vec<Arc<Site>>,
    /// Whether every region takes writes.
    pub(crate) is_multi_write: bool,
    /// The default consistency of reads.
    pub(crate) consistency: Consistency,
    /// The configured endpoint, when nothing else is left.
    pub(crate) hub: Arc<Site>,
    /// The service asks clients not to hedge.
    pub(crate) is_hedging_disabled: bool,
    unavailable: Vec<Mark>,
}

/// What an endpoint is used for. One that refuses writes may serve reads.
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

/// An endpoint to be avoided.
#[derive(Debug, Clone)]
struct Mark {
    endpoint: Endpoint,
    usage: Usage,
    probe_from: Instant,
}

impl Account {
    /// The account before its document was read: only the configured endpoint.
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
    /// Preferred regions come first in their order, the rest as the account
    /// lists them. Unknown members are ignored; what was learnt of endpoints
    /// that are still there is kept.
    pub(crate) fn from_properties(
        body: &[u8],
        preferred: &[Region],
        previous: &Account,
    ) -> Result<Account, String> {
        let document: Document = serde_json::from_slice(body)
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
        // A region that has just become the one that takes writes is no longer
        // what it was when it refused them.
        let is_new_writer = |mark: &Mark| {
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

    /// Whom to ask about the account, in this order, each endpoint once: the
    /// configured one, then the regions; last those that something speaks
    /// against, `suspect` among them. The configured endpoint leads to the region
    /// that takes writes and is as suspect as that.
    ///
    /// Before the account was read, nothing is known but how the service names
    /// its regions, so the preferred ones are asked by that name.
    pub(crate) fn whom_to_ask(&self, preferred: &[Region], suspect: Option<&Endpoint>) -> Vec<Arc<Site>> {
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

    /// The account when `endpoint` has failed: it is avoided, and may be probed
    /// after `period`.
    pub(crate) fn mark_unavailable(
        &self,
        endpoint: &Endpoint,
        usage: Usage,
        now: Instant,
        period: Duration,
    ) -> Account {
        let mut next = self.clone();
        next.unavailable.retain(|mark| !(mark.usage == usage && mark.endpoint == *endpoint));
        next.unavailable.push(Mark { endpoint: endpoint.clone(), usage, probe_from: now + period });
        next
    }

    /// The account when `endpoint` has answered a probe.
    pub(crate) fn mark_available(&self, endpoint: &Endpoint) -> Account {
        let mut next = self.clone();
        next.unavailable.retain(|mark| mark.endpoint != *endpoint);
        next
    }

    /// Whether nothing speaks against using `endpoint`.
    pub(crate) fn is_available(&self, endpoint: &Endpoint, usage: Usage) -> bool {
        !self.unavailable.iter().any(|mark| mark.usage == usage && mark.endpoint == *endpoint)
    }

    /// The one region that takes writes; `None` where all do.
    pub(crate) fn only_write_region(&self) -> Option<&Region> {
        self.writes.first().filter(|_| !self.is_multi_write).map(|site| &site.region)
    }

    /// Whether any endpoint is avoided.
    pub(crate) fn is_avoiding(&self) -> bool {
        !self.unavailable.is_empty()
    }

    /// Endpoints that have been avoided long enough, each once. One that is
    /// marked for reads and for writes waits for the later of the two.
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

/// The members of the account document that matter here.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Document {
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

/// The sites of a list, in its order, each region once. An address that cannot
/// be read makes its region unusable, not the account.
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
    /// The site of a region: the one known already, as long as its endpoint is
    /// the same.
    fn site(&self, region: Region, endpoint: Endpoint) -> Arc<Site> {
        let known = self.reads.iter().chain(&self.writes);
        let known = known.chain(std::iter::once(&self.hub));
        let mut known = known.filter(|site| site.region == region && site.endpoint == endpoint);
        known.next().cloned().unwrap_or_else(|| Arc::new(Site::new(region, endpoint)))
    }
}

/// Where the service serves a region of an account: `shop.documents.azure.com`
/// as `shop-westus.documents.azure.com`. Other hosts have their own ways.
fn regional_endpoint(hub: &Endpoint, region: &Region) -> Option<Endpoint> {
    let (account, rest) = hub.host().split_once('.')?;
    if !rest.starts_with("documents.azure.") {
        return None;
    }
    let region: String = region.name().split_whitespace().collect::<String>().to_ascii_lowercase();
    let scheme = if hub.is_tls() { "https" } else { "http" };
    Endpoint::parse(&format!("{scheme}://{account}-{region}.{rest}:{}", hub.port())).ok()
}

/// An emulator in a container names itself by an address inside it
/// (`127.0.0.1:8081`, `172.17.0.2`), while its user came through a mapped port.
/// With one region there is nothing to choose: the address that worked stays.
fn use_configured_loopback(readable: &mut [Arc<Site>], writable: &mut [Arc<Site>], previous: &Account) {
    let hub = &previous.hub.endpoint;
    let [only] = readable else { return };
    if hub.is_loopback() && only.endpoint != *hub {
        *only = previous.site(only.region.clone(), hub.clone());
        let same = writable.iter_mut().filter(|site| site.region == only.region);
        same.for_each(|site| *site = Arc::clone(only));
    }
}

/// Preferred regions first, in their order; then the rest in theirs.
fn in_order(mut sites: Vec<Arc<Site>>, preferred: &[Region]) -> Vec<Arc<Site>> {
    let place = |site: &Arc<Site>| {
        preferred.iter().position(|region| *region == site.region).unwrap_or(preferred.len())
    };
    sites.sort_by_key(place);
    sites
}

/// A level that is not known yet is treated as session: tokens are sent then,
/// and a stronger service ignores them.
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
