//! The cost of the smallest workflow, counted by the server: one activity, the real
//! runtime with default options, one physical partition, a client that does not wait. The
//! published crate needs 31 round trips and about 208 RU.

use std::sync::Arc;
use std::time::Duration;

use duroxide::runtime::Runtime;
use duroxide::runtime::registry::ActivityRegistry;
use duroxide::{ActivityContext, Client, OrchestrationContext, OrchestrationRegistry};
use duroxide_cdb::{CommitTier, CosmosDBProvider};
use perihelion_server::{Embedded, EmbeddedOptions};
use serde_json::Value;

/// Long enough for open work to end, and shorter than the pause between polls. The clock
/// is virtual.
const MOMENT: Duration = Duration::from_millis(150);

/// Exchanges and request units since the counters were cleared.
async fn counted(engine: &Embedded) -> (u64, f64, Value) {
    let counters = engine.manage(http::Method::GET, "counters", "").await.unwrap();
    let counters: Value = serde_json::from_slice(counters.body()).unwrap();
    let operations = counters["operations"].as_object().unwrap();
    let requests = operations.values().map(|operation| operation["requests"].as_u64().unwrap()).sum();
    let charge = operations.values().map(|operation| operation["requestUnits"].as_f64().unwrap()).sum();
    (requests, charge, counters)
}

async fn smallest_workflow(tier: CommitTier) -> (u64, f64, Value) {
    let engine = Embedded::open(EmbeddedOptions::default()).await.unwrap();
    let client = perihelion_client::Client::over(&engine.endpoint(), engine.transport()).await.unwrap();
    let builder = CosmosDBProvider::builder().with_client(client).with_commit_tier(tier);
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
        tokio::time::sleep(MOMENT).await;
        engine.manage(http::Method::DELETE, "counters", "").await.unwrap();
        client.start_orchestration(instance, "smallest", "ada").await.unwrap();
        tokio::time::sleep(MOMENT).await;
    }
    let counted = counted(&engine).await;
    let status = client.get_orchestration_status("counted").await.unwrap();
    assert!(
        matches!(status, duroxide::OrchestrationStatus::Completed { output, .. } if output == "hello ada")
    );
    runtime.shutdown(Some(0)).await;
    counted
}

#[tokio::test(start_paused = true)]
async fn the_smallest_workflow_takes_ten_round_trips_with_durable_locks() {
    let (requests, charge, counters) = smallest_workflow(CommitTier::Durable).await;
    assert!(requests <= 10, "{requests} round trips, {charge} RU: {counters}");
}

#[tokio::test(start_paused = true)]
async fn the_smallest_workflow_takes_eight_round_trips_with_locks_in_memory() {
    let (requests, charge, counters) = smallest_workflow(CommitTier::Optimistic).await;
    assert!(requests <= 8, "{requests} round trips, {charge} RU: {counters}");
}

#[tokio::test(start_paused = true)]
async fn the_smallest_workflow_takes_six_round_trips_and_65_units_by_default() {
    let (requests, charge, counters) = smallest_workflow(CommitTier::default()).await;
    assert!(requests <= 6 && charge <= 65.0, "{requests} round trips, {charge} RU: {counters}");
}
