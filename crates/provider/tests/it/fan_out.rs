//! A fan-out of 1,000 activities on one process, with the runtime's default options: how long it takes,
//! and how the process finds its activities. It knows them all from its own commit, so hardly any lock
//! may be refused, and polls have nothing to find.
//!
//! Ignored, because the seconds are of interest only on a quiet machine with an optimised build:
//! `cargo nextest run -p duroxide-cdb --run-ignored all --no-capture 'fan_out::'`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use duroxide::runtime::Runtime;
use duroxide::runtime::registry::ActivityRegistry;
use duroxide::{ActivityContext, Client, OrchestrationContext, OrchestrationRegistry, OrchestrationStatus};
use duroxide_cdb::CosmosDBProvider;
use perihelion_server::EmbeddedOptions;
use perihelion_testkit::TestServer;

const ACTIVITIES: usize = 1000;

/// How often the fan-out runs on each store.
const RUNS: usize = 6;

/// The time limit of one fan-out.
const TIME_LIMIT: Duration = Duration::from_secs(120);

/// The most locks of one run that may be refused. A late answer, of a poll or of the
/// commit, may show an activity that has been completed meanwhile. Its lock is then refused.
const REFUSED_MAX: u64 = 3;

async fn fan_out(context: OrchestrationContext, _: String) -> Result<String, String> {
    let parts = (0..ACTIVITIES).map(|number| context.schedule_activity("NoOp", number.to_string()));
    let results = context.join(parts.collect()).await;
    Ok(results.iter().filter(|result| result.is_ok()).count().to_string())
}

async fn run_once(server: TestServer, name: &str) {
    let provider =
        Arc::new(CosmosDBProvider::builder().with_client(server.client().await).open().await.unwrap());
    let activities = ActivityRegistry::builder()
        .register("NoOp", |_: ActivityContext, input: String| async move { Ok(input) })
        .build();
    let orchestrations = OrchestrationRegistry::builder().register("FanOut", fan_out).build();
    let runtime = Runtime::start_with_store(provider.clone(), activities, orchestrations).await;
    let client = Client::new(provider.clone());
    server.reset_counters().await;
    let begun = Instant::now();
    client.start_orchestration("wide", "FanOut", "").await.unwrap();
    let status = client.wait_for_orchestration("wide", TIME_LIMIT).await.unwrap();
    let seconds = begun.elapsed().as_secs_f64();
    assert!(
        matches!(&status, OrchestrationStatus::Completed { output, .. } if *output == ACTIVITIES.to_string())
    );
    let operations = server.counters().await["operations"].clone();
    let statuses = &operations["patch_item"]["statuses"];
    let count = |status: &str| statuses[status].as_u64().unwrap_or(0);
    let refused = count("404") + count("412");
    let metrics = provider.metrics();
    println!(
        "{name}: {seconds:.2} s, {} locks, {refused} refused, {} polls, {} turns",
        count("200"),
        metrics.polls,
        metrics.methods["ack_orchestration_item"].calls,
    );
    runtime.shutdown(Some(0)).await;
    assert!(refused <= REFUSED_MAX, "{refused} locks were refused");
}

#[ignore = "measures seconds"]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hardly_any_lock_of_a_fan_out_on_one_process_is_refused() {
    for _ in 0..RUNS {
        run_once(TestServer::in_process_on_disk(EmbeddedOptions::default()).await, "durable").await;
    }
    for _ in 0..RUNS {
        run_once(TestServer::in_process(EmbeddedOptions::default()).await, "in memory").await;
    }
}
