//! The client program of our library, `perihelion-client`, with its defaults except one: a
//! write does not request the document in the answer. The SDK does not request it either.
//! Certificates are verified against `SSL_CERT_FILE`, because the key is not the emulators'
//! key.

use std::process::ExitCode;

use perihelion_bench_client::{Arguments, BulkDocument, Document, KEY, NewDocument, Problem};
use perihelion_client::{BulkOperation, Client, Container, Credential, ItemOptions};

fn main() -> ExitCode {
    perihelion_bench_client::main(connect)
}

async fn connect(arguments: Arguments) -> Result<Ours, Problem> {
    let client = open(&arguments.endpoint, Credential::key(KEY)?).await?;
    let container = client.database(&arguments.database).container(&arguments.container);
    let write_options = ItemOptions::new().with_content_on_write(false);
    Ok(Ours { container, write_options })
}

#[cfg(not(feature = "faults"))]
async fn open(endpoint: &str, credential: Credential) -> Result<Client, Problem> {
    Ok(Client::with_credential(endpoint, credential).await?)
}

/// The client with an injector of faults that has no rules.
#[cfg(feature = "faults")]
async fn open(endpoint: &str, credential: Credential) -> Result<Client, Problem> {
    use perihelion_client::HttpOptions;
    use perihelion_client::fault_injection::FaultInjector;
    let http = HttpOptions::default().with_fault_injection(&FaultInjector::with_seed(1));
    Ok(Client::builder()
        .with_endpoint(endpoint)
        .with_credential(credential)
        .with_http(http)
        .connect()
        .await?)
}

#[derive(Clone)]
struct Ours {
    container: Container,
    write_options: ItemOptions,
}

impl perihelion_bench_client::Client for Ours {
    async fn read(&mut self, key: &str, id: &str) -> Result<Document, Problem> {
        Ok(self.container.read::<Document>(key, id).await?.into_value())
    }

    async fn create(&mut self, document: &NewDocument<'_>) -> Result<(), Problem> {
        self.container.create_with(document.pk, document, &self.write_options).await?;
        Ok(())
    }

    async fn bulk<'a>(
        &mut self,
        documents: impl Iterator<Item = BulkDocument<'a>> + Send + 'a,
    ) -> Result<(), Problem> {
        let operations = documents.map(|document| {
            let document = document.document();
            BulkOperation::create(document.pk, &document)
        });
        let mut bulk = self.container.bulk(operations);
        while let Some(result) = bulk.next().await {
            result.into_outcome()?;
        }
        Ok(())
    }
}
