//! Error handling: an activity that fails is retried, then replaced by another activity. When an
//! orchestration returns an error, its workflow ends with the status `Failed`.
//!
//! Errors of activities are results like others: they are stored, and the orchestration
//! handles them with `match` and `?`. Errors of the database never arrive here; the provider
//! retries them.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use duroxide::providers::Provider;
use duroxide::runtime::registry::ActivityRegistry;
use duroxide::runtime::{OrchestrationStatus, Runtime};
use duroxide::{
    ActivityContext, BackoffStrategy, Client, OrchestrationContext, OrchestrationRegistry, RetryPolicy,
};

/// The longest time to wait for a workflow.
const TIME_LIMIT: Duration = Duration::from_secs(30);

/// The most attempts to download a page before its copy is used.
const ATTEMPTS_MAX: u32 = 3;

/// The pause between two attempts. Without a strategy the pauses double from 100 ms on.
const PAUSE: Duration = Duration::from_millis(20);

pub(crate) async fn run(store: Arc<dyn Provider>) -> Result<(), Box<dyn Error>> {
    let attempts = Arc::new(AtomicU32::new(0));
    let activities = ActivityRegistry::builder()
        .register("download", move |_: ActivityContext, page: String| {
            let attempts = Arc::clone(&attempts);
            async move { download(&page, &attempts) }
        })
        .register("find copy", find_copy)
        .build();
    let orchestrations = OrchestrationRegistry::builder().register("report", report).build();
    let runtime = Runtime::start_with_store(store.clone(), activities, orchestrations).await;
    let client = Client::new(store);

    for page in ["flaky", "gone", "unknown"] {
        client.start_orchestration(page, "report", page).await?;
    }
    for (page, expected) in [("flaky", "report on flaky, attempt 3"), ("gone", "report on the copy of gone")]
    {
        let output: String = client.wait_for_orchestration_typed(page, TIME_LIMIT).await??;
        println!("{page}: {output}");
        assert_eq!(output, expected);
    }
    let status = client.wait_for_orchestration("unknown", TIME_LIMIT).await?;
    let OrchestrationStatus::Failed { details, .. } = status else {
        return Err(format!("a report without a page should fail: {status:?}").into());
    };
    println!("unknown: {}", details.display_message());
    // The error comes from the application, not from the infrastructure or the configuration.
    assert_eq!(details.category(), "application");
    assert_eq!(details.display_message(), "no report: there is no copy of unknown");

    runtime.shutdown(None).await;
    Ok(())
}

async fn report(context: OrchestrationContext, page: String) -> Result<String, String> {
    let text = read(&context, &page).await.map_err(|reason| format!("no report: {reason}"))?;
    Ok(format!("report on {text}"))
}

/// Downloads a page, or else finds a copy. An orchestration may call other functions.
async fn read(context: &OrchestrationContext, page: &str) -> Result<String, String> {
    let policy = RetryPolicy::new(ATTEMPTS_MAX).with_backoff(BackoffStrategy::Fixed { delay: PAUSE });
    match context.schedule_activity_with_retry("download", page, policy).await {
        Ok(text) => Ok(text),
        Err(reason) => {
            context.trace_warn(format!("{page} cannot be downloaded: {reason}"));
            context.schedule_activity("find copy", page).await
        }
    }
}

fn download(page: &str, attempts: &AtomicU32) -> Result<String, String> {
    if page != "flaky" {
        return Err("404".to_owned());
    }
    match attempts.fetch_add(1, Ordering::Relaxed) + 1 {
        attempt if attempt < ATTEMPTS_MAX => Err(format!("connection lost at attempt {attempt}")),
        attempt => Ok(format!("{page}, attempt {attempt}")),
    }
}

async fn find_copy(_: ActivityContext, page: String) -> Result<String, String> {
    if page == "gone" {
        Ok(format!("the copy of {page}"))
    } else {
        Err(format!("there is no copy of {page}"))
    }
}
