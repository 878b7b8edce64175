//! Events: an invoice waits until it is paid, or until its time is over.
//!
//! An event has a name and a text. Any client can raise an event for a workflow whose id it knows.
//! The event is delivered if the workflow waits for an event of this name, and is dropped otherwise.
//! So the invoice sets a status when it begins to wait, and the client waits for this status first.
//! Messages that may come at any time belong in a queue (see the sample `queues`).

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use duroxide::providers::Provider;
use duroxide::runtime::registry::ActivityRegistry;
use duroxide::runtime::{OrchestrationStatus, Runtime};
use duroxide::{Client, Either2, OrchestrationContext, OrchestrationRegistry};

/// The longest time to wait for a workflow.
const TIME_LIMIT: Duration = Duration::from_secs(30);

/// How often the client polls the status.
const STATUS_INTERVAL: Duration = Duration::from_millis(20);

/// How long the second invoice waits for its payment, which does not come.
const SHORT_TIME_TO_PAY: Duration = Duration::from_millis(300);

pub(crate) async fn run(store: Arc<dyn Provider>) -> Result<(), Box<dyn Error>> {
    let activities = ActivityRegistry::builder().build();
    let orchestrations = OrchestrationRegistry::builder().register_typed("invoice", invoice).build();
    let runtime = Runtime::start_with_store(store.clone(), activities, orchestrations).await;
    let client = Client::new(store);

    client.start_orchestration_typed("invoice-1", "invoice", TIME_LIMIT).await?;
    client.start_orchestration_typed("invoice-2", "invoice", SHORT_TIME_TO_PAY).await?;

    let status = client.wait_for_status_change("invoice-1", 0, STATUS_INTERVAL, TIME_LIMIT).await?;
    println!("{status:?}");
    assert!(matches!(status, OrchestrationStatus::Running { custom_status: Some(_), .. }));
    client.raise_event("invoice-1", "payment", "12.50").await?;

    for (instance, expected) in [("invoice-1", "paid: 12.50"), ("invoice-2", "not paid in time")] {
        let output: String = client.wait_for_orchestration_typed(instance, TIME_LIMIT).await??;
        println!("{instance}: {output}");
        assert_eq!(output, expected);
    }

    runtime.shutdown(None).await;
    Ok(())
}

async fn invoice(context: OrchestrationContext, time_to_pay: Duration) -> Result<String, String> {
    let payment = context.schedule_wait("payment");
    let end = context.schedule_timer(time_to_pay);
    // The status is stored in the same commit as the wait and the timer. So a client that sees the
    // status can raise the event.
    context.set_custom_status("waits for the payment");
    match context.select2(payment, end).await {
        Either2::First(amount) => Ok(format!("paid: {amount}")),
        Either2::Second(()) => Ok("not paid in time".to_owned()),
    }
}
