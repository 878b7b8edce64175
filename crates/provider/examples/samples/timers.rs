//! Timers: a delay that survives a restart, and a time limit for slow work.
//!
//! A timer is stored. It needs no process while it waits, may take seconds or months, and
//! is completed by any process that runs when it is due.

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use duroxide::providers::Provider;
use duroxide::runtime::Runtime;
use duroxide::runtime::registry::ActivityRegistry;
use duroxide::{ActivityContext, Client, Either2, OrchestrationContext, OrchestrationRegistry};
use serde::{Deserialize, Serialize};

/// The longest time to wait for a workflow.
const TIME_LIMIT: Duration = Duration::from_secs(30);

/// The delay of the reminder.
const DELAY: Duration = Duration::from_millis(300);

/// A question to a supplier, and how long to wait for the answer.
#[derive(Serialize, Deserialize)]
struct Question {
    supplier: String,
    patience: Duration,
}

pub(crate) async fn run(store: Arc<dyn Provider>) -> Result<(), Box<dyn Error>> {
    let activities =
        ActivityRegistry::builder().register("remind", remind).register("ask for the price", ask).build();
    let orchestrations = OrchestrationRegistry::builder()
        .register("reminder", reminder)
        .register_typed("quote", quote)
        .build();
    let runtime = Runtime::start_with_store(store.clone(), activities, orchestrations).await;
    let client = Client::new(store);

    let begun = Instant::now();
    client.start_orchestration("reminder-1", "reminder", "water the plants").await?;
    let output: String = client.wait_for_orchestration_typed("reminder-1", TIME_LIMIT).await??;
    println!("{output}, after {:?}", begun.elapsed());
    assert!(begun.elapsed() >= DELAY);

    let question = |supplier: &str, patience| Question { supplier: supplier.to_owned(), patience };
    client.start_orchestration_typed("quote-1", "quote", question("prompt", TIME_LIMIT)).await?;
    client.start_orchestration_typed("quote-2", "quote", question("silent", DELAY)).await?;
    for (instance, expected) in [("quote-1", "12.50"), ("quote-2", "no answer")] {
        let output: String = client.wait_for_orchestration_typed(instance, TIME_LIMIT).await??;
        println!("{instance}: {output}");
        assert_eq!(output, expected);
    }

    runtime.shutdown(None).await;
    Ok(())
}

async fn reminder(context: OrchestrationContext, text: String) -> Result<String, String> {
    context.schedule_timer(DELAY).await;
    context.schedule_activity("remind", text).await
}

/// Asks a supplier for a price, but waits only for some time.
async fn quote(context: OrchestrationContext, question: Question) -> Result<String, String> {
    let answer = context.schedule_activity("ask for the price", question.supplier);
    let limit = context.schedule_timer(question.patience);
    // The future that does not complete first is dropped. A dropped activity is cancelled.
    match context.select2(answer, limit).await {
        Either2::First(price) => price,
        Either2::Second(()) => Ok("no answer".to_owned()),
    }
}

async fn remind(_: ActivityContext, text: String) -> Result<String, String> {
    Ok(format!("remember: {text}"))
}

async fn ask(context: ActivityContext, supplier: String) -> Result<String, String> {
    if supplier == "silent" {
        context.cancelled().await;
        return Err("the workflow no longer waits for this price".to_owned());
    }
    Ok("12.50".to_owned())
}
