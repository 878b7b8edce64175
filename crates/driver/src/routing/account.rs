//! The account's regions: the order in which to use them, and which of their
//! endpoints are unavailable.
//!
//! An [`Account`] is a snapshot. Reading the account document, and marking an endpoint
//! as unavailable or available, return the next snapshot. A region keeps its
//! [`Location`], and so its latencies, from snapshot to snapshot as long as its
//! endpoint stays the same.
//!
//! What always holds: there is at least one location to read from and one to write
//! to; no list has a region twice; an endpoint that was marked unavailable stays
//! unavailable until a probe has succeeded, until the account no longer has the endpoint,
//! or, for writes, until its region begins to take writes.

mod document;

use std::sync::Arc;
use std::time::Duration;

use perihelion_wire::transport::Endpoint;
use tokio::time::Instant;

use self::document::{AccountDocument, LocationDocument, parse_consistency};
use super::latency::LatencyWindows;
use crate::region::Region;

/// The most regions of one account; further ones are ignored. The service has fewer than
/// a hundred regions.
const REGIONS_MAX: usize = 256;

/// The region name of the configured endpoint in diagnostics. That endpoint belongs
/// to the whole account, so it has no region of its own.
const CONFIGURED_ENDPOINT_REGION: &str = "global";

/// A location of the account, as the account document calls it: a region and its
/// endpoint. All snapshots share it, and the latencies measured there.
#[derive(Debug)]
pub(crate) struct Location {
    pub(crate) region: Region,
    pub(crate) endpoint: Endpoint,
    pub(crate) latency: LatencyWindows,
}

/// The account at one moment.
#[derive(Debug, Clone)]
pub(crate) struct Account {
    /// How often the account document was read; 0 for the account of
    /// [`Account::bootstrap`].
    pub(crate) generation: u64,
    /// Locations for reads, best first.
    pub(crate) read_locations: Vec<Arc<Location>>,
    /// Locations for writes. With `is_multi_write`, the preferred regions come first.
    /// Otherwise the first location is the write region. If the account document names no
    /// location for writes, the configured location is the only one.
    pub(crate) write_locations: Vec<Arc<Location>>,
    /// The hub: the region that the account document lists first for writes. Only the hub takes
    /// writes of metadata, such as new containers, even where every region takes writes of
    /// documents.
    pub(crate) hub: Arc<Location>,
    /// Whether every region takes writes of documents.
    pub(crate) is_multi_write: bool,
    /// The default consistency of reads.
    pub(crate) consistency: Consistency,
    /// The endpoint that the user has configured. The service's DNS resolves this endpoint
    /// to the write region. The account document is read from this endpoint or from those of
    /// the regions. Operations use this endpoint when the account names no write region, or
    /// when their options exclude all regions.
    pub(crate) configured_location: Arc<Location>,
    /// Whether the service asks clients not to hedge.
    pub(crate) is_hedging_disabled: bool,
    /// The thin-client endpoints (Gateway 2.0) that the account names, in the order of its
    /// document. The driver sends them no requests, and only lists them in `AccountView`.
    pub(crate) thin_client: ThinClient,
    /// Whether the service moves the writes of single partitions to other regions when they
    /// fail in the write region. Always false with `is_multi_write`.
    pub(crate) has_partition_failover: bool,
    unavailable: Vec<UnavailableEndpoint>,
}

/// The thin-client endpoints of an account.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ThinClient {
    pub(crate) read: Vec<(Region, Endpoint)>,
    pub(crate) write: Vec<(Region, Endpoint)>,
}

/// The use of an endpoint: for reads or for writes. An endpoint that refuses writes may serve
/// reads.
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

impl Consistency {
    /// Whether reads see the writes of their session.
    pub(crate) fn is_session_or_stronger(self) -> bool {
        match self {
            Consistency::Strong | Consistency::BoundedStaleness | Consistency::Session => true,
            Consistency::ConsistentPrefix | Consistency::Eventual => false,
        }
    }
}

/// An endpoint that is avoided for reads or for writes.
#[derive(Debug, Clone)]
struct UnavailableEndpoint {
    endpoint: Endpoint,
    usage: Usage,
    /// When the endpoint is due for a probe.
    probe_from: Instant,
}

