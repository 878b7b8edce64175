//! HTTP onto the engine: routes, authentication, TLS, throttling, management.
//!
//! [`Server::start`] opens the store, starts the listener ([`net`]) and one
//! background task that drives the engine's maintenance; [`Server::drain`]
//! ends all three. [`Embedded`] is the same without a listener, behind the
//! driver's transport trait. Everything a request does is in `routes`.

mod activity;
mod answer;
mod auth;
mod blocking;
mod call;
pub mod certificates;
mod core;
mod door;
mod embedded;
mod faults;
mod management;
pub mod net;
mod operation;
mod regions;
mod routes;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

pub use perihelion_engine::Clock;
use perihelion_engine::Refusal;
use perihelion_engine::storage::StoreError;
pub use perihelion_wire::signature::{EMULATOR_KEY, MasterKey};

use crate::core::{Core, CoreOptions};
use crate::door::Entrance;
pub use crate::embedded::{Embedded, EmbeddedOptions, InProcess};
pub use crate::regions::{BadRegions, RegionNames};
use crate::routes::Addresses;

/// The keys a client may sign with.
#[derive(Clone, Debug)]
pub struct Keys {
    pub primary: MasterKey,
}

/// Who is let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthMode {
    /// Requests signed with the key.
    Key,
    /// The same, and any Entra ID token, unchecked: for local development.
    Any,
    /// Everyone.
    Off,
}

/// What a server is started with.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    pub host: String,
    pub port: u16,
    /// Where data is kept; `None` keeps it in memory.
    pub data: Option<PathBuf>,
    /// Physical partitions of a new container.
    pub partitions: u32,
    /// Refuse across partitions what the real gateway refuses.
    pub strict_gateway: bool,
    /// Throttle: units per second of a container without an offer.
    pub throughput: Option<u32>,
    pub keys: Keys,
    pub auth: AuthMode,
    /// Serve the management interface.
    pub management: bool,
    pub tls_dir: Option<PathBuf>,
    /// More names for the certificate than the host and the local ones.
    pub tls_names: Vec<String>,
    /// The address the account document tells, instead of the one used.
    pub public_endpoint: Option<String>,
    /// Answer `GET /` without a signature, as the emulator image does.
    pub open_account: bool,
    /// A second port that is served like the first: the emulator image answers
    /// health checks on 8080.
    pub health_port: Option<u16>,
    pub limits: net::Limits,
    /// The account's regions, the first one first to write. Each answers on a
    /// port of its own behind the account's: the next ones, or free ones when
    /// that is free too.
    pub regions: RegionNames,
    /// Every region takes writes; the last writer wins.
    pub multi_write: bool,
    /// How long a write takes from one region to another.
    pub replication_delay: Duration,
}

/// On a free loopback port, in memory, with the emulators' key and the
/// management interface off.
impl Default for ServerOptions {
    fn default() -> Self {
        ServerOptions {
            host: "127.0.0.1".to_owned(),
            port: 0,
            data: None,
            partitions: 1,
            strict_gateway: false,
            throughput: None,
            keys: Keys { primary: MasterKey::emulator() },
            auth: AuthMode::Key,
            management: false,
            tls_dir: None,
            tls_names: Vec::new(),
            public_endpoint: None,
            open_account: false,
            health_port: None,
            limits: net::Limits::default(),
            regions: RegionNames::default(),
            multi_write: false,
            replication_delay: Duration::ZERO,
        }
    }
}

/// A running server.
pub struct Server {
    /// The account's own endpoint, then with several regions one for each.
    fronts: Vec<net::Front>,
    core: Core,
    ca_path: Option<PathBuf>,
}

impl Server {
    pub async fn start(options: ServerOptions) -> Result<Server, StartError> {
        let more = options.tls_names.iter().map(String::as_str).chain([options.host.as_str()]);
        let names = certificates::Names::local_and(more);
        let certificates =
            certificates::Certificates::load_or_create(options.tls_dir.as_deref(), &names, SystemTime::now())
                .map_err(StartError::certificate)?;
        let tls = certificates.server_config().map_err(StartError::certificate)?;
        let mut listeners = listen_all(&options).await?;
        let ports =
            ports(&listeners).map_err(|error| StartError::address(&options.host, options.port, &error))?;
        if let Some(port) = options.health_port {
            listeners[0].extend(listen(&options.host, port).await?);
        }
        let core = Core::open(CoreOptions {
            data: options.data,
            partitions: options.partitions,
            strict_gateway: options.strict_gateway,
            throughput: options.throughput,
            keys: options.keys,
            auth: options.auth,
            management: options.management,
            public_endpoint: options.public_endpoint,
            open_account: options.open_account,
            ca_pem: certificates.ca_pem().to_owned(),
            clock: Clock::system(),
            regions: options.regions,
            is_multi_write: options.multi_write,
            replication_delay: options.replication_delay,
            addresses: Addresses::Ports(ports),
        })
        .await?;
        let mut fronts = Vec::with_capacity(listeners.len());
        for (place, listeners) in listeners.into_iter().enumerate() {
            let entrance = place.checked_sub(1).map_or(Entrance::Global, Entrance::Region);
            let (tls, door) = (Arc::clone(&tls), Arc::new(core.door(entrance)));
            let front = net::Front::start(listeners, Some(tls), options.limits.clone(), door)
                .map_err(|error| StartError::address(&options.host, options.port, &error))?;
            fronts.push(front);
        }
        Ok(Server { fronts, core, ca_path: certificates.ca_path() })
    }

