//! `Server`: an account behind listeners. The account's endpoint has a listener and,
//! with several regions, each region has a listener too.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use perihelion_engine::{Clock, Health};
use perihelion_model::metrics::Metrics;
use tokio::net::TcpListener;

use crate::addresses::{self, Addresses, EndpointId};
use crate::certificates::{Certificates, Names};
use crate::dispatch::Caller;
use crate::error::StartError;
use crate::management;
use crate::memory::MemoryBudget;
use crate::net::{self, Listener, Scheme};
use crate::options::ServerOptions;
use crate::runtime::{AccessOptions, AccountRuntime};

type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// How often the health of the stores is checked. A failure is rare and final, so a short delay
/// does not matter.
const HEALTH_CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// A running server.
pub struct Server {
    /// The listener of the account's own endpoint; then, with several regions, the
    /// listener of each region.
    listeners: Vec<Listener>,
    account: AccountRuntime,
    ca_path: Option<PathBuf>,
}

impl Server {
    /// Binds the ports, opens the account and starts to serve. Must be called
    /// inside a tokio runtime.
    pub async fn start(options: ServerOptions) -> Result<Server, StartError> {
        Self::start_boxed(options).await
    }

    /// The future of [`Server::start`] as a trait object. The compiler generates the
    /// code of a future in the crate that first polls the future or makes it a trait
    /// object. The box makes this crate the first, so the server is not compiled again
    /// in every program that starts one.
    fn start_boxed(options: ServerOptions) -> BoxFuture<Result<Server, StartError>> {
        Box::pin(Self::open_and_listen(options))
    }

    async fn open_and_listen(options: ServerOptions) -> Result<Server, StartError> {
        check_public_endpoint(options.public_endpoint.as_deref(), options.account.regions.len())?;
        let names = Names::local_and(options.tls_names.iter().chain([&options.host]).map(String::as_str));
        let certificates =
            Certificates::load_or_create(options.tls_dir.as_deref(), &names, SystemTime::now())
                .map_err(StartError::certificate)?;
        let tls = certificates.server_config().map_err(StartError::certificate)?;
        let mut sockets = bind_all(&options).await?;
        let bind_error = |error: io::Error| StartError::address(&options.host, options.port, &error);
        let ports = region_ports(&sockets).map_err(bind_error)?;
        if let Some(port) = options.health_port {
            sockets[0].extend(bind(&options.host, port).await?);
        }
        let memory = MemoryBudget::new(options.limits.body_bytes_total);
        let access = AccessOptions {
            keys: options.keys,
            auth: options.auth,
            has_management: options.management,
            public_endpoint: options.public_endpoint,
            allows_unsigned_account_read: options.open_account,
            ca_pem: certificates.ca_pem().to_owned(),
            addresses: Addresses::Ports(ports),
            memory: Arc::clone(&memory),
        };
        let account = AccountRuntime::open(options.account, access, Clock::system()).await?;
        let mut listeners = Vec::with_capacity(sockets.len());
        for (index, sockets) in sockets.into_iter().enumerate() {
            let endpoint = index.checked_sub(1).map_or(EndpointId::Global, EndpointId::Region);
            let (tls, dispatcher) = (Arc::clone(&tls), Arc::new(account.dispatcher(endpoint)));
            let (limits, memory) = (options.limits.clone(), Arc::clone(&memory));
            let listener = Listener::start(sockets, Some(tls), limits, memory, dispatcher);
            listeners.push(listener.map_err(bind_error)?);
        }
        Ok(Server { listeners, account, ca_path: certificates.ca_path() })
    }

    /// The address of the account's endpoint.
    pub fn local_addr(&self) -> SocketAddr {
        self.listeners[0].local_addr()
    }

    /// The address of a region's endpoint; `None` when there is no such region. With
    /// one region it is the address of the account's endpoint.
    pub fn region_addr(&self, name: &str) -> Option<SocketAddr> {
        let region = self.account.regions().names.find(name)?;
        Some(self.listeners.get(region + 1).unwrap_or(&self.listeners[0]).local_addr())
    }

    /// With several regions, the name and the address of each region; empty with one region.
    pub fn region_addrs(&self) -> Vec<(String, SocketAddr)> {
        let names = self.account.regions().names.iter().map(str::to_owned);
        names.zip(self.listeners[1..].iter().map(Listener::local_addr)).collect()
    }

    /// The file with the CA certificate; `None` when it is in memory only.
    pub fn ca_path(&self) -> Option<&Path> {
        self.ca_path.as_deref()
    }

