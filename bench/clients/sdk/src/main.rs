//! The client program of the official SDK, `azure_data_cosmos`, as published and with its
//! defaults. The SDK verifies certificates. Its platform verifier reads `SSL_CERT_FILE`.

use std::process::ExitCode;

use azure_data_cosmos::clients::ContainerClient;
use azure_data_cosmos::options::{ConnectionPoolOptions, Region, ServerCertificateValidation};
use azure_data_cosmos::{AccountReference, CosmosClient, CosmosRuntime, RoutingStrategy};
use perihelion_bench_client::{Arguments, Client, Document, KEY, NewDocument, Problem};

/// The SDK requires the name of a region. The account has a region with another name, and the
/// SDK falls back to that region.
const REGION: &str = "East US";

fn main() -> ExitCode {
    perihelion_bench_client::main(connect)
}

async fn connect(arguments: Arguments) -> Result<Sdk, Problem> {
    let pool = ConnectionPoolOptions::builder()
        .with_server_certificate_validation(ServerCertificateValidation::Required)
        .build()?;
    let runtime = CosmosRuntime::builder().with_connection_pool(pool).build().await?;
    let account = AccountReference::with_authentication_key(arguments.endpoint.parse()?, KEY.to_owned());
    let client = CosmosClient::builder()
        .with_runtime(runtime)
        .build(account, RoutingStrategy::ProximityTo(Region::from(REGION)))
        .await?;
    let database = client.database_client(&arguments.database);
    let container = database.container_client(arguments.container, None).await?;
    Ok(Sdk { container })
}

#[derive(Clone)]
struct Sdk {
    container: ContainerClient,
}

impl Client for Sdk {
    async fn read(&mut self, key: &str, id: &str) -> Result<Document, Problem> {
        Ok(self.container.read_item(key.to_owned(), id, None).await?.into_model()?)
    }

    async fn create(&mut self, document: &NewDocument<'_>) -> Result<(), Problem> {
        self.container.create_item(document.pk.to_owned(), document.id, document, None).await?;
        Ok(())
    }
}
