//! Types: inputs and outputs can be your own types instead of strings.
//!
//! Inputs and outputs are stored as JSON. Workflows may run for a long time, so a new version of a
//! type must still read what an older version has written: add members with `#[serde(default)]`.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use duroxide::providers::Provider;
use duroxide::runtime::Runtime;
use duroxide::runtime::registry::ActivityRegistry;
use duroxide::{ActivityContext, Client, OrchestrationContext, OrchestrationRegistry};
use serde::{Deserialize, Serialize};

/// The longest time to wait for a workflow.
const TIME_LIMIT: Duration = Duration::from_secs(30);

#[derive(Debug, Serialize, Deserialize)]
struct Order {
    customer: String,
    items: Vec<Item>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Item {
    name: String,
    count: u32,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Receipt {
    customer: String,
    total_cents: u32,
}

pub(crate) async fn run(store: Arc<dyn Provider>) -> Result<(), Box<dyn Error>> {
    let activities = ActivityRegistry::builder().register_typed("price", price_cents).build();
    let orchestrations = OrchestrationRegistry::builder().register_typed("order", order).build();
    let runtime = Runtime::start_with_store(store.clone(), activities, orchestrations).await;
    let client = Client::new(store);

    let item = |name: &str, count| Item { name: name.to_owned(), count };
    let ordered = Order { customer: "Ada".to_owned(), items: vec![item("apple", 3), item("melon", 1)] };
    client.start_orchestration_typed("order-1", "order", ordered).await?;
    let receipt: Receipt = client.wait_for_orchestration_typed("order-1", TIME_LIMIT).await??;
    println!("{receipt:?}");
    assert_eq!(receipt, Receipt { customer: "Ada".to_owned(), total_cents: 3 * 40 + 250 });

    // A type is checked where it is read. This workflow fails with the reason.
    client.start_orchestration("order-2", "order", "three apples").await?;
    let refused = client.wait_for_orchestration_typed::<Receipt>("order-2", TIME_LIMIT).await?;
    println!("{refused:?}");
    assert!(refused.is_err());

    runtime.shutdown(None).await;
    Ok(())
}

async fn order(context: OrchestrationContext, order: Order) -> Result<Receipt, String> {
    let mut total_cents = 0;
    for item in order.items {
        let price_cents: u32 = context.schedule_activity_typed("price", &item.name).await?;
        total_cents += price_cents * item.count;
    }
    Ok(Receipt { customer: order.customer, total_cents })
}

async fn price_cents(_: ActivityContext, name: String) -> Result<u32, String> {
    match name.as_str() {
        "apple" => Ok(40),
        "melon" => Ok(250),
        _ => Err(format!("nothing is called {name}")),
    }
}
