//! Key-values: a workflow keeps a stock of apples and answers orders. Clients and other
//! workflows read its values.
//!
//! The values of a workflow are changed in the commit of its turn, survive continue-as-new
//! and can be read after the workflow has ended. duroxide allows 150 keys per workflow and
//! 64 KiB per value.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use duroxide::providers::Provider;
use duroxide::runtime::Runtime;
use duroxide::runtime::registry::ActivityRegistry;
use duroxide::{Client, OrchestrationContext, OrchestrationRegistry};
use serde::{Deserialize, Serialize};

/// The longest time to wait for a workflow.
const TIME_LIMIT: Duration = Duration::from_secs(30);

/// The message that closes the stock.
const CLOSE: &str = "close";

#[derive(Serialize, Deserialize)]
struct Order {
    id: String,
    apples: u32,
}

pub(crate) async fn run(store: Arc<dyn Provider>) -> Result<(), Box<dyn Error>> {
    let activities = ActivityRegistry::builder().build();
    let orchestrations =
        OrchestrationRegistry::builder().register("stock", stock).register("report", report).build();
    let runtime = Runtime::start_with_store(store.clone(), activities, orchestrations).await;
    let client = Client::new(store);

    client.start_orchestration("stock-1", "stock", "").await?;
    // An order is a message in the queue `orders`. The workflow stores its answer as a value under
    // the order's id.
    for (id, apples, expected) in [("order-1", 4, "reserved"), ("order-2", 100, "only 6 left")] {
        let order = Order { id: id.to_owned(), apples };
        client.enqueue_event_typed("stock-1", "orders", &order).await?;
        let answer = client.wait_for_kv_value("stock-1", id, TIME_LIMIT).await?;
        println!("{id}: {answer}");
        assert_eq!(answer, expected);
    }

    client.start_orchestration("report-1", "report", "stock-1").await?;
    let output: String = client.wait_for_orchestration_typed("report-1", TIME_LIMIT).await??;
    println!("{output}");
    assert_eq!(output, "stock-1 has 6 apples");

    client.enqueue_event("stock-1", "orders", CLOSE).await?;
    client.wait_for_orchestration("stock-1", TIME_LIMIT).await?;
    assert_eq!(client.get_kv_value_typed::<u32>("stock-1", "apples").await?, Some(6));
    let stats = client.get_orchestration_stats("stock-1").await?.ok_or("stock-1 has no statistics")?;
    println!("{} keys, {} bytes", stats.kv_user_key_count, stats.kv_total_value_bytes);
    assert_eq!(stats.kv_user_key_count, 3);

    runtime.shutdown(None).await;
    Ok(())
}

async fn stock(context: OrchestrationContext, _: String) -> Result<String, String> {
    context.set_kv_value_typed("apples", &10_u32);
    loop {
        let message = context.dequeue_event("orders").await;
        if message == CLOSE {
            return Ok("closed".to_owned());
        }
        let order: Order = match serde_json::from_str(&message) {
            Ok(order) => order,
            Err(error) => {
                context.trace_warn(format!("ignored, because it is not an order: {message}: {error}"));
                continue;
            }
        };
        let apples: u32 = context.get_kv_value_typed("apples")?.unwrap_or_default();
        match apples.checked_sub(order.apples) {
            Some(left) => {
                context.set_kv_value_typed("apples", &left);
                context.set_kv_value(order.id, "reserved");
            }
            None => context.set_kv_value(order.id, format!("only {apples} left")),
        }
    }
}

/// Reads a value of another workflow. duroxide records the value in the history of this workflow,
/// like the result of an activity, so a replay reads the same value.
async fn report(context: OrchestrationContext, stock: String) -> Result<String, String> {
    let apples: Option<u32> = context.get_kv_value_from_instance_typed(stock.as_str(), "apples").await?;
    Ok(format!("{stock} has {} apples", apples.ok_or("there is no stock")?))
}
