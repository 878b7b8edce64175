//! Cancellation: a search is cancelled while it runs, with its child and the activity of
//! its child.
//!
//! A cancelled workflow ends at its next turn with the status `Failed` and the reason. Then its
//! children end too. A running activity learns of the cancellation when its lock is next renewed,
//! and has to stop itself: `cancelled()` is a future for `tokio::select!`, and `is_cancelled()` is
//! a check for loops. After a grace period the runtime drops an activity that still runs.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use duroxide::providers::Provider;
use duroxide::runtime::registry::ActivityRegistry;
use duroxide::runtime::{OrchestrationStatus, Runtime, RuntimeOptions};
use duroxide::{
    ActivityContext, AppErrorKind, Client, ErrorDetails, OrchestrationContext, OrchestrationRegistry,
};
use tokio::sync::Notify;
use tokio::time::timeout;

/// The longest time to wait for a workflow.
const TIME_LIMIT: Duration = Duration::from_secs(30);

/// How long an activity is locked. The lock is renewed after half of this time, so an activity
/// knows within a second that it is cancelled. The default is 30 seconds.
const ACTIVITY_LOCK_TIMEOUT: Duration = Duration::from_secs(2);

/// What the activity tells this sample.
#[derive(Default)]
struct Signals {
    begun: Notify,
    stopped: Notify,
}

pub(crate) async fn run(store: Arc<dyn Provider>) -> Result<(), Box<dyn Error>> {
    let signals = Arc::new(Signals::default());
    let from_activity = Arc::clone(&signals);
    let activities = ActivityRegistry::builder()
        .register("read shelves", move |context: ActivityContext, _: String| {
            let signals = Arc::clone(&from_activity);
            async move { read_shelves(&context, &signals).await }
        })
        .build();
    let orchestrations = OrchestrationRegistry::builder()
        .register("search", search)
        .register("search floor", search_floor)
        .build();
    let options = RuntimeOptions { worker_lock_timeout: ACTIVITY_LOCK_TIMEOUT, ..RuntimeOptions::default() };
    let runtime = Runtime::start_with_options(store.clone(), activities, orchestrations, options).await;
    let client = Client::new(store);

    client.start_orchestration("search-1", "search", "my keys").await?;
    timeout(TIME_LIMIT, signals.begun.notified()).await?;
    client.cancel_instance("search-1", "found them").await?;

    for (instance, expected) in [("search-1", "found them"), ("search-1-floor-2", "parent canceled")] {
        let status = client.wait_for_orchestration(instance, TIME_LIMIT).await?;
        let reason =
            cancelled_for(&status).ok_or_else(|| format!("{instance} is not cancelled: {status:?}"))?;
        println!("{instance} was cancelled: {reason}");
        assert_eq!(reason, expected);
    }
    timeout(TIME_LIMIT, signals.stopped.notified()).await?;
    println!("the activity has stopped");

    runtime.shutdown(None).await;
    Ok(())
}

/// The reason, if the workflow was cancelled.
fn cancelled_for(status: &OrchestrationStatus) -> Option<&str> {
    let OrchestrationStatus::Failed { details, .. } = status else { return None };
    match details {
        ErrorDetails::Application { kind: AppErrorKind::Cancelled { reason }, .. } => Some(reason),
        _ => None,
    }
}

async fn search(context: OrchestrationContext, what: String) -> Result<String, String> {
    let floor = format!("{}-floor-2", context.instance_id());
    context.schedule_sub_orchestration_with_id("search floor", floor, what).await
}

async fn search_floor(context: OrchestrationContext, what: String) -> Result<String, String> {
    context.schedule_activity("read shelves", what).await
}

/// Searches without an end, until it is cancelled.
async fn read_shelves(context: &ActivityContext, signals: &Signals) -> Result<String, String> {
    signals.begun.notify_one();
    context.cancelled().await;
    signals.stopped.notify_one();
    Err("cancelled".to_owned())
}
