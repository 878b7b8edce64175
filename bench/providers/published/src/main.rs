//! The provider program of the published crate, duroxide-cdb 0.1.10 from crates.io, with its
//! defaults, on our server.

use std::process::ExitCode;
use std::sync::Arc;

use duroxide::providers::Provider;
use duroxide_cdb::CosmosDBProvider;
use perihelion_bench_client::KEY;
use perihelion_bench_provider::{Location, Problem};

fn main() -> ExitCode {
    perihelion_bench_provider::main(open)
}

async fn open(location: Location) -> Result<Arc<dyn Provider>, Problem> {
    // The crate appends a path that begins with a slash, so the endpoint must not end with one.
    let endpoint = location.endpoint.trim_end_matches('/');
    let provider = CosmosDBProvider::new(endpoint, KEY, "duroxide").await?;
    Ok(Arc::new(provider))
}
