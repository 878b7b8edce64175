//! Completes the workflows that the published crate began: the runtime runs the same
//! workflows on the new container until each has ended as expected.

use std::sync::Arc;
use std::time::Duration;

use duroxide::providers::Provider;
use duroxide::runtime::{OrchestrationStatus, Runtime};
use duroxide::{Client, Event, EventKind};
use duroxide_cdb::CosmosDBProvider;
use serde_json::Value;

use super::fixture::{DATABASE, Fixture};
use super::workflows::{self, ENDED, EXPECTED_OUTPUTS, Side};

/// The time limit of a workflow. Its timer may take twelve seconds.
const WORKFLOW_TIMEOUT: Duration = Duration::from_secs(40);

/// The time limit of a shutdown, in milliseconds.
const SHUTDOWN_MS: u64 = 2_000;

pub(super) async fn open_provider(client: &perihelion_client::Client, container: &str) -> Arc<dyn Provider> {
    let builder = CosmosDBProvider::builder()
        .with_client(client.clone())
        .with_database(DATABASE)
        .with_container(container);
    Arc::new(builder.open().await.unwrap())
}

/// Asserts that histories, values and statuses are the same as in the old container.
pub(super) async fn assert_moved(provider: &Arc<dyn Provider>, fixture: &Fixture) {
    let admin = provider.as_management_capability().expect("management is supported");
    let client = Client::new(Arc::clone(provider));
    for stored in of_type(fixture, "instance") {
        let instance = text(stored, "instanceId");
        let info = admin.get_instance_info(instance).await.unwrap();
        assert_eq!(info.orchestration_name, text(stored, "orchestrationName"), "{instance}");
        assert_eq!(info.current_execution_id, stored["currentExecutionId"], "{instance}");
        assert_eq!(info.parent_instance_id.as_deref(), stored["parentInstanceId"].as_str(), "{instance}");
        assert_eq!(info.created_at, stored["createdAt"], "{instance}");
        assert_eq!(info.updated_at, stored["updatedAt"], "{instance}");
        // An instance that continued as new is running. The published crate stores
        // another status for it.
        let has_ended = matches!(text(stored, "status"), "Completed" | "Failed");
        let status = if has_ended { text(stored, "status") } else { "Running" };
        assert_eq!(info.status, status, "{instance}");
        let custom = provider.get_custom_status(instance, 0).await.unwrap();
        let version = stored["customStatusVersion"].as_u64().expect("a number");
        let expected = (version > 0).then(|| (stored["customStatus"].as_str().map(str::to_owned), version));
        assert_eq!(custom, expected, "{instance}");
        for execution in admin.list_executions(instance).await.unwrap() {
            let found = admin.read_history_with_execution_id(instance, execution).await.unwrap();
            assert_eq!(as_json(&found), events(fixture, instance, execution), "{instance} {execution}");
        }
    }
    for value in of_type(fixture, "kv").chain(of_type(fixture, "kv_delta")) {
        let found = client.get_kv_value(text(value, "instanceId"), text(value, "key")).await.unwrap();
        assert_eq!(found.as_deref(), value["value"].as_str(), "{value}");
    }
    assert_eq!(admin.list_executions("eternal-1").await.unwrap(), [1, 2, 3]);
    assert_eq!(client.get_kv_all_values("done-1").await.unwrap().len(), 1);
}

fn of_type<'a>(fixture: &'a Fixture, kind: &'a str) -> impl Iterator<Item = &'a Value> {
    fixture.documents.iter().filter(move |document| document["type"] == kind)
}

fn text<'a>(document: &'a Value, member: &str) -> &'a str {
    document[member].as_str().unwrap_or_else(|| panic!("{member} of {document}"))
}

fn events(fixture: &Fixture, instance: &str, execution: u64) -> Vec<Value> {
    let mut documents: Vec<&Value> = of_type(fixture, "history")
        .filter(|document| document["instanceId"] == instance && document["executionId"] == execution)
        .collect();
    documents.sort_by_key(|document| document["eventId"].as_u64());
    let event =
        |document: &&Value| serde_json::from_str::<Event>(text(document, "eventData")).expect("an event");
    as_json(&documents.iter().map(event).collect::<Vec<_>>())
}

fn as_json(events: &[Event]) -> Vec<Value> {
    events.iter().map(|event| serde_json::to_value(event).expect("JSON")).collect()
}

/// Runs all workflows to their end.
pub(super) async fn finish(provider: Arc<dyn Provider>) {
    let (activities, orchestrations) = (workflows::activities(Side::Finishes), workflows::orchestrations());
    let runtime = Runtime::start_with_store(Arc::clone(&provider), activities, orchestrations).await;
    let client = Client::new(Arc::clone(&provider));
    client.raise_event("event-1", "approval", "approved").await.unwrap();
    client.raise_event("eternal-1", "approval", "go").await.unwrap();
    for (instance, expected) in EXPECTED_OUTPUTS {
        assert_eq!(outcome_of(&client, instance).await, Ok((*expected).to_owned()), "{instance}");
    }
    for (instance, expected) in ENDED {
        let expected = expected.map(str::to_owned).map_err(str::to_owned);
        assert_eq!(outcome_of(&client, instance).await, expected, "{instance}");
    }
    let cancelled = outcome_of(&client, "cancelled-1").await.expect_err("the instance was cancelled");
    assert!(cancelled.contains("no longer wanted"), "{cancelled}");
    runtime.shutdown(Some(SHUTDOWN_MS)).await;
    assert_queues_empty_and_histories_complete(&provider).await;
}

async fn outcome_of(client: &Client, instance: &str) -> Result<String, String> {
    match client.wait_for_orchestration(instance, WORKFLOW_TIMEOUT).await {
        Ok(OrchestrationStatus::Completed { output, .. }) => Ok(output),
        Ok(OrchestrationStatus::Failed { details, .. }) => Err(details.display_message()),
        other => panic!("{instance}: {other:?}"),
    }
}

/// Asserts that histories have one completion for each scheduled step, and that all queues are empty.
async fn assert_queues_empty_and_histories_complete(provider: &Arc<dyn Provider>) {
    let admin = provider.as_management_capability().expect("management is supported");
    let depths = admin.get_queue_depths().await.unwrap();
    assert_eq!((depths.orchestrator_queue, depths.worker_queue, depths.timer_queue), (0, 0, 0));
    for instance in admin.list_instances().await.unwrap() {
        let history = provider.read(&instance).await.unwrap();
        let completed = history.iter().filter(|event| is_completion(event)).count();
        let scheduled = history.iter().filter(|event| is_scheduling(event)).count();
        assert_eq!(completed, scheduled, "{instance}: {history:?}");
    }
}

fn is_scheduling(event: &Event) -> bool {
    matches!(
        event.kind,
        EventKind::ActivityScheduled { .. }
            | EventKind::TimerCreated { .. }
            | EventKind::SubOrchestrationScheduled { .. }
    )
}

fn is_completion(event: &Event) -> bool {
    matches!(
        event.kind,
        EventKind::ActivityCompleted { .. }
            | EventKind::TimerFired { .. }
            | EventKind::SubOrchestrationCompleted { .. }
    )
}
