//! `Emulator`: the emulator inside the SDK's driver, which the SDK's own tests use. It has no
//! server. The SDK's driver sends its requests into it directly, and our client does so through
//! its adapter for HTTP clients of azure_core.

use std::sync::Arc;

use async_trait::async_trait;
use azure_core::error::ErrorKind;
use azure_core::http::{AsyncRawResponse, HttpClient, Request, Url};
use azure_data_cosmos_driver::in_memory_emulator::{
    ContainerConfig, InMemoryEmulatorHttpClient, VirtualAccountConfig, VirtualRegion,
};
use azure_data_cosmos_driver::models::AccountReference;
use azure_data_cosmos_driver::{CosmosDriver, DriverOptions};
use perihelion_bench_client::{KEY, Problem};
use perihelion_client::{AzureHttpTransport, Client, Credential};
use serde_json::json;

use crate::arguments::PARTITIONS_MAX;

/// The address of the emulator. Nothing listens there.
const ENDPOINT: &str = "https://sdk-emulator.local/";

pub(crate) const DATABASE: &str = "bench";
pub(crate) const CONTAINER: &str = "transactions";

/// The emulator with one region, no throttling, and a container partitioned by `/pk`.
pub(crate) struct Emulator {
    client: Arc<InMemoryEmulatorHttpClient>,
}

impl Emulator {
    pub(crate) fn new() -> Result<Self, Problem> {
        let region = VirtualRegion::new("East US", ENDPOINT.parse()?);
        let client = InMemoryEmulatorHttpClient::try_new(VirtualAccountConfig::new(vec![region])?)?;
        let store = client.store();
        store.create_database(DATABASE);
        let key = serde_json::from_value(json!({"paths": ["/pk"], "kind": "Hash", "version": 2}))?;
        let config = ContainerConfig::new().with_partition_count(PARTITIONS_MAX as u32).build()?;
        store.create_container_with_config(DATABASE, CONTAINER, key, config);
        Ok(Self { client: Arc::new(client) })
    }

    /// The SDK's driver on this emulator.
    pub(crate) async fn driver(&self) -> Result<Arc<CosmosDriver>, Problem> {
        let runtime = self.client.runtime_builder().build().await?;
        let endpoint: Url = ENDPOINT.parse()?;
        let account = AccountReference::with_account_key(endpoint, KEY);
        Ok(runtime.create_driver(DriverOptions::builder(account).build()).await?)
    }

    /// Our client on this emulator.
    pub(crate) async fn our_client(&self) -> Result<Client, Problem> {
        let http_client = Arc::new(EmulatorHttpClient(Arc::clone(&self.client)));
        let client = Client::builder()
            .with_endpoint(ENDPOINT)
            .with_credential(Credential::emulator())
            .with_transport(AzureHttpTransport::new(http_client))
            .connect();
        Ok(client.await?)
    }
}

/// An HTTP client of azure_core that passes its requests to the emulator.
#[derive(Debug)]
struct EmulatorHttpClient(Arc<InMemoryEmulatorHttpClient>);

#[async_trait]
impl HttpClient for EmulatorHttpClient {
    async fn execute_request(&self, request: &Request) -> azure_core::Result<AsyncRawResponse> {
        let answer = self.0.execute_request(request).await;
        answer.map_err(|error| azure_core::Error::with_message(ErrorKind::Other, error.to_string()))
    }
}
