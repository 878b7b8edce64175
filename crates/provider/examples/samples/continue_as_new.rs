//! Continue-as-new: a subscription charges every month, for ever.
//!
//! The history of an execution grows with every step, and is read when a process takes the
//! workflow over. So a workflow that runs for ever ends its execution from time to time and
//! continues as a new one with an empty history: same id, new input. Old executions stay
//! until they are pruned. (`with_retention` on the provider's builder prunes them too.)

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use duroxide::providers::Provider;
use duroxide::runtime::Runtime;
use duroxide::runtime::registry::ActivityRegistry;
use duroxide::{ActivityContext, Client, OrchestrationContext, OrchestrationRegistry, PruneOptions};

/// The longest time to wait for a workflow.
const TIME_LIMIT: Duration = Duration::from_secs(30);

/// A month, in the time of this sample.
const MONTH: Duration = Duration::from_millis(50);

/// The sample ends after this many months.
const MONTHS: u32 = 5;

pub(crate) async fn run(store: Arc<dyn Provider>) -> Result<(), Box<dyn Error>> {
    let activities = ActivityRegistry::builder().register_typed("charge", charge).build();
    let orchestrations = OrchestrationRegistry::builder().register("subscription", subscription).build();
    let runtime = Runtime::start_with_store(store.clone(), activities, orchestrations).await;
    let client = Client::new(store);

    client.start_orchestration("subscription-1", "subscription", "1").await?;
    let output: String = client.wait_for_orchestration_typed("subscription-1", TIME_LIMIT).await??;
    println!("{output}");
    assert_eq!(output, "month 5 is paid");
    assert_eq!(client.list_executions("subscription-1").await?, [1, 2, 3, 4, 5]);

    let keep_one = PruneOptions { keep_last: Some(1), ..PruneOptions::default() };
    let pruned = client.prune_executions("subscription-1", keep_one).await?;
    println!("{} old executions deleted", pruned.executions_deleted);
    assert_eq!(pruned.executions_deleted, 4);
    assert_eq!(client.list_executions("subscription-1").await?, [5]);

    runtime.shutdown(None).await;
    Ok(())
}

async fn subscription(context: OrchestrationContext, month: String) -> Result<String, String> {
    let month: u32 = month.parse().map_err(|_| format!("{month} is not the number of a month"))?;
    let paid = context.schedule_activity_typed::<u32, String>("charge", &month).await?;
    if month == MONTHS {
        return Ok(paid);
    }
    context.schedule_timer(MONTH).await;
    context.continue_as_new_typed(&(month + 1)).await
}

async fn charge(_: ActivityContext, month: u32) -> Result<String, String> {
    Ok(format!("month {month} is paid"))
}
