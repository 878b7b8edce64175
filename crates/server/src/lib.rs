//! HTTP onto the engine: routes, authentication, TLS, throttling, management.

pub mod certificates;
pub mod net;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use bytes::Bytes;
use http::{Request, Response};

/// The key that every emulator knows. Public, so no protection at all.
pub const WELL_KNOWN_KEY: &str =
    "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw==";

/// A master key. Shows itself to nobody by accident.
#[derive(Clone, PartialEq, Eq)]
pub struct MasterKey {
    text: String,
    bytes: Vec<u8>,
}

impl MasterKey {
    /// Reads a key as the portal shows it: strict base64.
    pub fn parse(text: &str) -> Result<MasterKey, KeyError> {
        match base64::engine::general_purpose::STANDARD.decode(text) {
            Ok(bytes) if !bytes.is_empty() => Ok(MasterKey { text: text.to_owned(), bytes }),
            Ok(_) | Err(_) => Err(KeyError),
        }
    }

    pub fn well_known() -> MasterKey {
        MasterKey::parse(WELL_KNOWN_KEY).unwrap_or(MasterKey { text: String::new(), bytes: Vec::new() })
    }

    pub fn is_well_known(&self) -> bool {
        self.text == WELL_KNOWN_KEY
    }

    /// The key in base64, for whoever is entitled to it.
    pub fn reveal(&self) -> &str {
        &self.text
    }

    /// The key as HMAC wants it.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl fmt::Debug for MasterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MasterKey(hidden)")
    }
}

/// Not a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyError;

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key is standard base64 with its padding, as the portal shows it")
    }
}

impl std::error::Error for KeyError {}

/// The keys a client may sign with.
#[derive(Clone, Debug)]
pub struct Keys {
    pub primary: MasterKey,
}

/// Who is let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthMode {
    Key,
    Any,
    Off,
}

/// What a server is started with.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    pub host: String,
    pub port: u16,
    pub data: Option<PathBuf>,
    pub partitions: u32,
    pub strict_gateway: bool,
    pub throughput: Option<u32>,
    pub keys: Keys,
    pub auth: AuthMode,
    pub management: bool,
    pub tls_dir: Option<PathBuf>,
    /// More names for the certificate than the host and the local ones.
    pub tls_names: Vec<String>,
    pub public_endpoint: Option<String>,
    /// A second port that is served like the first: the emulator image answers
    /// health checks on 8080.
    pub health_port: Option<u16>,
    pub limits: net::Limits,
}

/// A running server.
#[derive(Debug)]
pub struct Server {
    front: net::Front,
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
        let front = net::Front::start(listeners, Some(tls), options.limits, Arc::new(Routes))
            .map_err(|error| StartError::address(&options.host, options.port, &error))?;
        Ok(Server { front, ca_path: certificates.ca_path() })
    }

    pub fn local_addr(&self) -> SocketAddr {
        self.front.local_addr()
    }

    /// The file with the CA certificate, unless it lives in memory only.
    pub fn ca_path(&self) -> Option<&std::path::Path> {
        self.ca_path.as_deref()
    }

    pub async fn drain(self, grace: Duration) {
        self.front.drain(grace).await;
    }
}

async fn listen(host: &str, port: u16) -> Result<Vec<tokio::net::TcpListener>, StartError> {
    net::listen(host, port).await.map_err(|error| StartError::address(host, port, &error))
}

struct Routes;

impl net::Handler for Routes {
    async fn handle(
        &self,
        request: Request<Bytes>,
        _peer: net::Peer,
    ) -> Result<Response<Bytes>, net::Hangup> {
        let mut response = Response::new(Bytes::new());
        if !matches!(request.uri().path(), "/" | "/alive" | "/ready" | "/status") {
            *response.status_mut() = http::StatusCode::NOT_FOUND;
        }
        Ok(response)
    }

    fn refuse(&self, refusal: net::Refusal) -> Response<Bytes> {
        let mut response = Response::new(Bytes::new());
        *response.status_mut() = refusal.status();
        response
    }
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
