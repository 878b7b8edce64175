//! Versioning: new code is deployed while workflows of the old code still run.
//!
//! A workflow is replayed from its history, so its code must not change while it runs. Register
//! the new code as a new version beside the old one. A workflow that has begun keeps its version.
//! A new workflow gets the latest version. A workflow that runs for ever gets the latest version
//! when it continues as new.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use duroxide::providers::Provider;
use duroxide::runtime::Runtime;
use duroxide::runtime::registry::ActivityRegistry;
use duroxide::{ActivityContext, Client, OrchestrationContext, OrchestrationRegistry};

/// The longest time to wait for a workflow.
const TIME_LIMIT: Duration = Duration::from_secs(30);

/// How often the client polls a status.
const STATUS_INTERVAL: Duration = Duration::from_millis(20);

pub(crate) async fn run(store: Arc<dyn Provider>) -> Result<(), Box<dyn Error>> {
    let client = Client::new(store.clone());

    // The first deployment has version 1 only. An order and a newsletter begin with it and wait.
    let orchestrations = OrchestrationRegistry::builder()
        .register_versioned("order", "1.0.0", order_1)
        .register_versioned("newsletter", "1.0.0", newsletter_1)
        .build();
    let runtime = Runtime::start_with_store(store.clone(), activities(), orchestrations).await;
    for (instance, orchestration) in [("order-1", "order"), ("newsletter-1", "newsletter")] {
        client.start_orchestration(instance, orchestration, "").await?;
        client.wait_for_status_change(instance, 0, STATUS_INTERVAL, TIME_LIMIT).await?;
    }
    runtime.shutdown(None).await;

    // The second deployment has both versions.
    let orchestrations = OrchestrationRegistry::builder()
        .register_versioned("order", "1.0.0", order_1)
        .register_versioned("order", "2.0.0", order_2)
        .register_versioned("newsletter", "1.0.0", newsletter_1)
        .register_versioned("newsletter", "2.0.0", newsletter_2)
        .build();
    let runtime = Runtime::start_with_store(store, activities(), orchestrations).await;
    client.start_orchestration("order-2", "order", "").await?;
    client.start_orchestration_versioned("order-3", "order", "1.0.0", "").await?;
    for instance in ["order-2", "order-3"] {
        client.wait_for_status_change(instance, 0, STATUS_INTERVAL, TIME_LIMIT).await?;
    }
    for (instance, expected) in [
        // It has begun with version 1.
        ("order-1", "pay"),
        // It is new.
        ("order-2", "check, pay"),
        // It was started with version 1 by name.
        ("order-3", "pay"),
        // It has begun with version 1, and continued as new with the latest.
        ("newsletter-1", "letter of version 1, letter of version 2"),
    ] {
        client.raise_event(instance, "go", "").await?;
        let output: String = client.wait_for_orchestration_typed(instance, TIME_LIMIT).await??;
        println!("{instance}: {output}");
        assert_eq!(output, expected);
    }

    runtime.shutdown(None).await;
    Ok(())
}

fn activities() -> ActivityRegistry {
    let step = |_: ActivityContext, what: String| async move { Ok(what) };
    ActivityRegistry::builder().register("step", step).build()
}

/// Waits for the event that lets an order or a newsletter go on.
async fn wait_to_go_on(context: &OrchestrationContext) {
    let event = context.schedule_wait("go");
    context.set_custom_status("waits");
    event.await;
}

async fn order_1(context: OrchestrationContext, _: String) -> Result<String, String> {
    wait_to_go_on(&context).await;
    context.schedule_activity("step", "pay").await
}

/// Has one more step. A replay of an order that has begun without this step would fail.
async fn order_2(context: OrchestrationContext, _: String) -> Result<String, String> {
    let checked = context.schedule_activity("step", "check").await?;
    wait_to_go_on(&context).await;
    let paid = context.schedule_activity("step", "pay").await?;
    Ok(format!("{checked}, {paid}"))
}

async fn newsletter_1(context: OrchestrationContext, _: String) -> Result<String, String> {
    wait_to_go_on(&context).await;
    let sent = context.schedule_activity("step", "letter of version 1").await?;
    context.continue_as_new(sent).await
}

async fn newsletter_2(context: OrchestrationContext, sent: String) -> Result<String, String> {
    let letter = context.schedule_activity("step", "letter of version 2").await?;
    Ok(format!("{sent}, {letter}"))
}
