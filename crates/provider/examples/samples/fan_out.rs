//! Fan-out: many activities run at the same time, on all processes that share the
//! container. Then one result is made of their results.
//!
//! A turn of any size is one commit: either all activities of a fan-out are scheduled or none.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use duroxide::providers::Provider;
use duroxide::runtime::registry::ActivityRegistry;
use duroxide::runtime::{Runtime, RuntimeOptions};
use duroxide::{ActivityContext, Client, OrchestrationContext, OrchestrationRegistry};

/// The longest time to wait for a workflow.
const TIME_LIMIT: Duration = Duration::from_secs(60);

const CHAPTERS: u32 = 20;

pub(crate) async fn run(store: Arc<dyn Provider>) -> Result<(), Box<dyn Error>> {
    let activities = ActivityRegistry::builder().register_typed("count words", count_words).build();
    let orchestrations = OrchestrationRegistry::builder().register_typed("book", book).build();
    // The number of activities that this process runs at a time.
    let options = RuntimeOptions { worker_concurrency: 8, ..RuntimeOptions::default() };
    let runtime = Runtime::start_with_options(store.clone(), activities, orchestrations, options).await;
    let client = Client::new(store);

    client.start_orchestration_typed("book-1", "book", CHAPTERS).await?;
    let words: u32 = client.wait_for_orchestration_typed("book-1", TIME_LIMIT).await??;
    println!("{CHAPTERS} chapters have {words} words");
    // 100 + 200 + ... + 2000
    assert_eq!(words, 100 * CHAPTERS * (CHAPTERS + 1) / 2);

    runtime.shutdown(None).await;
    Ok(())
}

async fn book(context: OrchestrationContext, chapters: u32) -> Result<u32, String> {
    // All activities are scheduled before the first one is awaited.
    let counts = (1..=chapters).map(|chapter| context.schedule_activity_typed("count words", &chapter));
    let counts = context.join(counts.collect()).await;
    // The results are in the order of the activities, whichever ended first.
    let counts: Vec<u32> = counts.into_iter().collect::<Result<_, String>>()?;
    Ok(counts.into_iter().sum())
}

async fn count_words(_: ActivityContext, chapter: u32) -> Result<u32, String> {
    Ok(chapter * 100)
}
