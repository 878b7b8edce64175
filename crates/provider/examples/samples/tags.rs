//! Tags: an activity with a tag runs only on machines that offer this tag. Here a film is
//! rendered on a machine with a graphics card and uploaded from any other machine.
//!
//! An activity whose tag no machine offers waits for ever. A timer beside it limits this wait.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use duroxide::providers::Provider;
use duroxide::runtime::registry::ActivityRegistry;
use duroxide::runtime::{Runtime, RuntimeOptions};
use duroxide::{ActivityContext, Client, Either2, OrchestrationContext, OrchestrationRegistry, TagFilter};

/// The longest time to wait for a workflow.
const TIME_LIMIT: Duration = Duration::from_secs(30);

/// How long the film waits for a machine that can make a hologram.
const PATIENCE: Duration = Duration::from_millis(300);

pub(crate) async fn run(store: Arc<dyn Provider>) -> Result<(), Box<dyn Error>> {
    // Two runtimes stand for two machines. The office runs orchestrations, and activities
    // without a tag.
    let office_options =
        RuntimeOptions { worker_tag_filter: TagFilter::DefaultOnly, ..RuntimeOptions::default() };
    // The other machine runs activities with the tag `gpu` only. `TagFilter::default_and` would
    // add those without a tag.
    let studio_options = RuntimeOptions {
        orchestration_concurrency: 0,
        worker_tag_filter: TagFilter::tags(["gpu"]),
        ..RuntimeOptions::default()
    };
    let office = start_machine(store.clone(), "office", office_options).await;
    let studio = start_machine(store.clone(), "studio", studio_options).await;
    let client = Client::new(store);

    client.start_orchestration("film-1", "film", "metropolis").await?;
    let output: String = client.wait_for_orchestration_typed("film-1", TIME_LIMIT).await??;
    println!("{output}");
    assert_eq!(output, "metropolis, rendered in the studio, no hologram, uploaded in the office");

    studio.shutdown(None).await;
    office.shutdown(None).await;
    Ok(())
}

async fn start_machine(
    store: Arc<dyn Provider>,
    name: &'static str,
    options: RuntimeOptions,
) -> Arc<Runtime> {
    let step = |done: &'static str| {
        move |_: ActivityContext, film: String| async move { Ok(format!("{film}, {done} in the {name}")) }
    };
    let activities = ActivityRegistry::builder()
        .register("render", step("rendered"))
        .register("make hologram", step("made three-dimensional"))
        .register("upload", step("uploaded"))
        .build();
    let orchestrations = OrchestrationRegistry::builder().register("film", film).build();
    Runtime::start_with_options(store, activities, orchestrations, options).await
}

async fn film(context: OrchestrationContext, name: String) -> Result<String, String> {
    let rendered = context.schedule_activity("render", name).with_tag("gpu").await?;

    let hologram = context.schedule_activity("make hologram", rendered.as_str()).with_tag("laser");
    let end = context.schedule_timer(PATIENCE);
    let shown = match context.select2(hologram, end).await {
        Either2::First(hologram) => hologram?,
        Either2::Second(()) => format!("{rendered}, no hologram"),
    };
    context.schedule_activity("upload", shown).await
}
