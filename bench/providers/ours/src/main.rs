//! Our provider with its defaults: on the engine in this process, in memory or
//! in a directory, and on a server over the wire. Over TLS the server's
//! certificate is verified: the key is not the emulators', and the platform's
//! store is read from `SSL_CERT_FILE`.

use std::process::ExitCode;
use std::sync::Arc;

use duroxide::providers::Provider;
use duroxide_cdb::CosmosDBProvider;
use perihelion_bench_client::KEY;
use perihelion_bench_provider::{Place, Problem};
use perihelion_client::Credential;

fn main() -> ExitCode {
    perihelion_bench_provider::main(open)
}

async fn open(place: Place) -> Result<Arc<dyn Provider>, Problem> {
    let provider = match place.name.as_str() {
        "memory" => CosmosDBProvider::embedded_in_memory().await?,
        "durable" => CosmosDBProvider::embedded(&place.directory).await?,
        "wire" => {
            let credential = Credential::key(KEY)?;
            CosmosDBProvider::builder().with_credential(&place.endpoint, credential).open().await?
        }
        other => return Err(format!("our provider has no place `{other}`").into()),
    };
    Ok(Arc::new(provider))
}
