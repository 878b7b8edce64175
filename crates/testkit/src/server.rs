//! A running server for a test: the engine in this process, or behind a socket.

use std::net::SocketAddr;
use std::time::Duration;

use perihelion_server::{Embedded, EmbeddedOptions, Keys, MasterKey, Server, ServerOptions};
use perihelion_wire::transport::Endpoint;

use crate::http_client::HttpClient;
use crate::scratch::ScratchDirectory;

/// How long requests in flight may take when a test stops its server on a socket.
const DRAIN_GRACE: Duration = Duration::from_secs(5);

/// A key that is not the key of the emulators, for tests of certificates. With the emulators' key,
/// clients accept any certificate of a server on this machine.
pub const OWN_KEY: &str = "cGVyaWhlbGlvbiB0ZXN0IGtleSwgbm90IHRoZSBlbXVsYXRvcidzIG9uZSwgNjQgYnl0ZXMgbG9uZyE=";

/// The keys of a server that is started with [`OWN_KEY`].
pub fn own_keys() -> Keys {
    Keys { primary: MasterKey::from_base64(OWN_KEY).expect("the key is base64") }
}

/// A server of a test. The methods in `management.rs` manage its faults, counters and
/// regions. The features `driver` and `client` add methods that connect to the server.
pub struct TestServer {
    host: Host,
    /// The data directory, if the server has one of its own. It is removed after the server
    /// has stopped.
    _data: Option<ScratchDirectory>,
}

/// Where the server runs.
pub(crate) enum Host {
    InProcess(Embedded),
    Socket(Server),
}

impl TestServer {
    /// Opens the engine in this process.
    pub async fn in_process(options: EmbeddedOptions) -> TestServer {
        let embedded = Embedded::open(options).await.unwrap_or_else(|error| panic!("no start: {error}"));
        TestServer { host: Host::InProcess(embedded), _data: None }
    }

    /// Opens the engine in this process, with its data in a directory of its own.
    pub async fn in_process_on_disk(options: EmbeddedOptions) -> TestServer {
        let directory = ScratchDirectory::new();
        let server = TestServer::in_process(options.with_data(directory.path())).await;
        TestServer { _data: Some(directory), ..server }
    }

    /// Starts a server on a socket. Faults and regions can be managed only when
    /// the options switch the management interface on.
    pub async fn on_socket(options: ServerOptions) -> TestServer {
        let server = Server::start(options).await.unwrap_or_else(|error| panic!("no start: {error}"));
        TestServer { host: Host::Socket(server), _data: None }
    }

    pub(crate) fn host(&self) -> &Host {
        &self.host
    }

    /// The engine of a server in this process. Panics for a server on a socket.
    pub fn embedded(&self) -> &Embedded {
        match &self.host {
            Host::InProcess(embedded) => embedded,
            Host::Socket(_) => panic!("this server is behind a socket"),
        }
    }

    /// The address of a server on a socket.
    pub fn address(&self) -> SocketAddr {
        self.socket().local_addr()
    }

    /// The address of one region of a server on a socket.
    pub fn region_address(&self, region: &str) -> SocketAddr {
        self.socket().region_addr(region).unwrap_or_else(|| panic!("there is no region {region}"))
    }

    /// The endpoint of the account. For a server on a socket, it is the endpoint without TLS.
    pub fn endpoint(&self) -> Endpoint {
        match &self.host {
            Host::InProcess(embedded) => embedded.endpoint(),
            Host::Socket(_) => Endpoint::parse(&self.url()).expect("an address is an endpoint"),
        }
    }

    /// The endpoint of a server on a socket, without TLS, as a connection string
    /// has it.
    pub fn url(&self) -> String {
        format!("http://{}", self.address())
    }

    /// An HTTP client of a server on a socket, with a connection of its own.
    pub fn http_client(&self) -> HttpClient {
        HttpClient::new(self.address())
    }

    /// An HTTP client of one region of a server on a socket.
    pub fn region_http_client(&self, region: &str) -> HttpClient {
        HttpClient::new(self.region_address(region))
    }

    /// Waits until the requests in flight have ended, and stops the server. A server on a socket
    /// waits a few seconds at most.
    pub async fn stop(self) {
        match self.host {
            Host::InProcess(embedded) => embedded.close().await,
            Host::Socket(server) => server.drain(DRAIN_GRACE).await,
        }
    }

    fn socket(&self) -> &Server {
        match &self.host {
            Host::Socket(server) => server,
            Host::InProcess(_) => panic!("this server runs in process and has no address"),
        }
    }
}
