//! `World`: one server and one SDK client, which the checks use. The names of containers come
//! from a counter, so that every check has its own containers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use azure_data_cosmos::clients::{ContainerClient, DatabaseClient};
use azure_data_cosmos::models::{ContainerProperties, PartitionKeyDefinition};
use azure_data_cosmos::options::{
    BinaryEncodingOptions, ConnectionPoolOptions, ReadContainerOptions, Region, ServerCertificateValidation,
};
use azure_data_cosmos::{
    AccountReference, CosmosClient, CosmosClientBuilder, CosmosRuntime, RoutingStrategy,
};
use azure_data_cosmos_driver::{CosmosDriver, CosmosDriverRuntime, DriverOptions};
use perihelion_interop_common::Server;
use serde::{Deserialize, Serialize};

use crate::check::Problem;
use crate::management::Management;

/// The well-known key of the emulators, and the default of our server.
pub(crate) const WELL_KNOWN_KEY: &str =
    "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw==";

/// The SDK requires the name of a region. The account has a region with another name, and the
/// SDK falls back to that region.
const REGION: &str = "East US";

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Scheme {
    Http,
    Https,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct WorldOptions {
    pub(crate) name: &'static str,
    pub(crate) scheme: Scheme,
    /// The number of physical partitions of a new container.
    pub(crate) partitions: u32,
    /// Whether the server refuses what the real gateway refuses.
    pub(crate) is_strict: bool,
}

pub(crate) struct World {
    options: WorldOptions,
    server: Server,
    pub(crate) client: CosmosClient,
    database: DatabaseClient,
    /// The number of names given so far.
    names: AtomicU32,
}

/// The document of most checks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Item {
    pub(crate) id: String,
    pub(crate) pk: String,
    pub(crate) rank: i64,
}

pub(crate) fn item(pk: &str, id: &str, rank: i64) -> Item {
    Item { id: id.to_owned(), pk: pk.to_owned(), rank }
}

impl World {
    pub(crate) async fn start(options: WorldOptions) -> Result<Self, Problem> {
        let partitions = options.partitions.to_string();
        let merging: &[&str] = if options.is_strict { &[] } else { &["--merge-in-gateway"] };
        let server = Server::start(&[&["--partitions", &partitions], merging].concat()).await?;
        let client = Connect::to(options.scheme, server.port()).client().await?;
        client.create_database("interop", None).await?;
        let database = client.database_client("interop");
        Ok(Self { options, server, client, database, names: AtomicU32::new(0) })
    }

    pub(crate) fn options(&self) -> WorldOptions {
        self.options
    }

