//! Samples: one small program for each thing that a workflow can do. Each file beside this
//! one is a sample: read it from `run` on, and copy what you need.
//!
//! ```console
//! cargo run -p duroxide-cdb --example samples              # lists the samples
//! cargo run -p duroxide-cdb --example samples -- fan_out   # runs one
//! cargo run -p duroxide-cdb --example samples -- all       # runs all
//! ```
//!
//! A sample checks its own result: the program fails when the result is wrong. Workflows are
//! stored by the engine in this process, in memory. With `AZURE_COSMOS_CONNECTION_STRING` they
//! are stored in that account, in a database that is deleted at the end. `RUST_LOG=warn` or
//! `RUST_LOG=info` shows the log of duroxide's runtime.

#[path = "all.rs"]
mod all;

use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;

use all::Sample;
use duroxide_cdb::CosmosDBProvider;
use duroxide_cdb::perihelion_client::Client;
use tracing::subscriber::NoSubscriber;

/// The exit code for a name that is not the name of a sample.
const WRONG_USAGE: u8 = 2;

#[tokio::main]
async fn main() -> ExitCode {
    if std::env::var_os("RUST_LOG").is_none() {
        // Otherwise the first runtime would log every failed activity. In some samples activities
        // fail on purpose.
        let _ = tracing::subscriber::set_global_default(NoSubscriber::default());
    }
    let samples = all::samples();
    let names: Vec<String> = std::env::args().skip(1).collect();
    if names.is_empty() {
        for Sample { name, about, .. } in samples {
            println!("{name:<20}{about}");
        }
        return ExitCode::SUCCESS;
    }
    let is_known = |name: &String| name == "all" || samples.iter().any(|sample| sample.name == name);
    if let Some(unknown) = names.iter().find(|name| !is_known(name)) {
        eprintln!("there is no sample `{unknown}`. Run this program without a name to list the samples.");
        return ExitCode::from(WRONG_USAGE);
    }
    let is_chosen = |sample: &Sample| names.iter().any(|name| name == "all" || name == sample.name);
    for sample in samples.into_iter().filter(is_chosen) {
        println!("=== {}: {}", sample.name, sample.about);
        if let Err(error) = run(&sample).await {
            eprintln!("the sample `{}` failed: {error}", sample.name);
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

/// Runs a sample on a provider of its own.
async fn run(sample: &Sample) -> Result<(), Box<dyn Error>> {
    if std::env::var_os("AZURE_COSMOS_CONNECTION_STRING").is_none_or(|text| text.is_empty()) {
        let store = CosmosDBProvider::embedded_in_memory().await?;
        (sample.run)(Arc::new(store.clone())).await?;
        store.close().await;
        return Ok(());
    }
    let client = Client::from_env().await?;
    let database = client.database(&format!("duroxide-sample-{}", sample.name));
    // An interrupted run may have left its database, with old workflows.
    if let Err(error) = database.delete().await
        && !error.is_not_found()
    {
        return Err(error.into());
    }
    let store = CosmosDBProvider::builder().with_client(client).with_database(database.name()).open().await?;
    (sample.run)(Arc::new(store.clone())).await?;
    store.close().await;
    database.delete().await?;
    Ok(())
}
