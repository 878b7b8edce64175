//! Writes a container of the published duroxide-cdb 0.1.10 to a JSON file. The program runs
//! workflows of every kind with the published crate on our server, stops while they wait, and
//! writes every document of the container and the container's indexing policy. The provider's
//! tests create a container from such a file, migrate it, and complete every workflow. The
//! file in the repository was written by this program.
//!
//! Usage: perihelion-interop-migration FILE. `PERIHELION_BIN` names the server
//! to start (by default the debug build of this checkout).

#[path = "../../../crates/provider/tests/it/migration/workflows.rs"]
mod workflows;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use duroxide::Client;
use duroxide::providers::Provider;
use duroxide::runtime::{OrchestrationStatus, Runtime, RuntimeOptions};
use duroxide_cdb::client::CosmosDBClient;
use duroxide_cdb::{CosmosDBProvider, CosmosDBProviderConfig, OutboxFaultInjector};
use perihelion_interop_common::{Problem, Server};
use serde_json::{Value, json};

use crate::workflows::Side;

const KEY: &str = "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw==";
const DATABASE: &str = "duroxide";

/// The longest wait for a workflow.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// The pause between two reads of a workflow.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// How long the runtime waits for activities when it stops, in milliseconds. The activities of
/// waiting workflows never end.
const SHUTDOWN_LIMIT_MS: u64 = 200;

/// The workflows that wait: instance, orchestration, and the number of events in the history
/// when the workflow waits.
const WAITING_WORKFLOWS: [(&str, &str, usize); 9] = [
    ("activity-1", "Activity", 4),
    ("event-1", "Event", 3),
    ("raised-1", "Event", 3),
    ("parent-1", "Parent", 2),
    ("eternal-1", "Eternal", 3),
    ("queue-1", "Queue", 5),
    ("session-1", "Session", 2),
    ("cancelled-1", "Event", 3),
    ("order::7", "Activity", 4),
];

#[tokio::main]
async fn main() -> ExitCode {
    let Some(file) = std::env::args().nth(1) else {
        eprintln!("usage: perihelion-interop-migration FILE");
        return ExitCode::from(2);
    };
    match write_container(&file).await {
        Ok(documents) => {
            println!("ok {documents} documents of the published crate are in {file}");
            println!("1 passed, 0 failed, 0 skipped");
            ExitCode::SUCCESS
        }
        Err(error) => {
            println!("FAIL a container of the published crate: {error}");
            println!("0 passed, 1 failed, 0 skipped");
            ExitCode::FAILURE
        }
    }
}

async fn write_container(file: &str) -> Result<usize, Problem> {
    let server = Server::start(&["--merge-in-gateway"]).await?;
    let endpoint = format!("http://127.0.0.1:{}", server.port());
    run_until_waiting(&endpoint).await?;
    create_undelivered_messages(&endpoint).await?;
    queue_messages(&endpoint).await?;
    let storage = CosmosDBClient::new(&endpoint, KEY, DATABASE, "duroxide")?;
    let documents = storage.query("SELECT * FROM c", Vec::new(), None).await?;
    for kind in
        ["instance", "history", "orch_queue", "worker_queue", "outbox_intent", "kv", "kv_delta", "session"]
    {
        if !documents.iter().any(|document| document["type"] == kind) {
            return Err(format!("the container has no document of type {kind}").into());
        }
    }
    let text = serde_json::to_string_pretty(&json!({
        "writtenBy": "duroxide-cdb 0.1.10 on duroxide 0.1.29",
        "indexingPolicy": duroxide_cdb::containers::default_indexing_policy(),
        "documents": documents.iter().map(without_system_members).collect::<Vec<_>>(),
    }))?;
    std::fs::write(file, text + "\n")?;
    Ok(documents.len())
}

