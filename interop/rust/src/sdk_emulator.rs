//! `SdkEmulator`: the emulator inside the SDK's driver, which the SDK's own tests use. It has no
//! server. The SDK's driver sends its requests into it directly, and our client does so through
//! its adapter for HTTP clients of azure_core.

use std::sync::Arc;

use async_trait::async_trait;
use azure_core::error::ErrorKind;
use azure_core::http::{AsyncRawResponse, HttpClient, Request, Url};
use azure_data_cosmos_driver::in_memory_emulator::{
    InMemoryEmulatorHttpClient, VirtualAccountConfig, VirtualRegion,
};
use azure_data_cosmos_driver::models::AccountReference;
use azure_data_cosmos_driver::{CosmosDriver, DriverOptions};
use perihelion_client::{AzureHttpTransport, Client, Credential};
use serde_json::json;

use crate::check::Problem;
use crate::world::WELL_KNOWN_KEY;

/// The address of the emulator. Nothing listens there.
const ENDPOINT: &str = "https://sdk-emulator.local/";

/// The emulator, with the database `interop` and its containers `a` and `b`, both partitioned by
/// `/pk`.
pub(crate) struct SdkEmulator {
    emulator: Arc<InMemoryEmulatorHttpClient>,
}

impl SdkEmulator {
    pub(crate) fn new() -> Result<Self, Problem> {
        let region = VirtualRegion::new("East US", ENDPOINT.parse()?);
        let emulator = InMemoryEmulatorHttpClient::try_new(VirtualAccountConfig::new(vec![region])?)?;
        emulator.store().create_database("interop");
        for name in ["a", "b"] {
            let key = serde_json::from_value(json!({"paths": ["/pk"], "kind": "Hash", "version": 2}))?;
            emulator.store().create_container("interop", name, key);
        }
        Ok(Self { emulator: Arc::new(emulator) })
    }

    /// The SDK's driver on this emulator.
    pub(crate) async fn driver(&self) -> Result<Arc<CosmosDriver>, Problem> {
        let runtime = self.emulator.runtime_builder().build().await?;
        let endpoint: Url = ENDPOINT.parse()?;
        let account = AccountReference::with_account_key(endpoint, WELL_KNOWN_KEY);
        Ok(runtime.create_driver(DriverOptions::builder(account).build()).await?)
    }

    /// Our client on this emulator.
    pub(crate) async fn our_client(&self) -> Result<Client, Problem> {
        let http_client = Arc::new(EmulatorHttpClient(Arc::clone(&self.emulator)));
        let client = Client::builder()
            .with_endpoint(ENDPOINT)
            .with_credential(Credential::emulator())
            .with_transport(AzureHttpTransport::new(http_client))
            .connect();
        Ok(client.await?)
    }
}

/// The emulator as an HTTP client of azure_core.
#[derive(Debug)]
struct EmulatorHttpClient(Arc<InMemoryEmulatorHttpClient>);

#[async_trait]
impl HttpClient for EmulatorHttpClient {
    async fn execute_request(&self, request: &Request) -> azure_core::Result<AsyncRawResponse> {
        let answer = self.0.execute_request(request).await;
        answer.map_err(|error| azure_core::Error::with_message(ErrorKind::Other, error.to_string()))
    }
}
