//! What a program can see of its requests: spans, diagnostics, headers, query metrics.
//!
//! `cargo run -p perihelion-client --example observing`

#[path = "common/account.rs"]
mod account;

use std::error::Error;

use perihelion_client::{Query, QueryMetrics};
use serde_json::{Value, json};
use tracing::Instrument;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::FmtSpan;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // Prints each span of an operation when it ends. A program that exports spans has the layer
    // of `tracing-opentelemetry` here.
    tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new("warn,perihelion_driver::operation=debug"))
        .with_span_events(FmtSpan::CLOSE)
        .with_ansi(false)
        .with_writer(std::io::stdout)
        .init();
    let account = account::ExampleAccount::open("observing").await?;
    let orders = account.orders().await?;

    // The span of the operation is below the span of the caller.
    let checkout = tracing::info_span!(target: "perihelion_driver::operation", "checkout", order = 7);
    let order = json!({"id": "7", "customer": "ada", "total": 120});
    let written = orders.upsert("ada", &order).instrument(checkout).await?;

    // One line for a log, JSON for a support case.
    println!("diagnostics: {}", written.receipt().diagnostics());
    println!("as JSON: {}", written.receipt().diagnostics().to_json());
    println!("header: lsn is {:?}", written.receipt().header("lsn"));

    let query = Query::new("SELECT * FROM c WHERE c.total > 100").with_query_metrics();
    let (mut feed, mut metrics) = (orders.query::<Value>(query), QueryMetrics::default());
    while let Some(page) = feed.next_page().await? {
        metrics += page.query_metrics().unwrap_or_default();
    }
    println!(
        "query: {} of {} documents that were loaded are in the result",
        metrics.output_documents, metrics.retrieved_documents
    );
    account.close().await
}
