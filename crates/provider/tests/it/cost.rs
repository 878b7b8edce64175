//! The cost of the smallest workflow, counted by the server: one activity, the real
//! runtime with default options, one physical partition, a client that does not wait for the
//! result. The published crate (`duroxide-cdb` 0.1.10) needs 31 round trips and about 208 RU.

mod storing;

use std::sync::Arc;
use std::time::Duration;

use duroxide::runtime::Runtime;
use duroxide::runtime::registry::ActivityRegistry;
use duroxide::{ActivityContext, Client, OrchestrationContext, OrchestrationRegistry};
use duroxide_cdb::{CommitTier, CosmosDBProvider, WorkflowCost};
use perihelion_server::EmbeddedOptions;
use perihelion_testkit::TestServer;
use perihelion_testkit::management::RequestCounts;

/// Long enough for work under way to end, and shorter than the pause between polls. The
/// clock is virtual.
const SETTLING_TIME: Duration = Duration::from_millis(150);

/// The requests of one workflow.
async fn smallest_workflow(tier: CommitTier) -> RequestCounts {
    smallest_workflow_and_stored_cost(tier).await.0
}

/// The requests of one workflow, by the server's counters and as the workflow's state has them.
async fn smallest_workflow_and_stored_cost(tier: CommitTier) -> (RequestCounts, WorkflowCost) {
    let server = TestServer::in_process(EmbeddedOptions::default()).await;
    let builder = CosmosDBProvider::builder().with_client(server.client().await).with_commit_tier(tier);
    let provider = Arc::new(builder.open().await.unwrap());
    let activities = ActivityRegistry::builder()
        .register("greet", |_: ActivityContext, name: String| async move { Ok(format!("hello {name}")) })
        .build();
    let orchestrations = OrchestrationRegistry::builder()
        .register("smallest", |context: OrchestrationContext, name: String| async move {
            context.schedule_activity("greet", name).await
        })
        .build();
    let runtime = Runtime::start_with_store(provider.clone(), activities, orchestrations).await;
    let client = Client::new(provider.clone());
    // The first workflow loads the container's metadata.
    for instance in ["first", "counted"] {
        tokio::time::sleep(SETTLING_TIME).await;
        server.reset_counters().await;
        client.start_orchestration(instance, "smallest", "ada").await.unwrap();
        tokio::time::sleep(SETTLING_TIME).await;
    }
    let counts = server.request_counts().await;
    let status = client.get_orchestration_status("counted").await.unwrap();
    assert!(
        matches!(status, duroxide::OrchestrationStatus::Completed { output, .. } if output == "hello ada")
    );
    let cost = provider.cost("counted").await.unwrap();
    runtime.shutdown(Some(0)).await;
    (counts, cost)
}

#[tokio::test(start_paused = true)]
async fn the_smallest_workflow_takes_at_most_ten_round_trips_with_durable_locks() {
    let counts = smallest_workflow(CommitTier::Durable).await;
    assert!(counts.requests <= 10, "{counts:?}");
}

#[tokio::test(start_paused = true)]
async fn the_smallest_workflow_takes_at_most_eight_round_trips_with_locks_in_memory() {
    let counts = smallest_workflow(CommitTier::Optimistic).await;
    assert!(counts.requests <= 8, "{counts:?}");
}

#[tokio::test(start_paused = true)]
async fn the_smallest_workflow_takes_five_round_trips_and_at_most_62_units_by_default() {
    let counts = smallest_workflow(CommitTier::default()).await;
    assert!(counts.requests <= 5 && counts.request_units <= 62.0, "{counts:?}");
}

/// A charge is stored by the commit after it, so the stored cost lacks the commit of the last turn.
/// It also lacks a read: before the activity the runtime reads the history, and the provider cannot
/// distinguish this read from a read by a client.
#[tokio::test(start_paused = true)]
async fn a_workflow_stores_what_it_has_cost_up_to_its_last_turn() {
    for tier in [CommitTier::Durable, CommitTier::Optimistic, CommitTier::Cached] {
        let (counts, cost) = smallest_workflow_and_stored_cost(tier).await;
        assert_eq!(cost.requests + 2, counts.requests, "{tier:?}: {counts:?}, {cost:?}");
        let missing = counts.request_units - cost.request_units;
        assert!((5.0..30.0).contains(&missing), "{tier:?}: {counts:?}, {cost:?}");
        let turns: Vec<u64> = cost.turns.iter().map(|turn| turn.turn).collect();
        assert_eq!(turns, [0, 1], "{tier:?}: {cost:?}");
        let sum: f64 = cost.turns.iter().map(|turn| turn.request_units).sum();
        assert!((sum - cost.request_units).abs() < 0.001, "{cost:?}");
    }
}
