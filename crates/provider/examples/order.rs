//! One workflow, stored in memory, in a directory, or in the account of
//! `AZURE_COSMOS_CONNECTION_STRING` (Azure or `perihelion dev`). A second run on the same
//! directory or account finds the order completed.
//!
//! `cargo run -p duroxide-cdb --example order -- ./data`

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use duroxide::runtime::registry::ActivityRegistry;
use duroxide::runtime::{OrchestrationStatus, Runtime};
use duroxide::{ActivityContext, Client, OrchestrationContext, OrchestrationRegistry};
use duroxide_cdb::CosmosDBProvider;

/// The longest time to wait for the order.
const TIME_LIMIT: Duration = Duration::from_secs(30);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let store = open_store().await?;
    let activities = ActivityRegistry::builder()
        .register("charge", |_: ActivityContext, order: String| async move {
            println!("charging order {order}");
            Ok(format!("order {order} is paid"))
        })
        .build();
    let orchestrations = OrchestrationRegistry::builder()
        .register("order", |context: OrchestrationContext, order: String| async move {
            context.schedule_timer(Duration::from_millis(200)).await;
            context.schedule_activity("charge", order).await
        })
        .build();
    let runtime = Runtime::start_with_store(store.clone(), activities, orchestrations).await;
    let client = Client::new(store.clone());
    client.start_orchestration("order-1", "order", "1").await?;
    match client.wait_for_orchestration("order-1", TIME_LIMIT).await? {
        OrchestrationStatus::Completed { output, .. } => println!("{output}"),
        other => println!("{other:?}"),
    }
    runtime.shutdown(None).await;
    Ok(())
}

async fn open_store() -> Result<Arc<CosmosDBProvider>, Box<dyn Error>> {
    let connection_string = std::env::var("AZURE_COSMOS_CONNECTION_STRING").ok();
    let store = match (connection_string, std::env::args().nth(1)) {
        (Some(text), _) => CosmosDBProvider::builder().with_connection_string(&text).open().await?,
        (None, Some(directory)) => CosmosDBProvider::embedded(directory).await?,
        (None, None) => CosmosDBProvider::embedded_in_memory().await?,
    };
    Ok(Arc::new(store))
}
