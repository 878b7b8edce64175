//! The account that a scenario runs against: the engine in this process, our
//! server over TLS, or a live account. Each scenario gets a database of its own,
//! which is deleted when the scenario has passed.

use perihelion_client::{Client, Container, ContainerProperties, Database};
use perihelion_server::{AccountOptions, EmbeddedOptions, ServerOptions};
use perihelion_testkit::TestServer;
use perihelion_testkit::scratch::unique_name;
use perihelion_testkit::server::own_keys;

/// The environment variable with the connection string of a live account.
pub(crate) const LIVE_VARIABLE: &str = "PERIHELION_LIVE_CONNECTION_STRING";

/// Physical partitions of a new container, except on a live account.
const PARTITIONS: u32 = 3;

/// An account, a client of it, and a database.
pub(crate) struct TestAccount {
    pub(crate) client: Client,
    pub(crate) database: Database,
    host: Host,
}

/// The server or service behind the account.
enum Host {
    InProcess(TestServer),
    Tls(TestServer),
    Live { connection_string: String },
}

impl TestAccount {
    pub(crate) async fn in_process() -> TestAccount {
        let options = EmbeddedOptions::default().with_partitions(PARTITIONS);
        TestAccount::on_host(Host::InProcess(TestServer::in_process(options).await)).await
    }

    pub(crate) async fn over_tls() -> TestAccount {
        let options = ServerOptions {
            account: AccountOptions {
                partitions: PARTITIONS,
                strict_gateway: true,
                ..AccountOptions::default()
            },
            // Not the emulators' key, so that the client checks the certificate.
            keys: own_keys(),
            management: true,
            ..ServerOptions::default()
        };
        TestAccount::on_host(Host::Tls(TestServer::on_socket(options).await)).await
    }

    pub(crate) async fn live() -> TestAccount {
        let connection_string = std::env::var(LIVE_VARIABLE).expect("the variable has a connection string");
        TestAccount::on_host(Host::Live { connection_string }).await
    }

    /// A client that shares nothing with the first one.
    pub(crate) async fn another_client(&self) -> Client {
        self.host.connect().await
    }

    async fn on_host(host: Host) -> TestAccount {
        let client = host.connect().await;
        let database = client.create_database(&unique_name()).await.expect("the database is created");
        TestAccount { client, database, host }
    }

    /// Creates a container of the database.
    pub(crate) async fn container(&self, properties: ContainerProperties) -> Container {
        self.database.create_container(&properties).await.expect("the container is created")
    }

    /// Splits the first physical partition of a container. Returns `false` on a live
    /// account, where a test cannot split one.
    pub(crate) async fn split(&self, container: &Container) -> bool {
        match &self.host {
            Host::InProcess(server) | Host::Tls(server) => {
                server.split(self.database.name(), container.name(), None).await;
                true
            }
            Host::Live { .. } => false,
        }
    }

    /// Deletes the database and stops the server.
    pub(crate) async fn end(self) {
        self.database.delete().await.expect("the database is deleted");
        drop((self.client, self.database));
        match self.host {
            Host::InProcess(server) | Host::Tls(server) => server.stop().await,
            Host::Live { .. } => {}
        }
    }
}

impl Host {
    async fn connect(&self) -> Client {
        match self {
            Host::InProcess(server) => server.client().await,
            Host::Tls(server) => server.tls_client().await,
            Host::Live { connection_string } => {
                Client::connect(connection_string).await.expect("the account answers")
            }
        }
    }
}