impl Account {
    /// The account before its document was read. It has only the configured
    /// endpoint.
    pub(crate) fn bootstrap(endpoint: Endpoint) -> Account {
        let configured = Arc::new(Location::new(Region::new(CONFIGURED_ENDPOINT_REGION), endpoint));
        Account {
            generation: 0,
            read_locations: vec![Arc::clone(&configured)],
            write_locations: vec![Arc::clone(&configured)],
            hub: Arc::clone(&configured),
            is_multi_write: false,
            consistency: Consistency::Session,
            configured_location: configured,
            is_hedging_disabled: false,
            thin_client: ThinClient::default(),
            has_partition_failover: false,
            unavailable: Vec::new(),
        }
    }

    /// The account after its document (the answer to `GET /`) was read. Preferred
    /// regions come first in their order, the others follow in the order of the
    /// document. An account with one write region keeps the document's order of the
    /// locations for writes. Unknown members are ignored. Endpoints that still exist
    /// keep their latencies, and stay unavailable if they were unavailable. A region that
    /// begins to take writes becomes available for writes.
    pub(crate) fn from_document(
        body: &[u8],
        preferred: &[Region],
        previous: &Account,
    ) -> Result<Account, String> {
        let document: AccountDocument = serde_json::from_slice(body)
            .map_err(|error| format!("the account document cannot be read: {error}"))?;
        let is_multi_write = document.enable_multiple_write_locations.unwrap_or(false);
        let mut readable = parse_locations(document.readable_locations, previous);
        if readable.is_empty() {
            return Err("the account document names no region to read from".to_owned());
        }
        let mut writable = parse_locations(document.writable_locations, previous);
        use_configured_loopback(&mut readable, &mut writable, previous);
        let hub = Arc::clone(writable.first().unwrap_or(&previous.configured_location));
        let read_locations = sorted_by_preference(readable, preferred);
        let mut write_locations =
            if is_multi_write { sorted_by_preference(writable, preferred) } else { writable };
        if write_locations.is_empty() {
            write_locations.push(Arc::clone(&previous.configured_location));
        }
        let is_known = |endpoint: &Endpoint| {
            *endpoint == previous.configured_location.endpoint
                || read_locations
                    .iter()
                    .chain(&write_locations)
                    .any(|location| location.endpoint == *endpoint)
        };
        // A region may be avoided because it refused writes. Once the region takes writes, it
        // is no longer avoided for writes.
        let is_new_write_region = |avoided: &UnavailableEndpoint| {
            let contains = |locations: &[Arc<Location>]| {
                locations.iter().any(|location| location.endpoint == avoided.endpoint)
            };
            avoided.usage == Usage::Write
                && contains(&write_locations)
                && !contains(&previous.write_locations)
        };
        let unavailable = previous
            .unavailable
            .iter()
            .filter(|avoided| is_known(&avoided.endpoint) && !is_new_write_region(avoided));
        Ok(Account {
            generation: previous.generation + 1,
            unavailable: unavailable.cloned().collect(),
            is_multi_write,
            consistency: parse_consistency(document.user_consistency_policy),
            configured_location: Arc::clone(&previous.configured_location),
            is_hedging_disabled: document.disable_cross_regional_hedging.unwrap_or(false),
            thin_client: ThinClient {
                read: parse_endpoints(document.thin_client_readable_locations),
                write: parse_endpoints(document.thin_client_writable_locations),
            },
            has_partition_failover: document.enable_per_partition_failover_behavior.unwrap_or(false)
                && !is_multi_write,
            read_locations,
            write_locations,
            hub,
        })
    }

    /// The account when all requests go to the configured endpoint. The account still says
    /// whether every region takes writes, because in that case writes need a header. Partitions
    /// that fail over are not followed, because there is no other endpoint.
    pub(crate) fn limited_to_configured(mut self) -> Account {
        let configured = &self.configured_location;
        self.read_locations = vec![Arc::clone(configured)];
        self.write_locations = vec![Arc::clone(configured)];
        self.hub = Arc::clone(configured);
        self.has_partition_failover = false;
        self.unavailable.retain(|avoided| avoided.endpoint == configured.endpoint);
        self
    }

