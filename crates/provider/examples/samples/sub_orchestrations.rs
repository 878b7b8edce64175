//! Sub-orchestrations: a release builds its parts, each in a workflow of its own, and
//! starts an announcement that it does not wait for.
//!
//! A child has its own history and may run in another process. The parent gets the error of a
//! child like the error of an activity. When the parent is cancelled or deleted, its children are
//! cancelled or deleted too. A detached workflow has no parent. Here the announcement is detached.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use duroxide::providers::Provider;
use duroxide::runtime::Runtime;
use duroxide::runtime::registry::ActivityRegistry;
use duroxide::{ActivityContext, Client, OrchestrationContext, OrchestrationRegistry};

/// The longest time to wait for a workflow.
const TIME_LIMIT: Duration = Duration::from_secs(30);

pub(crate) async fn run(store: Arc<dyn Provider>) -> Result<(), Box<dyn Error>> {
    let activities = ActivityRegistry::builder().register("compile", compile).register("sign", sign).build();
    let orchestrations = OrchestrationRegistry::builder()
        .register("release", release)
        .register("build", build)
        .register("announcement", announcement)
        .build();
    let runtime = Runtime::start_with_store(store.clone(), activities, orchestrations).await;
    let client = Client::new(store);

    client.start_orchestration("release-1", "release", "engine, server, manual").await?;
    let output: String = client.wait_for_orchestration_typed("release-1", TIME_LIMIT).await??;
    println!("{output}");
    assert_eq!(output, "engine is signed; server is signed; manual has no sources");

    let announced: String = client.wait_for_orchestration_typed("announcement-1", TIME_LIMIT).await??;
    println!("{announced}");
    assert_eq!(announced, "new: engine is signed, server is signed");

    // The announcement is not in the tree of the release.
    let mut tree = client.get_instance_tree("release-1").await?.all_ids;
    tree.sort();
    println!("{}", tree.join(", "));
    assert_eq!(tree, ["build-1-engine", "build-1-manual", "build-1-server", "release-1"]);

    runtime.shutdown(None).await;
    Ok(())
}

async fn release(context: OrchestrationContext, parts: String) -> Result<String, String> {
    // Without `_with_id` a child gets an id that is made of its parent's id.
    let start = |part: &str| {
        let id = format!("build-1-{part}");
        context.schedule_sub_orchestration_with_id("build", id, part)
    };
    let (mut built, mut failed) = (Vec::new(), Vec::new());
    for build in context.join(parts.split(", ").map(start).collect()).await {
        match build {
            Ok(text) => built.push(text),
            Err(reason) => failed.push(reason),
        }
    }
    // This workflow does not wait for the announcement.
    context.schedule_orchestration("announcement", "announcement-1", built.join(", "));
    Ok([built, failed].concat().join("; "))
}

async fn build(context: OrchestrationContext, part: String) -> Result<String, String> {
    let binary = context.schedule_activity("compile", part).await?;
    context.schedule_activity("sign", binary).await
}

async fn announcement(_: OrchestrationContext, text: String) -> Result<String, String> {
    Ok(format!("new: {text}"))
}

async fn compile(_: ActivityContext, part: String) -> Result<String, String> {
    if part == "manual" { Err(format!("{part} has no sources")) } else { Ok(part) }
}

async fn sign(_: ActivityContext, binary: String) -> Result<String, String> {
    Ok(format!("{binary} is signed"))
}
