//! Operating a provider: accounts it refuses, clocks, listing, metrics and retention.
//! Each test uses the public interface and asks the server for the result.

mod account;
mod clocks;
mod deleted_container;
mod examining;
mod inspection;
mod listing;
mod metrics;
mod opening;
mod outage;
mod overdue;
mod retention;

use std::time::Duration;

use duroxide::providers::{ExecutionMetadata, Provider, TagFilter, WorkItem};
use duroxide::{Event, EventKind};
use duroxide_cdb::CosmosDBProvider;
use perihelion_testkit::TestServer;

pub(super) const LOCK: Duration = Duration::from_secs(30);

/// The timeout of a fetch that polls once.
pub(super) const POLL_ONCE: Duration = Duration::ZERO;

/// An interval so long that the reconciler does not run during a test.
const RARELY: Duration = Duration::from_secs(3600);

async fn provider(server: &TestServer) -> CosmosDBProvider {
    let builder = CosmosDBProvider::builder().with_client(server.client().await);
    builder.with_reconciler(RARELY, RARELY).open().await.unwrap()
}

/// The start of an instance, as a child if there is a parent.
pub(super) fn start(instance: &str, parent: Option<&str>) -> WorkItem {
    WorkItem::StartOrchestration {
        instance: instance.into(),
        orchestration: "Order".into(),
        input: String::new(),
        version: Some("1.0.0".into()),
        parent_instance: parent.map(Into::into),
        parent_id: parent.map(|_| 1),
        parent_execution_id: parent.map(|_| 1),
        execution_id: 1,
    }
}

/// An activity of an instance, in the first execution.
pub(super) fn work(instance: &str, id: u64) -> WorkItem {
    WorkItem::ActivityExecute {
        instance: instance.into(),
        execution_id: 1,
        id,
        name: "charge".into(),
        input: String::new(),
        session_id: None,
        tag: None,
    }
}

/// An event of the history of an instance, in the first execution.
pub(super) fn event(instance: &str, id: u64) -> Event {
    let kind = EventKind::ExternalEvent { name: "paid".into(), data: String::new() };
    Event::with_event_id(id, instance, 1, None, kind)
}

/// The metadata of a turn: the name and status of its orchestration.
pub(super) fn metadata(name: &str, status: Option<&str>) -> ExecutionMetadata {
    ExecutionMetadata {
        orchestration_name: Some(name.into()),
        orchestration_version: Some("1.0.0".into()),
        status: status.map(Into::into),
        output: status.map(|_| "done".into()),
        ..ExecutionMetadata::default()
    }
}

/// Starts an instance, runs one activity and ends the instance.
async fn smallest_workflow(provider: &CosmosDBProvider, instance: &str) {
    provider.enqueue_for_orchestrator(start(instance, None), None).await.unwrap();
    let (_, token, _) = provider.fetch_orchestration_item(LOCK, POLL_ONCE, None).await.unwrap().unwrap();
    let (begun, activities) = (vec![event(instance, 1)], vec![work(instance, 2)]);
    let running = metadata("Order", None);
    provider.ack_orchestration_item(&token, 1, begun, activities, vec![], running, vec![]).await.unwrap();
    let fetched = provider.fetch_work_item(LOCK, POLL_ONCE, None, &TagFilter::default()).await.unwrap();
    let (_, activity, _) = fetched.expect("the activity");
    provider.read(instance).await.unwrap();
    let result = String::new();
    let done = WorkItem::ActivityCompleted { instance: instance.into(), execution_id: 1, id: 2, result };
    provider.ack_work_item(&activity, Some(done)).await.unwrap();
    let (_, token, _) = provider.fetch_orchestration_item(LOCK, POLL_ONCE, None).await.unwrap().unwrap();
    let (ended, completed) = (vec![event(instance, 2)], metadata("Order", Some("Completed")));
    provider.ack_orchestration_item(&token, 1, ended, vec![], vec![], completed, vec![]).await.unwrap();
}
