//! The provider program of our provider, with its defaults. It has three locations: the engine
//! in this process in memory, the engine in a directory, and a server. Over TLS the server's
//! certificate is verified against `SSL_CERT_FILE`, because the key is not the emulators'
//! key.

use std::process::ExitCode;
use std::sync::Arc;

use duroxide::providers::Provider;
use duroxide_cdb::CosmosDBProvider;
use perihelion_bench_client::KEY;
use perihelion_bench_provider::{Location, Problem};
use perihelion_client::Credential;

fn main() -> ExitCode {
    perihelion_bench_provider::main(open)
}

async fn open(location: Location) -> Result<Arc<dyn Provider>, Problem> {
    let provider = match location.name.as_str() {
        "memory" => CosmosDBProvider::embedded_in_memory().await?,
        "durable" => CosmosDBProvider::embedded(&location.directory).await?,
        "wire" => {
            let credential = Credential::key(KEY)?;
            CosmosDBProvider::builder().with_credential(&location.endpoint, credential).open().await?
        }
        other => return Err(format!("our provider has no location `{other}`").into()),
    };
    Ok(Arc::new(provider))
}
