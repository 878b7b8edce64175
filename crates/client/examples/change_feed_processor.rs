//! A change feed processor: instances share the changes of a container. Each range has a
//! lease, which stores the owner and the position.
//!
//! `cargo run -p perihelion-client --example change_feed_processor`
//!
//! With arguments `INSTANCE DATABASE` this process is one instance, and other processes can be
//! further instances. It processes the orders of that database until it is killed, and prints the
//! id of each order.

#[path = "common/account.rs"]
mod account;

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use perihelion_client::{
    ChangeFeedProcessor, Changes, Client, Container, ContainerProperties, ProcessorOptions, handler_fn,
};
use serde::Deserialize;
use serde_json::json;

#[derive(Debug, Deserialize)]
struct Order {
    id: String,
}

/// Short times, so that the example ends soon. The defaults are longer.
fn options(instance: &str) -> ProcessorOptions {
    let (lease, renew, acquire) =
        (Duration::from_millis(1500), Duration::from_millis(400), Duration::from_millis(300));
    ProcessorOptions::new()
        .with_instance(instance)
        .from_beginning()
        .with_lease_times(lease, renew, acquire)
        .with_poll_interval(Duration::from_millis(50))
}

async fn start(
    orders: &Container,
    leases: &Container,
    instance: &str,
    processed: &Arc<AtomicUsize>,
) -> Result<ChangeFeedProcessor, Box<dyn Error>> {
    let (name, processed) = (instance.to_owned(), Arc::clone(processed));
    let handler = handler_fn(move |changes: Changes<Order>| {
        for order in &changes.items {
            println!("{name} processes order {}", order.id);
        }
        processed.fetch_add(changes.items.len(), Ordering::Relaxed);
        async { Ok(()) }
    });
    Ok(ChangeFeedProcessor::start(orders, leases, "billing", handler, options(instance)).await?)
}

/// Processes orders until the process is killed.
async fn run_instance(instance: &str, database: &str) -> Result<(), Box<dyn Error>> {
    let database = Client::from_env().await?.database(database);
    let (orders, leases) = (database.container("orders"), database.container("leases"));
    let _processor = start(&orders, &leases, instance, &Arc::default()).await?;
    std::future::pending().await
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [instance, database] = arguments.as_slice() {
        return run_instance(instance, database).await;
    }
    let account = account::ExampleAccount::open("change-feed-processor").await?;
    let orders = account.orders().await?;
    let leases = ContainerProperties::new("leases", "/id");
    let leases = account.database.create_container_if_missing(&leases).await?;
    for n in 0..20 {
        let customer = format!("customer-{n}");
        orders.create(customer.as_str(), &json!({"id": n.to_string(), "customer": customer})).await?;
    }

    // Two instances, usually in two processes. Each gets some of the ranges.
    let processed = Arc::default();
    let first = start(&orders, &leases, "first", &processed).await?;
    let second = start(&orders, &leases, "second", &processed).await?;
    while processed.load(Ordering::Relaxed) < 20 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    first.stop().await;
    second.stop().await;
    for lag in ChangeFeedProcessor::lag(&orders, &leases, "billing", &options("any")).await? {
        println!("range {}: {} changes behind", lag.range, lag.changes);
    }
    account.close().await
}