    pub fn local_addr(&self) -> SocketAddr {
        self.fronts[0].local_addr()
    }

    /// Where a region answers; with one region only that is the account's own
    /// address.
    pub fn region_addr(&self, name: &str) -> Option<SocketAddr> {
        let region = self.core.regions().names.find(name)?;
        Some(self.fronts.get(region + 1).unwrap_or(&self.fronts[0]).local_addr())
    }

    /// With several regions, each one's name and address.
    pub fn region_addrs(&self) -> Vec<(String, SocketAddr)> {
        let names = self.core.regions().names.iter().map(str::to_owned);
        names.zip(self.fronts[1..].iter().map(net::Front::local_addr)).collect()
    }

    /// The file with the CA certificate, unless it lives in memory only.
    pub fn ca_path(&self) -> Option<&Path> {
        self.ca_path.as_deref()
    }

    /// Stops accepting, lets requests finish up to `grace`, and closes the store.
    pub async fn drain(self, grace: Duration) {
        let fronts = self.fronts;
        let drained = async move {
            let draining: Vec<_> = fronts.into_iter().map(|front| tokio::spawn(front.drain(grace))).collect();
            for front in draining {
                // It ends early only with the runtime.
                let _ = front.await;
            }
        };
        self.core.close(drained).await;
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("address", &self.local_addr()).finish_non_exhaustive()
    }
}

/// The listeners of the account's endpoint and of each region's, when there
/// are several.
async fn listen_all(options: &ServerOptions) -> Result<Vec<Vec<tokio::net::TcpListener>>, StartError> {
    let (host, port) = (&options.host, options.port);
    let mut listeners = vec![listen(host, port).await?];
    let regions = if options.regions.len() > 1 { options.regions.len() } else { 0 };
    for region in 0..regions {
        let own = if port == 0 { Some(0) } else { port.checked_add(region as u16 + 1) };
        let own = own.ok_or_else(|| StartError::ports(port, regions))?;
        listeners.push(listen(host, own).await?);
    }
    Ok(listeners)
}

/// The ports of the regions.
fn ports(listeners: &[Vec<tokio::net::TcpListener>]) -> io::Result<Vec<u16>> {
    let first = |listeners: &Vec<tokio::net::TcpListener>| {
        let none = || io::Error::new(io::ErrorKind::AddrNotAvailable, "the host has no address");
        Ok(listeners.first().ok_or_else(none)?.local_addr()?.port())
    };
    listeners[1..].iter().map(first).collect()
}

async fn listen(host: &str, port: u16) -> Result<Vec<tokio::net::TcpListener>, StartError> {
    net::listen(host, port).await.map_err(|error| StartError::address(host, port, &error))
}

/// Why a server did not start.
#[derive(Debug)]
pub struct StartError {
    kind: StartErrorKind,
    text: String,
}

/// What a start failed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartErrorKind {
    DataDirectory,
    Address,
    Certificate,
    Other,
}

impl StartError {
    pub fn kind(&self) -> StartErrorKind {
        self.kind
    }

    fn data(error: StoreError) -> StartError {
        StartError { kind: StartErrorKind::DataDirectory, text: error.to_string() }
    }

    fn refused(refusal: Refusal) -> StartError {
        StartError { kind: StartErrorKind::DataDirectory, text: refusal.message }
    }

    fn directory(path: &Path, error: &io::Error) -> StartError {
        let text = format!("cannot use {}: {error}", path.display());
        StartError { kind: StartErrorKind::DataDirectory, text }
    }

    fn wrong_regions(directory: &Path, list: &str) -> StartError {
        let directory = directory.display();
        let text = if list.is_empty() {
            format!(
                "{directory} holds an account of one region: start without --regions, or in another directory"
            )
        } else {
            format!(
                "{directory} holds an account of the regions \"{list}\": start with exactly these, or in another directory"
            )
        };
        StartError { kind: StartErrorKind::DataDirectory, text }
    }

    fn wrong_store(region: &str, owner: &str) -> StartError {
        let text = format!("the data of the region {region} is that of {owner}: put its own directory back");
        StartError { kind: StartErrorKind::DataDirectory, text }
    }

    fn ports(port: u16, regions: usize) -> StartError {
        let text = format!("there are not {regions} ports behind {port} for the regions");
        StartError { kind: StartErrorKind::Address, text }
    }

    fn address(host: &str, port: u16, error: &io::Error) -> StartError {
        StartError { kind: StartErrorKind::Address, text: format!("cannot listen on {host}:{port}: {error}") }
    }

    fn certificate(error: certificates::CertificateError) -> StartError {
        StartError { kind: StartErrorKind::Certificate, text: error.to_string() }
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for StartError {}
