//! Queues: a shopping basket receives messages, one after the other.
//!
//! A message stays in its queue until the workflow takes it, in the order of arrival. It may
//! come while the workflow does something else, or between two executions. (A message to a
//! workflow that was never started is dropped. At most 100 unread messages survive a
//! continue-as-new, so a workflow must be faster than its senders in the long run.)

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use duroxide::providers::Provider;
use duroxide::runtime::Runtime;
use duroxide::runtime::registry::ActivityRegistry;
use duroxide::{ActivityContext, Client, OrchestrationContext, OrchestrationRegistry};

/// The longest time to wait for a workflow.
const TIME_LIMIT: Duration = Duration::from_secs(30);

/// The message that ends a basket.
const CHECKOUT: &str = "checkout";

pub(crate) async fn run(store: Arc<dyn Provider>) -> Result<(), Box<dyn Error>> {
    let activities = ActivityRegistry::builder().register("reserve", reserve).build();
    let orchestrations = OrchestrationRegistry::builder().register("basket", basket).build();
    let runtime = Runtime::start_with_store(store.clone(), activities, orchestrations).await;
    let client = Client::new(store);

    client.start_orchestration("basket-1", "basket", "basket:").await?;
    for message in ["apple", "pear", "plum", CHECKOUT] {
        client.enqueue_event("basket-1", "messages", message).await?;
    }
    let output: String = client.wait_for_orchestration_typed("basket-1", TIME_LIMIT).await??;
    println!("{output}");
    assert_eq!(output, "basket: [apple] [pear] [plum]");
    // One execution for every message.
    assert_eq!(client.list_executions("basket-1").await?.len(), 4);

    runtime.shutdown(None).await;
    Ok(())
}

/// Takes one message, and continues as a new execution with a short history.
async fn basket(context: OrchestrationContext, content: String) -> Result<String, String> {
    let message = context.dequeue_event("messages").await;
    if message == CHECKOUT {
        return Ok(content);
    }
    let reserved = context.schedule_activity("reserve", message).await?;
    context.continue_as_new(format!("{content} {reserved}")).await
}

async fn reserve(_: ActivityContext, item: String) -> Result<String, String> {
    Ok(format!("[{item}]"))
}