    /// Whether this is the configured endpoint, or the endpoint of a known region.
    pub(crate) fn has_endpoint(&self, endpoint: &Endpoint) -> bool {
        self.configured_location.endpoint == *endpoint || self.has_regional_endpoint(endpoint)
    }

    /// Whether this is the endpoint of a known region.
    pub(crate) fn has_regional_endpoint(&self, endpoint: &Endpoint) -> bool {
        self.read_locations.iter().chain(&self.write_locations).any(|location| location.endpoint == *endpoint)
    }

    /// The locations from which to read the account document, in this order, each
    /// endpoint once: the configured endpoint, then those of the regions. Endpoints that
    /// are unavailable for reads and the endpoint `suspect` come last. The configured
    /// endpoint leads to the write region, so it also comes last if the endpoint of a
    /// write region is suspect.
    ///
    /// The endpoints `backups` are asked after the regions that are known. As long as the account
    /// was not read, no region is known, and the regions `guessed` are asked at the end, by the
    /// host names that the service gives to regions.
    pub(crate) fn locations_to_ask(
        &self,
        guessed: &[Region],
        backups: &[Endpoint],
        suspect: Option<&Endpoint>,
    ) -> Vec<Arc<Location>> {
        let is_configured_suspect =
            self.write_locations.iter().any(|location| Some(&location.endpoint) == suspect);
        let mut asked: Vec<Arc<Location>> = Vec::new();
        let guesses = guessed.iter().filter(|_| self.generation == 0).take(REGIONS_MAX);
        let guesses = guesses.filter_map(|region| {
            let endpoint = regional_endpoint(&self.configured_location.endpoint, region)?;
            Some(Arc::new(Location::new(region.clone(), endpoint)))
        });
        let known = std::iter::once(&self.configured_location)
            .chain(&self.read_locations)
            .chain(&self.write_locations)
            .cloned();
        let backups = backups.iter().map(|endpoint| {
            Arc::new(Location::new(Region::new(CONFIGURED_ENDPOINT_REGION), endpoint.clone()))
        });
        for location in known.chain(backups).chain(guesses) {
            if asked.iter().all(|earlier| earlier.endpoint != location.endpoint) {
                asked.push(location);
            }
        }
        asked.sort_by_key(|location| {
            !self.is_available(&location.endpoint, Usage::Read)
                || Some(&location.endpoint) == suspect
                || (is_configured_suspect && location.endpoint == self.configured_location.endpoint)
        });
        asked
    }

    /// The next snapshot when `endpoint` has failed: the endpoint is avoided for `usage`,
    /// and is due for a probe after `period`.
    pub(crate) fn mark_unavailable(
        &self,
        endpoint: &Endpoint,
        usage: Usage,
        now: Instant,
        period: Duration,
    ) -> Account {
        let mut next = self.clone();
        next.unavailable.retain(|avoided| !(avoided.usage == usage && avoided.endpoint == *endpoint));
        next.unavailable.push(UnavailableEndpoint {
            endpoint: endpoint.clone(),
            usage,
            probe_from: now + period,
        });
        next
    }

    /// The next snapshot when `endpoint` has answered a probe: it is used again, for reads
    /// and for writes.
    pub(crate) fn mark_available(&self, endpoint: &Endpoint) -> Account {
        let mut next = self.clone();
        next.unavailable.retain(|avoided| avoided.endpoint != *endpoint);
        next
    }

    /// Whether `endpoint` is not marked unavailable for `usage`.
    pub(crate) fn is_available(&self, endpoint: &Endpoint, usage: Usage) -> bool {
        !self.unavailable.iter().any(|avoided| avoided.usage == usage && avoided.endpoint == *endpoint)
    }

    /// The only location that takes a write: the write region, or the hub for metadata.
    /// `None` for writes of documents where all regions take them.
    pub(crate) fn only_write_location(&self, is_data_plane: bool) -> Option<&Arc<Location>> {
        match (self.is_multi_write, is_data_plane) {
            (false, _) => self.write_locations.first(),
            (true, false) => Some(&self.hub),
            (true, true) => None,
        }
    }

    /// Whether any endpoint is avoided.
    pub(crate) fn has_unavailable_endpoint(&self) -> bool {
        !self.unavailable.is_empty()
    }

