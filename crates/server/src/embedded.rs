//! The database inside its user's process: the same service, no socket.
//!
//! [`Embedded`] owns what a server owns but for the listener: the store and
//! the task that drives maintenance. [`InProcess`] is the door to it, an
//! implementation of the driver's [`Transport`]; it holds the service weakly,
//! so that closing is the owner's decision alone, and a request that comes
//! later fails as a refused connection does. What always holds: nothing runs
//! behind the owner's back once [`Embedded::close`] has returned, and in memory
//! all of it runs on the caller's thread, so a paused clock stays in charge.

#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{HeaderMap, Method};
use perihelion_engine::Clock;
use perihelion_wire::transport::{Endpoint, Failure, FailureKind, Request, Response, Sent, Transport};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::door::{Door, Entrance};
use crate::net::{self, Hangup, Scheme};
use crate::regions::RegionNames;
use crate::routes::{Addresses, Asker, Service};
use crate::{AuthMode, Core, CoreOptions, Keys, MasterKey, StartError};

/// Where an embedded account answers. The domain is reserved for private use,
/// so that a request that strays to the network reaches nobody.
const GLOBAL_ENDPOINT: &str = "https://account.perihelion.internal";
/// What follows a region's name in the host of its endpoint.
pub(crate) const DOMAIN: &str = ".perihelion.internal";

/// How long management may take; a test that waits longer has found a fault.
const MANAGE_TIMEOUT: Duration = Duration::from_secs(60);

/// How long closing waits for requests under way: longer than any deadline a
/// driver gives an attempt.
const CLOSE_WAIT: Duration = Duration::from_secs(70);

/// What an embedded database is opened with.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct EmbeddedOptions {
    /// Where data is kept; `None` keeps it in memory.
    pub data: Option<PathBuf>,
    /// Physical partitions of a new container.
    pub partitions: u32,
    /// Refuse across partitions what the real gateway refuses.
    pub strict_gateway: bool,
    /// Throttle: units per second of a container without an offer.
    pub throughput: Option<u32>,
    /// The key that signatures are checked with, unless `auth` is off.
    pub keys: Keys,
    /// Off by default: whoever can call in is in the process already.
    pub auth: AuthMode,
    /// What tells the time of writes.
    pub clock: Clock,
    /// The account's regions, the first one first to write.
    pub regions: RegionNames,
    /// Every region takes writes; the last writer wins.
    pub multi_write: bool,
    /// How long a write takes from one region to another.
    pub replication_delay: Duration,
}

impl Default for EmbeddedOptions {
    fn default() -> Self {
        EmbeddedOptions {
            data: None,
            partitions: 1,
            strict_gateway: false,
            throughput: None,
            keys: Keys { primary: MasterKey::emulator() },
            auth: AuthMode::Off,
            clock: Clock::system(),
            regions: RegionNames::default(),
            multi_write: false,
            replication_delay: Duration::ZERO,
        }
    }
}

impl EmbeddedOptions {
    /// Keeps data in this directory, made if missing.
    pub fn with_data(mut self, directory: impl Into<PathBuf>) -> Self {
        self.data = Some(directory.into());
        self
    }

    /// New containers begin with this many physical partitions.
    pub fn with_partitions(mut self, partitions: u32) -> Self {
        self.partitions = partitions;
        self
    }

    /// Refuses across partitions what the real gateway refuses.
    pub fn with_strict_gateway(mut self, is_strict: bool) -> Self {
        self.strict_gateway = is_strict;
        self
    }

    /// Throttles containers without an offer to so many units per second.
    pub fn with_throughput(mut self, units: Option<u32>) -> Self {
        self.throughput = units;
        self
    }

    /// Checks signatures against these keys.
    pub fn with_auth(mut self, auth: AuthMode, keys: Keys) -> Self {
        (self.auth, self.keys) = (auth, keys);
        self
    }

    /// Has these regions, each with an endpoint of its own.
    pub fn with_regions(mut self, regions: RegionNames) -> Self {
        self.regions = regions;
        self
    }

    /// Takes writes in every region.
    pub fn with_multi_write(mut self, is_multi_write: bool) -> Self {
        self.multi_write = is_multi_write;
        self
    }

    /// Lets a write take this long from one region to another.
    pub fn with_replication_delay(mut self, delay: Duration) -> Self {
        self.replication_delay = delay;
        self
    }

    /// Tells the time of writes by this clock.
    pub fn with_clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }
}

/// A database in this process.
pub struct Embedded {
    core: Core,
    /// Each request holds a receiver: when none is left, none is under way.
    flights: Arc<watch::Sender<()>>,
}

