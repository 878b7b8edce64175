//! Several processes, several partitions, and bad days: what stopped, starved or killed
//! workflows when there was more than one healthy process on one healthy partition.

use std::sync::Arc;
use std::time::Duration;

use duroxide::providers::{Provider, TagFilter, WorkItem};
use duroxide::runtime::registry::ActivityRegistry;
use duroxide::runtime::{OrchestrationStatus, Runtime, RuntimeOptions};
use duroxide::{ActivityContext, Client, OrchestrationContext, OrchestrationRegistry};
use perihelion_testkit::provider::{Account, AccountKind, ShortPolls};

/// The time limit of a workflow.
const WORKFLOW_TIMEOUT: Duration = Duration::from_secs(40);

/// The time limit of a shutdown, in milliseconds.
const SHUTDOWN_MS: u64 = 2_000;

/// A process that can run the orchestrations `names` (each runs one activity of its own
/// name) and the activities `names`.
async fn process(provider: &Arc<dyn Provider>, orchestrations: &[&str], activities: &[&str]) -> Arc<Runtime> {
    let mut registered = ActivityRegistry::builder();
    for name in activities {
        registered = registered
            .register(*name, |_: ActivityContext, input: String| async move { Ok(format!("did {input}")) });
    }
    let mut workflows = OrchestrationRegistry::builder();
    for name in orchestrations {
        let activity = format!("{name}Activity");
        workflows = workflows.register(*name, move |context: OrchestrationContext, input: String| {
            let activity = activity.clone();
            async move { context.schedule_activity(activity, input).await }
        });
    }
    let options = RuntimeOptions::default();
    Runtime::start_with_options(Arc::clone(provider), registered.build(), workflows.build(), options).await
}

async fn completed(client: &Client, instance: &str) -> String {
    match client.wait_for_orchestration(instance, WORKFLOW_TIMEOUT).await {
        Ok(OrchestrationStatus::Completed { output, .. }) => output,
        other => panic!("{instance}: {other:?}"),
    }
}

/// A rolling deployment: each process lacks what only the other one has registered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_with_different_registries_complete_each_others_work() {
    let account = Account::open(AccountKind::Embedded).await;
    let old = account.provider("scale", ShortPolls::ReturnAtOnce).await;
    let new = account.provider("scale", ShortPolls::ReturnAtOnce).await;
    // The old process runs orchestration `Old`, the new one `New`. Both schedule an activity
    // that only the other process has.
    let runtimes =
        [process(&old, &["Old"], &["NewActivity"]).await, process(&new, &["New"], &["OldActivity"]).await];
    // Each process starts the instances of the other one.
    let clients = [Client::new(Arc::clone(&old)), Client::new(Arc::clone(&new))];
    for number in 0..5 {
        clients[0].start_orchestration(&format!("new-{number}"), "New", "x").await.unwrap();
        clients[1].start_orchestration(&format!("old-{number}"), "Old", "x").await.unwrap();
    }
    for number in 0..5 {
        for kind in ["new", "old"] {
            assert_eq!(completed(&clients[0], &format!("{kind}-{number}")).await, "did x");
        }
    }
    for runtime in runtimes {
        runtime.shutdown(Some(SHUTDOWN_MS)).await;
    }
    account.stop().await;
}

/// Activities with a tag that nobody in this process runs do not keep its workers from their
/// own.
#[tokio::test]
async fn activities_of_a_foreign_tag_do_not_starve_local_workers() {
    let account = Account::open(AccountKind::Embedded).await;
    let provider = account.provider("scale", ShortPolls::ReturnAtOnce).await;
    let activity = |id: u64, tag: Option<&str>| WorkItem::ActivityExecute {
        instance: "fan-out".to_owned(),
        execution_id: 1,
        id,
        name: "charge".to_owned(),
        input: String::new(),
        session_id: None,
        tag: tag.map(str::to_owned),
    };
    for id in 0..8_300 {
        provider.enqueue_for_worker(activity(id, Some("gpu"))).await.unwrap();
    }
    provider.enqueue_for_worker(activity(9_000, None)).await.unwrap();
    let lock = Duration::from_secs(30);
    let fetched =
        provider.fetch_work_item(lock, Duration::ZERO, None, &TagFilter::DefaultOnly).await.unwrap();
    let (item, _, _) = fetched.expect("the local activity");
    assert!(matches!(item, WorkItem::ActivityExecute { id: 9_000, .. }));
    account.stop().await;
}
