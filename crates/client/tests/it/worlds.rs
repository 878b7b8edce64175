//! Worlds: an account that answers, a client to it, a database of its own that
//! goes when the scenario ends.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{HeaderMap, Method};
use perihelion_client::{Client, Container, ContainerProperties, Credential, Database, Endpoint, Transport};
use perihelion_driver::transport::{HttpOptions, HttpTransport};
use perihelion_server::{AccountOptions, Embedded, EmbeddedOptions, Keys, MasterKey, Server, ServerOptions};
use perihelion_wire::transport::{Request, Response};

/// Names the account of the third world.
pub(crate) const LIVE_VARIABLE: &str = "PERIHELION_LIVE_CONNECTION_STRING";

/// Not the emulators' key, so that certificates and signatures are checked.
const KEY: &str = "cGVyaWhlbGlvbiB0ZXN0IGtleSwgbm90IHRoZSBlbXVsYXRvcidzIG9uZSwgNjQgYnl0ZXMgbG9uZyE=";

/// Containers begin with this many physical partitions, where we may choose.
const PARTITIONS: u32 = 3;

/// How long requests under way may take when a scenario ends.
const DRAIN_GRACE: Duration = Duration::from_secs(5);

/// How long management may take.
const MANAGE_TIMEOUT: Duration = Duration::from_secs(30);

/// One account, one client, one database.
pub(crate) struct World {
    pub(crate) client: Client,
    pub(crate) database: Database,
    host: Host,
}

enum Host {
    InProcess(Embedded),
    Server { server: Server, endpoint: Endpoint, transport: HttpTransport, authority: Bytes },
    Live { connection_string: String },
}

impl World {
    pub(crate) async fn in_process() -> World {
        let options = EmbeddedOptions::default().with_partitions(PARTITIONS);
        let embedded = Embedded::open(options).await.expect("the engine opens in memory");
        World::with(Host::InProcess(embedded)).await
    }

    pub(crate) async fn server() -> World {
        let server = Server::start(server_options()).await.expect("the server starts on a free port");
        let address = server.local_addr();
        let clear = Endpoint::parse(&format!("http://{address}")).expect("an address is an endpoint");
        let transport = HttpTransport::new(HttpOptions::default()).expect("the defaults are good");
        let authority = send(&transport, &clear, Method::GET, "/_explorer/emulator.pem", "").await;
        let authority = authority.into_body();
        World::with(Host::Server { server, endpoint: clear, transport, authority }).await
    }

    pub(crate) async fn live() -> World {
        let connection_string = std::env::var(LIVE_VARIABLE).expect("names the account to test against");
        World::with(Host::Live { connection_string }).await
    }

    /// A client that shares nothing with the first one.
    pub(crate) async fn another_client(&self) -> Client {
        self.host.connect().await
    }

    async fn with(host: Host) -> World {
        let client = host.connect().await;
        let database = client.create_database(&unique_name()).await.expect("a database of our own");
        World { client, database, host }
    }

    /// A container of the database.
    pub(crate) async fn container(&self, properties: ContainerProperties) -> Container {
        self.database.create_container(&properties).await.expect("a container of our own")
    }

    /// Splits the first partition of a container; `false` where we cannot.
    pub(crate) async fn split(&self, container: &Container) -> bool {
        let body = format!(r#"{{"database":"{}","container":"{}"}}"#, self.database.name(), container.name());
        let response = match &self.host {
            Host::InProcess(embedded) => {
                embedded.manage(Method::POST, "split", &body).await.expect("management answers")
            }
            Host::Server { endpoint, transport, .. } => {
                send(transport, endpoint, Method::POST, "/_perihelion/split", &body).await
            }
            Host::Live { .. } => return false,
        };
        assert_eq!(response.status(), 200, "{:?}", response.body());
        true
    }

    /// Deletes the database and stops what was started.
    pub(crate) async fn end(self) {
        self.database.delete().await.expect("the database is deleted");
        drop((self.client, self.database));
        match self.host {
            Host::InProcess(embedded) => embedded.close().await,
            Host::Server { server, transport, .. } => {
                drop(transport);
                server.drain(DRAIN_GRACE).await;
            }
            Host::Live { .. } => {}
        }
    }
}

impl Host {
    async fn connect(&self) -> Client {
        match self {
            Host::InProcess(embedded) => Client::over(&embedded.endpoint(), embedded.transport()).await,
            Host::Server { server, authority, .. } => {
                Client::builder()
                    .with_endpoint(&format!("https://{}", server.local_addr()))
                    .with_credential(Credential::key(KEY).expect("the key is base64"))
                    .with_ca_pem(authority)
                    .connect()
                    .await
            }
            Host::Live { connection_string } => Client::connect(connection_string).await,
        }
        .expect("the account answers")
    }
}

fn server_options() -> ServerOptions {
    ServerOptions {
        account: AccountOptions { partitions: PARTITIONS, strict_gateway: true, ..AccountOptions::default() },
        keys: Keys { primary: MasterKey::from_base64(KEY).expect("the key is base64") },
        management: true,
        ..ServerOptions::default()
    }
}

/// A request that no client method makes.
async fn send(
    transport: &HttpTransport,
    endpoint: &Endpoint,
    method: Method,
    path: &str,
    body: &str,
) -> Response {
    let request = Request {
        endpoint: endpoint.clone(),
        method,
        target: path.parse::<PathAndQuery>().expect("a path"),
        headers: HeaderMap::new(),
        body: Bytes::copy_from_slice(body.as_bytes()),
        deadline: (tokio::time::Instant::now() + MANAGE_TIMEOUT).into_std(),
    };
    transport.send(request).await.expect("the server answers")
}

/// A name that no other run has, so that a live account can be shared.
fn unique_name() -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_nanos());
    format!("perihelion-{time:x}-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}