    pub(crate) fn name(&self) -> &'static str {
        self.options.name
    }

    pub(crate) fn partitions(&self) -> usize {
        self.options.partitions as usize
    }

    pub(crate) fn scheme(&self) -> Scheme {
        self.options.scheme
    }

    pub(crate) fn port(&self) -> u16 {
        self.server.port()
    }

    pub(crate) fn server_panics(&self) -> u32 {
        self.server.panics()
    }

    pub(crate) fn management(&self) -> Management {
        Management::of(self.port())
    }

    /// A new client of the same server, which knows no session tokens.
    pub(crate) async fn another_client(&self) -> azure_data_cosmos::Result<CosmosClient> {
        Connect::to(self.scheme(), self.port()).client().await
    }

    /// A new driver of the same server. The driver is the layer under the SDK.
    pub(crate) async fn driver(&self) -> Result<Arc<CosmosDriver>, Problem> {
        let pool = ConnectionPoolOptions::builder()
            .with_server_certificate_validation(ServerCertificateValidation::RequiredUnlessEmulator)
            .build()?;
        let runtime = CosmosDriverRuntime::builder().with_connection_pool(pool).build().await?;
        let endpoint = Connect::to(self.scheme(), self.port()).endpoint.parse()?;
        let account =
            azure_data_cosmos_driver::models::AccountReference::with_account_key(endpoint, WELL_KNOWN_KEY);
        Ok(runtime.create_driver(DriverOptions::builder(account).build()).await?)
    }

    pub(crate) fn database(&self) -> &DatabaseClient {
        &self.database
    }

    /// A name that was not given before.
    pub(crate) fn fresh_name(&self, what: &str) -> String {
        format!("{what}-{}", self.names.fetch_add(1, Ordering::Relaxed))
    }

    /// A new container partitioned by `/pk`.
    pub(crate) async fn container(&self) -> Result<ContainerClient, Problem> {
        self.container_by("/pk".into()).await
    }

    /// A new container with this partition key.
    pub(crate) async fn container_by(&self, key: PartitionKeyDefinition) -> Result<ContainerClient, Problem> {
        self.container_of(ContainerProperties::new(self.fresh_name("c"), key)).await
    }

    /// A new container with these properties.
    pub(crate) async fn container_of(
        &self,
        properties: ContainerProperties,
    ) -> Result<ContainerClient, Problem> {
        let name = properties.id.to_string();
        self.database.create_container(properties, None).await?;
        Ok(self.database.container_client(name, None).await?)
    }

    /// A new container with `items` items spread over `keys` partition keys (`k0`, `k1`, …).
    /// Item `n` has the rank `n` and the partition key `k{n % keys}`.
    pub(crate) async fn filled(&self, keys: i64, items: i64) -> Result<ContainerClient, Problem> {
        let container = self.container().await?;
        for rank in 0..items {
            let item = item(&format!("k{}", rank % keys), &format!("i{rank:03}"), rank);
            container.create_item(item.pk.clone(), &item.id, &item, None).await?;
        }
        Ok(container)
    }
}

/// The name of a container, which the SDK's client does not expose.
pub(crate) async fn name_of(container: &ContainerClient) -> Result<String, Problem> {
    let properties = container.read(None::<ReadContainerOptions>).await?.into_model()?;
    Ok(properties.id.to_string())
}

/// The options with which a client is connected.
pub(crate) struct Connect {
    endpoint: String,
    key: String,
    validation: ServerCertificateValidation,
    /// Whether items are sent as text, and not as Cosmos binary JSON.
    is_text: bool,
}

impl Connect {
    pub(crate) fn to(scheme: Scheme, port: u16) -> Self {
        let scheme = match scheme {
            Scheme::Http => "http",
            Scheme::Https => "https",
        };
        Self::to_endpoint(&format!("{scheme}://127.0.0.1:{port}/"))
    }

    /// A connection as the SDK makes it to an emulator: it accepts a certificate that cannot be
    /// verified, if it comes from a loopback host.
    pub(crate) fn to_endpoint(endpoint: &str) -> Self {
        Self {
            endpoint: endpoint.to_owned(),
            key: WELL_KNOWN_KEY.to_owned(),
            validation: ServerCertificateValidation::RequiredUnlessEmulator,
            is_text: false,
        }
    }

    pub(crate) fn with_key(self, key: &str) -> Self {
        Self { key: key.to_owned(), ..self }
    }

    pub(crate) fn with_validation(self, validation: ServerCertificateValidation) -> Self {
        Self { validation, ..self }
    }

    /// Sends items as text, not as Cosmos binary JSON.
    pub(crate) fn with_text(self) -> Self {
        Self { is_text: true, ..self }
    }

    pub(crate) async fn client(self) -> azure_data_cosmos::Result<CosmosClient> {
        let pool =
            ConnectionPoolOptions::builder().with_server_certificate_validation(self.validation).build()?;
        let runtime = CosmosRuntime::builder().with_connection_pool(pool).build().await?;
        let account = AccountReference::with_authentication_key(self.endpoint.parse()?, self.key);
        let mut builder: CosmosClientBuilder = CosmosClient::builder().with_runtime(runtime);
        if self.is_text {
            builder = builder.with_binary_encoding_options(BinaryEncodingOptions::new().with_enabled(false));
        }
        builder.build(account, RoutingStrategy::ProximityTo(Region::from(REGION))).await
    }
}
