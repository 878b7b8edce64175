// A worker: it runs the workflow `order`, and keeps every step of it in the database.
//
// COSMOS_ENDPOINT and COSMOS_KEY name the account. Without them the account is the server of
// `perihelion dev` on this machine. Kill the worker at any time and start it again: workflows
// continue from their last committed step. README.md has the commands to try it.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use duroxide::runtime::Runtime;
use duroxide::runtime::registry::ActivityRegistry;
use duroxide::{ActivityContext, OrchestrationContext, OrchestrationRegistry};
use duroxide_cdb::{CosmosDBProvider, CosmosDBProviderConfig};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let config = CosmosDBProviderConfig::from_env();
    println!("connecting to {}", config.endpoint);
    let store = Arc::new(CosmosDBProvider::new_with_config(config).await?);
    let runtime = Runtime::start_with_store(store, activities(), orchestrations()).await;
    println!("the worker runs; Ctrl-C ends it");
    tokio::signal::ctrl_c().await?;
    runtime.shutdown(None).await;
    Ok(())
}

/// The workflow. After every step it runs again from its start and gets the recorded results. So
/// it must not use a clock, random numbers or the network itself. Activities may use them.
async fn order(context: OrchestrationContext, item: String) -> Result<String, String> {
    let reserved = context.schedule_activity("reserve", item).await?;
    context.schedule_timer(Duration::from_secs(1)).await;
    context.set_custom_status("waits for payment");
    let payment = context.schedule_wait("paid").await;
    Ok(format!("{reserved}, paid with {payment}"))
}

/// An activity: ordinary code, with any side effects. After a crash it may run a second time, so a
/// second run must do no harm.
async fn reserve(_: ActivityContext, item: String) -> Result<String, String> {
    println!("reserving {item}");
    Ok(format!("{item} is reserved"))
}

fn activities() -> ActivityRegistry {
    ActivityRegistry::builder().register("reserve", reserve).build()
}

fn orchestrations() -> OrchestrationRegistry {
    OrchestrationRegistry::builder().register("order", order).build()
}