/// Runs workflows until each has ended or waits for an event that this program does not send.
async fn run_until_waiting(endpoint: &str) -> Result<(), Problem> {
    let provider: Arc<dyn Provider> = Arc::new(open(endpoint, None).await?);
    let runtime = start_runtime(Arc::clone(&provider)).await;
    let client = Client::new(Arc::clone(&provider));
    client.start_orchestration("done-1", "Done", "").await?;
    client.start_orchestration("failed-1", "Failed", "").await?;
    for (instance, orchestration, _) in WAITING_WORKFLOWS {
        client.start_orchestration(instance, orchestration, "1").await?;
    }
    client.enqueue_event("queue-1", "inbox", "one").await?;
    for instance in ["done-1", "failed-1"] {
        let status = client.wait_for_orchestration(instance, WAIT_MAX).await?;
        if matches!(status, OrchestrationStatus::Running { .. } | OrchestrationStatus::NotFound) {
            return Err(format!("{instance} did not end").into());
        }
    }
    for (instance, _, events) in WAITING_WORKFLOWS {
        wait_for_events(&*provider, instance, events).await?;
    }
    wait_for_events(&*provider, "child-1", 2).await?;
    client.start_orchestration("timer-1", "Timer", "").await?;
    wait_for_events(&*provider, "timer-1", 4).await?;
    // This workflow is the last, because its activities occupy every worker.
    client.start_orchestration("fan-1", "Fan", "").await?;
    wait_for_events(&*provider, "fan-1", 41).await?;
    runtime.shutdown(Some(SHUTDOWN_LIMIT_MS)).await;
    Ok(())
}

/// Lets every delivery to another instance fail, so that the messages stay in the outbox.
async fn create_undelivered_messages(endpoint: &str) -> Result<(), Problem> {
    let injector = OutboxFaultInjector::fail_next(u32::MAX);
    let provider: Arc<dyn Provider> = Arc::new(open(endpoint, Some(injector)).await?);
    let client = Client::new(Arc::clone(&provider));
    client.start_orchestration("spawner-1", "Spawner", "").await?;
    let runtime = start_runtime(Arc::clone(&provider)).await;
    wait_for_events(&*provider, "spawner-1", 3).await?;
    runtime.shutdown(Some(SHUTDOWN_LIMIT_MS)).await;
    Ok(())
}

/// Sends messages while no runtime runs, so that they stay in the queue.
async fn queue_messages(endpoint: &str) -> Result<(), Problem> {
    let client = Client::new(Arc::new(open(endpoint, None).await?));
    client.raise_event("raised-1", "approval", "raised").await?;
    client.enqueue_event("queue-1", "inbox", "two").await?;
    client.cancel_instance("cancelled-1", "no longer wanted").await?;
    client.start_orchestration("queued-1", "Late", "").await?;
    Ok(())
}

async fn open(endpoint: &str, faults: Option<OutboxFaultInjector>) -> Result<CosmosDBProvider, Problem> {
    let config = CosmosDBProviderConfig {
        endpoint: endpoint.to_owned(),
        key: KEY.to_owned(),
        database: DATABASE.to_owned(),
        // The reconciler must not deliver messages, so it first runs after this program has ended.
        reconciler_interval: Duration::from_secs(3600),
        reconciler_age_threshold: Duration::from_secs(3600),
        ..CosmosDBProviderConfig::default()
    };
    let mut provider = CosmosDBProvider::new_with_config(config).await?;
    if let Some(faults) = faults {
        provider.set_outbox_fault_injector(faults);
    }
    Ok(provider)
}

async fn start_runtime(provider: Arc<dyn Provider>) -> Arc<Runtime> {
    // Each activity that does not end occupies a worker.
    let options = RuntimeOptions { worker_concurrency: 8, ..RuntimeOptions::default() };
    let (activities, orchestrations) = (workflows::activities(Side::Begins), workflows::orchestrations());
    Runtime::start_with_options(provider, activities, orchestrations, options).await
}

/// Waits until the history of an instance has at least this many events.
async fn wait_for_events(provider: &dyn Provider, instance: &str, count: usize) -> Result<(), Problem> {
    let enough = async {
        loop {
            let events = provider.read(instance).await?.len();
            if events >= count {
                return Ok::<_, Problem>(());
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    };
    let error = || format!("{instance} does not reach {count} events");
    tokio::time::timeout(WAIT_MAX, enough).await.map_err(|_| error())?
}

/// A document without the members that the service adds.
fn without_system_members(document: &Value) -> Value {
    let members = document.as_object().into_iter().flatten();
    let user_members = members.filter(|(name, _)| !name.starts_with('_'));
    Value::Object(user_members.map(|(name, value)| (name.clone(), value.clone())).collect())
}
