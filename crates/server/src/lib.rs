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
mod embedded;
mod faults;
mod management;
pub mod net;
mod operation;
mod routes;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

pub use perihelion_engine::Clock;
use perihelion_engine::storage::StoreError;
pub use perihelion_wire::signature::{EMULATOR_KEY, MasterKey};

use crate::core::{Core, CoreOptions};
pub use crate::embedded::{Embedded, EmbeddedOptions, InProcess};

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
}

/// A running server.
pub struct Server {
    front: net::Front,
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
        let mut listeners = listen(&options.host, options.port).await?;
        if let Some(port) = options.health_port {
            listeners.extend(listen(&options.host, port).await?);
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
        })
        .await?;
        let service = Arc::clone(&core.service);
        let front = net::Front::start(listeners, Some(tls), options.limits, service)
            .map_err(|error| StartError::address(&options.host, options.port, &error))?;
        Ok(Server { front, core, ca_path: certificates.ca_path() })
    }

    pub fn local_addr(&self) -> SocketAddr {
        self.front.local_addr()
    }

    /// The file with the CA certificate, unless it lives in memory only.
    pub fn ca_path(&self) -> Option<&Path> {
        self.ca_path.as_deref()
    }

    /// Stops accepting, lets requests finish up to `grace`, and closes the store.
    pub async fn drain(self, grace: Duration) {
        self.core.close(self.front.drain(grace)).await;
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("address", &self.local_addr()).finish_non_exhaustive()
    }
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
