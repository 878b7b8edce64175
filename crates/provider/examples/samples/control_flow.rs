//! Control flow: an orchestration is an ordinary function, with `if`, `for` and variables.
//!
//! The runtime calls it again after every step, with the results stored so far. It has to make the
//! same decisions as before. So it must not read a clock, random numbers, files or global
//! variables itself. The context has `utc_now` and `new_guid`, whose values are stored like
//! the results of activities.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use duroxide::providers::Provider;
use duroxide::runtime::Runtime;
use duroxide::runtime::registry::ActivityRegistry;
use duroxide::{ActivityContext, Client, OrchestrationContext, OrchestrationRegistry};

/// The longest time to wait for a workflow.
const TIME_LIMIT: Duration = Duration::from_secs(30);

/// The heaviest parcel that goes by post, in kilograms.
const POST_MAX_KG: u32 = 30;

pub(crate) async fn run(store: Arc<dyn Provider>) -> Result<(), Box<dyn Error>> {
    let activities = ActivityRegistry::builder().register("weigh", weigh).register("send", send).build();
    let orchestrations = OrchestrationRegistry::builder().register("shipment", shipment).build();
    let runtime = Runtime::start_with_store(store.clone(), activities, orchestrations).await;
    let client = Client::new(store);

    client.start_orchestration("shipment-1", "shipment", "books, piano, lamp").await?;
    let output: String = client.wait_for_orchestration_typed("shipment-1", TIME_LIMIT).await??;
    println!("{output}");

    let lines: Vec<&str> = output.lines().collect();
    assert_eq!(lines.len(), 3);
    for (line, expected) in lines.iter().zip(["books by post", "piano by freight", "lamp by post"]) {
        assert!(line.contains(expected), "{line}");
    }
    // All lines have the same id: it was made once, although the orchestration was called after
    // every step.
    let id = |line: &str| line.split(':').next().map(str::to_owned);
    assert!(lines.iter().all(|line| id(line) == id(lines[0])), "{output}");

    runtime.shutdown(None).await;
    Ok(())
}

async fn shipment(context: OrchestrationContext, things: String) -> Result<String, String> {
    let id = context.new_guid().await?;
    let begun = context.utc_now().await?;
    let mut sent = Vec::new();
    for thing in things.split(", ") {
        let weight: u32 = context.schedule_activity_typed("weigh", &thing).await?;
        let way = if weight <= POST_MAX_KG { "post" } else { "freight" };
        sent.push(context.schedule_activity("send", format!("{id}: {thing} by {way}")).await?);
    }
    let took = context.utc_now().await?.duration_since(begun).unwrap_or_default();
    // A line in the log, written only the first time that the orchestration comes here.
    context.trace_info(format!("{} parcels sent within {} ms", sent.len(), took.as_millis()));
    Ok(sent.join("\n"))
}

async fn weigh(_: ActivityContext, thing: String) -> Result<String, String> {
    let kilograms = if thing == "piano" { 300 } else { 3 };
    Ok(kilograms.to_string())
}

async fn send(_: ActivityContext, parcel: String) -> Result<String, String> {
    Ok(format!("{parcel}, sent"))
}