    /// Endpoints that are to be probed now, each once. An endpoint that is marked for
    /// reads and for writes is probed when the later of the two probes is due.
    pub(crate) fn due_for_probe(&self, now: Instant) -> Vec<Endpoint> {
        let is_waiting = |endpoint: &Endpoint| {
            self.unavailable.iter().any(|avoided| avoided.endpoint == *endpoint && avoided.probe_from > now)
        };
        let mut due: Vec<Endpoint> = Vec::new();
        for avoided in &self.unavailable {
            if !is_waiting(&avoided.endpoint) && !due.contains(&avoided.endpoint) {
                due.push(avoided.endpoint.clone());
            }
        }
        due
    }
}

impl Location {
    pub(crate) fn new(region: Region, endpoint: Endpoint) -> Self {
        Location { region, endpoint, latency: LatencyWindows::default() }
    }
}

/// The regions and endpoints of a list, in its order, each region once. A region whose
/// endpoint cannot be parsed is left out.
fn parse_endpoints(documents: Option<Vec<LocationDocument>>) -> Vec<(Region, Endpoint)> {
    let mut endpoints: Vec<(Region, Endpoint)> = Vec::new();
    for document in documents.unwrap_or_default().into_iter().take(REGIONS_MAX) {
        let region = Region::new(&document.name);
        let Ok(endpoint) = Endpoint::parse(&document.database_account_endpoint) else { continue };
        if endpoints.iter().all(|(other, _)| *other != region) {
            endpoints.push((region, endpoint));
        }
    }
    endpoints
}

/// The locations of a list, as [`parse_endpoints`] finds them.
fn parse_locations(documents: Option<Vec<LocationDocument>>, previous: &Account) -> Vec<Arc<Location>> {
    let locate = |(region, endpoint)| previous.known_or_new_location(region, endpoint);
    parse_endpoints(documents).into_iter().map(locate).collect()
}

impl Account {
    /// The location of a region: the known location if its endpoint is the same, or else a
    /// new one.
    fn known_or_new_location(&self, region: Region, endpoint: Endpoint) -> Arc<Location> {
        let known = self.read_locations.iter().chain(&self.write_locations);
        let known = known.chain(std::iter::once(&self.configured_location));
        let mut known = known.filter(|location| location.region == region && location.endpoint == endpoint);
        known.next().cloned().unwrap_or_else(|| Arc::new(Location::new(region, endpoint)))
    }
}

/// The endpoint of a region, by the service's naming: the endpoint of West US in the
/// account `shop.documents.azure.com` is `shop-westus.documents.azure.com`. `None` for
/// hosts that are not the service's.
fn regional_endpoint(configured: &Endpoint, region: &Region) -> Option<Endpoint> {
    let (account, rest) = configured.host().split_once('.')?;
    if !rest.starts_with("documents.azure.") {
        return None;
    }
    let region: String = region.name().split_whitespace().collect::<String>().to_ascii_lowercase();
    let scheme = if configured.is_tls() { "https" } else { "http" };
    Endpoint::parse(&format!("{scheme}://{account}-{region}.{rest}:{}", configured.port())).ok()
}

/// For a local emulator with one region, uses the configured endpoint instead of the
/// one in the account document. An emulator in a container reports an address inside
/// that container (`127.0.0.1:8081`, `172.17.0.2`), while the client reaches it by a
/// mapped port.
fn use_configured_loopback(
    readable: &mut [Arc<Location>],
    writable: &mut [Arc<Location>],
    previous: &Account,
) {
    let configured = &previous.configured_location.endpoint;
    let [only] = readable else { return };
    if configured.is_loopback() && only.endpoint != *configured {
        *only = previous.known_or_new_location(only.region.clone(), configured.clone());
        let same = writable.iter_mut().filter(|location| location.region == only.region);
        same.for_each(|location| *location = Arc::clone(only));
    }
}

/// The preferred regions first, in the order of `preferred`. The other regions follow in
/// the order that they had.
fn sorted_by_preference(mut locations: Vec<Arc<Location>>, preferred: &[Region]) -> Vec<Arc<Location>> {
    let rank = |location: &Arc<Location>| {
        preferred.iter().position(|region| *region == location.region).unwrap_or(preferred.len())
    };
    locations.sort_by_key(rank);
    locations
}

#[cfg(test)]
mod tests;