impl Embedded {
    /// Opens the database. Must be called inside a tokio runtime.
    pub async fn open(options: EmbeddedOptions) -> Result<Embedded, StartError> {
        let core = Core::open(CoreOptions {
            data: options.data,
            partitions: options.partitions,
            strict_gateway: options.strict_gateway,
            throughput: options.throughput,
            keys: options.keys,
            auth: options.auth,
            management: true,
            public_endpoint: None,
            open_account: false,
            ca_pem: String::new(),
            clock: options.clock,
            regions: options.regions,
            is_multi_write: options.multi_write,
            replication_delay: options.replication_delay,
            addresses: Addresses::Hosts,
        })
        .await?;
        Ok(Embedded { core, flights: Arc::new(watch::Sender::new(())) })
    }

    /// The account's endpoint, for a driver's options.
    pub fn endpoint(&self) -> Endpoint {
        Endpoint::parse(GLOBAL_ENDPOINT).expect("a constant that parses")
    }

    /// The endpoint of a region.
    pub fn region_endpoint(&self, name: &str) -> Option<Endpoint> {
        let names = &self.core.regions().names;
        Endpoint::parse(&region_endpoint(&names.slug(names.find(name)?))).ok()
    }

    /// The way in: one for all endpoints of the account.
    pub fn transport(&self) -> InProcess {
        InProcess { services: Arc::downgrade(&self.core.services), flights: Arc::clone(&self.flights) }
    }

    /// A management request: `path` is what follows `/_perihelion/`, `body` is
    /// JSON or empty. `docs/management.md` lists them.
    pub async fn manage(&self, method: Method, path: &str, body: &str) -> Result<Response, Failure> {
        let target = format!("{}{path}", crate::management::PREFIX);
        let target = PathAndQuery::from_maybe_shared(target).map_err(|_| {
            Failure::new(FailureKind::Protocol, Sent::No, format!("`{path}` is not a path of management"))
        })?;
        self.transport()
            .send(Request {
                endpoint: self.endpoint(),
                method,
                target,
                headers: HeaderMap::new(),
                body: Bytes::copy_from_slice(body.as_bytes()),
                deadline: (Instant::now() + MANAGE_TIMEOUT).into_std(),
            })
            .await
    }

    /// Refuses new requests, waits for those under way, and closes the store.
    pub async fn close(self) {
        let Embedded { core, flights } = self;
        // A request that outlives the wait keeps the store open until it ends.
        core.close(async move { drop(tokio::time::timeout(CLOSE_WAIT, flights.closed()).await) }).await;
    }
}

impl std::fmt::Debug for Embedded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Embedded")
    }
}

/// Where a region answers.
pub(crate) fn region_endpoint(slug: &str) -> String {
    format!("https://{slug}{DOMAIN}")
}

/// The way into an [`Embedded`] database; cheap to clone.
#[derive(Clone)]
pub struct InProcess {
    services: Weak<[Service]>,
    flights: Arc<watch::Sender<()>>,
}

impl Transport for InProcess {
    async fn send(&self, request: Request) -> Result<Response, Failure> {
        // Before the upgrade, so that who closes sees either us or nobody.
        let _flight = self.flights.subscribe();
        let Some(services) = self.services.upgrade() else {
            return Err(Failure::new(FailureKind::Connect, Sent::No, "the embedded database is closed"));
        };
        let Some(entrance) = entrance(&services[0], request.endpoint.host()) else {
            let message = format!("{} is no endpoint of the embedded database", request.endpoint.host());
            return Err(Failure::new(FailureKind::Connect, Sent::No, message));
        };
        let (door, deadline) = (Door { services, entrance }, Instant::from_std(request.deadline));
        match tokio::time::timeout_at(deadline, serve(&door, request)).await {
            Ok(outcome) => outcome,
            Err(_) => Err(Failure::new(
                FailureKind::Timeout,
                Sent::Yes,
                "the embedded database did not answer by the deadline",
            )),
        }
    }
}

/// Which endpoint a host stands for.
fn entrance(service: &Service, host: &str) -> Option<Entrance> {
    let name = host.strip_suffix(DOMAIN)?;
    match service.account.regions.names.find(name) {
        Some(region) => Some(Entrance::Region(region)),
        None => (name == "account").then_some(Entrance::Global),
    }
}

async fn serve(door: &Door, request: Request) -> Result<Response, Failure> {
    let Request { endpoint, method, target, headers, body, .. } = request;
    let limit = net::Limits::default().body_bytes;
    if body.len() > limit {
        return Ok(door.refuse(net::Refusal::BodyTooLarge { limit }));
    }
    let scheme = if endpoint.is_tls() { Scheme::Https } else { Scheme::Http };
    let mut asked = http::Request::new(body);
    (*asked.method_mut(), *asked.uri_mut(), *asked.headers_mut()) = (method, endpoint.uri(target), headers);
    door.answer(asked, scheme, Asker::SameProcess).await.map_err(|hangup| match hangup {
        // Nothing was done, but over a socket no client could know.
        Hangup::Unserved => Failure::new(FailureKind::Closed, Sent::Unknown, "dropped before it was served"),
        Hangup::Served => Failure::new(FailureKind::Closed, Sent::Yes, "the answer was dropped"),
    })
}

impl std::fmt::Debug for InProcess {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("InProcess")
    }
}