    /// Redirects browsers from the paths of the emulator's explorer (`/_explorer`) to this address.
    /// Only the first call has an effect.
    pub fn set_explorer(&self, address: String) {
        if let Some(service) = self.account.services.first() {
            // A second address is ignored, as documented.
            let _ = service.account.explorer.set(address);
        }
    }

    /// The metrics of the account, as `GET /metrics` shows them. With several regions, sizes are those
    /// of the first region.
    pub fn metrics(&self) -> Metrics {
        self.account.services.first().map(management::read_metrics).unwrap_or_default()
    }

    /// Returns when a store of the account has failed, so that it takes no writes until the
    /// account is opened again. Returns what failed.
    pub async fn failed(&self) -> String {
        loop {
            if let Health::Failed(reason) = self.account.regions().health() {
                return reason;
            }
            tokio::time::sleep(HEALTH_CHECK_INTERVAL).await;
        }
    }

    /// Answers a management request of this process, without a socket: `path` follows
    /// `/_perihelion/`, `body` is JSON or empty. `docs/management.md` lists the requests.
    pub async fn manage(&self, method: Method, path: &str, body: &str) -> Response<Bytes> {
        let target = format!("{}{path}", management::PREFIX);
        let request = Request::builder().method(method).uri(target);
        let Ok(request) = request.body(Bytes::copy_from_slice(body.as_bytes())) else {
            return refused(format!("`{path}` is not a management path"));
        };
        let dispatcher = self.account.dispatcher(EndpointId::Global);
        let answer: BoxFuture<_> =
            Box::pin(async move { dispatcher.answer(request, Scheme::Http, Caller::SameProcess).await });
        answer.await.unwrap_or_else(|hangup| refused(hangup.to_string()))
    }

    /// Stops accepting connections, lets requests finish for at most `grace`, drops
    /// the requests that remain, waits up to 10 seconds for reads and writes that still run for dropped
    /// requests, and closes the stores.
    pub async fn drain(self, grace: Duration) {
        let listeners = self.listeners;
        let drained = async move {
            let draining: Vec<_> =
                listeners.into_iter().map(|listener| tokio::spawn(listener.drain(grace))).collect();
            for drain in draining {
                // The task fails only when the runtime stops or the task panics.
                let _ = drain.await;
            }
        };
        self.account.close(drained).await;
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("address", &self.local_addr()).finish_non_exhaustive()
    }
}

/// The answer to a management request that cannot be carried out.
fn refused(message: String) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from(message));
    *response.status_mut() = StatusCode::BAD_REQUEST;
    response
}

/// Refuses a public endpoint whose port is too high. With several regions, each region's endpoint has
/// one of the ports after the port of the public endpoint.
fn check_public_endpoint(endpoint: Option<&str>, regions: usize) -> Result<(), StartError> {
    match endpoint {
        Some(endpoint)
            if regions > 1 && addresses::parts(endpoint).2.checked_add(regions as u16).is_none() =>
        {
            Err(StartError::too_few_public_ports(endpoint, regions))
        }
        _ => Ok(()),
    }
}

/// Binds the port of the account's endpoint and, with several regions, a port for
/// each region. Returns the sockets of each endpoint, those of the account first. An endpoint
/// has several sockets when the host has several addresses.
async fn bind_all(options: &ServerOptions) -> Result<Vec<Vec<TcpListener>>, StartError> {
    let (host, port) = (&options.host, options.port);
    let mut sockets = vec![bind(host, port).await?];
    let regions = options.account.regions.len();
    let regional_endpoints = if regions > 1 { regions } else { 0 };
    for region in 0..regional_endpoints {
        let region_port = if port == 0 { Some(0) } else { port.checked_add(region as u16 + 1) };
        let region_port = region_port.ok_or_else(|| StartError::too_few_ports(port, regions))?;
        sockets.push(bind(host, region_port).await?);
    }
    Ok(sockets)
}

/// The ports of the regions' endpoints; empty with one region.
fn region_ports(sockets: &[Vec<TcpListener>]) -> io::Result<Vec<u16>> {
    let first_port = |sockets: &Vec<TcpListener>| {
        let no_address = || io::Error::new(io::ErrorKind::AddrNotAvailable, "the host has no address");
        Ok(sockets.first().ok_or_else(no_address)?.local_addr()?.port())
    };
    sockets[1..].iter().map(first_port).collect()
}

async fn bind(host: &str, port: u16) -> Result<Vec<TcpListener>, StartError> {
    net::bind(host, port).await.map_err(|error| StartError::address(host, port, &error))
}
