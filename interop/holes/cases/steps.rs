//! Building blocks of the cases: work items, turns, fetches and acks.

use std::future::Future;
use std::time::Duration;

use duroxide::providers::{
    ExecutionMetadata, OrchestrationItem, Provider, ProviderAdmin, ProviderError,
    ScheduledActivityIdentifier, TagFilter, WorkItem,
};
use duroxide::{Event, EventKind};
use tokio::time::Instant;

use super::world::{CaseFailure, Outcome};

/// The timeout of a lock that lasts longer than a case.
pub(crate) const LOCK: Duration = Duration::from_secs(60);
/// The timeout of a lock whose end a case waits for.
pub(crate) const SHORT_LOCK: Duration = Duration::from_millis(700);

/// The longest wait of a case for something that has to happen.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(10);

/// How long a case watches to see that something does not happen.
pub(crate) const QUIET: Duration = Duration::from_millis(1500);

/// The pause between two fetches. The published crate does not wait for work.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The poll timeout of a fetch that does not wait.
const NO_WAIT: Duration = Duration::ZERO;

/// The waits between the six tries of the runtime to ack a turn.
const RUNTIME_WAITS_MS: [u64; 5] = [10, 20, 40, 80, 160];

/// The message that starts an instance.
pub(crate) fn start(instance: &str) -> WorkItem {
    child_start(instance, None)
}

/// The message that starts an instance, as the child of `parent` if there is one.
pub(crate) fn child_start(instance: &str, parent: Option<&str>) -> WorkItem {
    WorkItem::StartOrchestration {
        instance: instance.to_owned(),
        orchestration: "Order".to_owned(),
        input: String::new(),
        version: Some("1.0.0".to_owned()),
        parent_instance: parent.map(str::to_owned),
        parent_id: parent.map(|_| 2),
        parent_execution_id: parent.map(|_| 1),
        execution_id: 1,
    }
}

pub(crate) fn continue_as_new(instance: &str) -> WorkItem {
    WorkItem::ContinueAsNew {
        instance: instance.to_owned(),
        orchestration: "Order".to_owned(),
        input: String::new(),
        version: Some("1.0.0".to_owned()),
        parent_instance: None,
        parent_id: None,
        parent_execution_id: None,
        carry_forward_events: Vec::new(),
        initial_custom_status: None,
    }
}

pub(crate) fn external_event(instance: &str, data: &str) -> WorkItem {
    WorkItem::ExternalRaised { instance: instance.to_owned(), name: "paid".to_owned(), data: data.to_owned() }
}

pub(crate) fn queue_message(instance: &str, data: &str) -> WorkItem {
    WorkItem::QueueMessage { instance: instance.to_owned(), name: "paid".to_owned(), data: data.to_owned() }
}

pub(crate) fn timer(instance: &str, id: u64, fire_at_ms: u64) -> WorkItem {
    WorkItem::TimerFired { instance: instance.to_owned(), execution_id: 1, id, fire_at_ms }
}

pub(crate) fn activity(instance: &str, id: u64) -> WorkItem {
    activity_with(instance, id, None, None)
}

pub(crate) fn activity_with(instance: &str, id: u64, session: Option<&str>, tag: Option<&str>) -> WorkItem {
    WorkItem::ActivityExecute {
        instance: instance.to_owned(),
        execution_id: 1,
        id,
        name: "charge".to_owned(),
        input: String::new(),
        session_id: session.map(str::to_owned),
        tag: tag.map(str::to_owned),
    }
}

pub(crate) fn completion(instance: &str, id: u64) -> WorkItem {
    WorkItem::ActivityCompleted { instance: instance.to_owned(), execution_id: 1, id, result: String::new() }
}

pub(crate) fn cancellation(instance: &str, activity_id: u64) -> ScheduledActivityIdentifier {
    ScheduledActivityIdentifier { instance: instance.to_owned(), execution_id: 1, activity_id }
}

/// An event of a history.
pub(crate) fn event(instance: &str, execution: u64, id: u64, data: &str) -> Event {
    let kind = EventKind::ExternalEvent { name: "paid".to_owned(), data: data.to_owned() };
    Event::with_event_id(id, instance, execution, None, kind)
}

pub(crate) fn metadata() -> ExecutionMetadata {
    ExecutionMetadata {
        orchestration_name: Some("Order".to_owned()),
        orchestration_version: Some("1.0.0".to_owned()),
        ..ExecutionMetadata::default()
    }
}

pub(crate) fn metadata_with_status(status: &str, output: &str) -> ExecutionMetadata {
    ExecutionMetadata { status: Some(status.to_owned()), output: Some(output.to_owned()), ..metadata() }
}

/// The arguments of an ack.
#[derive(Clone)]
pub(crate) struct Turn {
    pub(crate) execution: u64,
    pub(crate) history: Vec<Event>,
    pub(crate) activities: Vec<WorkItem>,
    pub(crate) messages: Vec<WorkItem>,
    pub(crate) metadata: ExecutionMetadata,
    pub(crate) cancelled: Vec<ScheduledActivityIdentifier>,
}

impl Turn {
    /// A turn of the first execution that records one event.
    pub(crate) fn of(instance: &str, event_id: u64) -> Self {
        Turn {
            execution: 1,
            history: vec![event(instance, 1, event_id, "")],
            activities: Vec::new(),
            messages: Vec::new(),
            metadata: metadata(),
            cancelled: Vec::new(),
        }
    }
}

/// A fetched instance.
pub(crate) struct Fetched {
    pub(crate) item: OrchestrationItem,
    pub(crate) token: String,
    pub(crate) attempts: u32,
}

pub(crate) async fn enqueue(provider: &dyn Provider, item: WorkItem) -> Outcome {
    Ok(provider.enqueue_for_orchestrator(item, None).await?)
}

/// Fetches an instance if one is ready now, with a lock of this length.
pub(crate) async fn fetch_now(
    provider: &dyn Provider,
    lock: Duration,
) -> Result<Option<Fetched>, ProviderError> {
    let fetched = provider.fetch_orchestration_item(lock, NO_WAIT, None).await?;
    Ok(fetched.map(|(item, token, attempts)| Fetched { item, token, attempts }))
}

/// Fetches an instance as soon as one is ready.
pub(crate) async fn fetch_with_lock(provider: &dyn Provider, lock: Duration) -> Outcome<Fetched> {
    let fetched = poll(async || match fetch_now(provider, lock).await {
        // The case tries again, as the runtime does.
        Err(error) if error.is_retryable() => Ok(None),
        fetched => fetched,
    });
    fetched.await?.ok_or_else(|| CaseFailure("no instance became ready".to_owned()))
}

/// Fetches an instance as soon as one is ready, with a long lock.
pub(crate) async fn fetch(provider: &dyn Provider) -> Outcome<Fetched> {
    fetch_with_lock(provider, LOCK).await
}

/// Fetches an activity if one is ready now.
pub(crate) async fn fetch_work_now(
    provider: &dyn Provider,
    lock: Duration,
) -> Result<Option<(WorkItem, String, u32)>, ProviderError> {
    provider.fetch_work_item(lock, NO_WAIT, None, &TagFilter::default()).await
}

/// Fetches an activity as soon as one is ready.
pub(crate) async fn fetch_work(provider: &dyn Provider, lock: Duration) -> Outcome<(WorkItem, String, u32)> {
    let fetched = poll(async || fetch_work_now(provider, lock).await).await?;
    fetched.ok_or_else(|| CaseFailure("no activity became ready".to_owned()))
}

/// Polls until there is a result or [`WAIT_MAX`] is over. Returns at the first error.
pub(crate) async fn poll<T, E>(attempt: impl AsyncFnMut() -> Result<Option<T>, E>) -> Result<Option<T>, E> {
    poll_for(WAIT_MAX, attempt).await
}

/// Polls until there is a result or the time is over. Returns at the first error.
pub(crate) async fn poll_for<T, E>(
    time: Duration,
    mut attempt: impl AsyncFnMut() -> Result<Option<T>, E>,
) -> Result<Option<T>, E> {
    let deadline = Instant::now() + time;
    loop {
        match attempt().await? {
            Some(result) => return Ok(Some(result)),
            None if Instant::now() >= deadline => return Ok(None),
            None => tokio::time::sleep(POLL_INTERVAL).await,
        }
    }
}

pub(crate) async fn ack(provider: &dyn Provider, token: &str, turn: Turn) -> Result<(), ProviderError> {
    let Turn { execution, history, activities, messages, metadata, cancelled } = turn;
    provider
        .ack_orchestration_item(token, execution, history, activities, messages, metadata, cancelled)
        .await
}

/// Acks a turn, and repeats the ack after an error as the runtime does.
pub(crate) async fn ack_like_the_runtime(
    provider: &dyn Provider,
    token: &str,
    turn: Turn,
) -> Result<(), ProviderError> {
    for wait in RUNTIME_WAITS_MS {
        match ack(provider, token, turn.clone()).await {
            Err(error) if error.is_retryable() => tokio::time::sleep(Duration::from_millis(wait)).await,
            outcome => return outcome,
        }
    }
    ack(provider, token, turn).await
}

/// Creates an instance and commits its first turn.
pub(crate) async fn begin_instance(provider: &dyn Provider, instance: &str) -> Outcome {
    begin_instance_with(provider, instance, Turn::of(instance, 1)).await
}

/// Creates an instance and commits this turn as its first.
pub(crate) async fn begin_instance_with(provider: &dyn Provider, instance: &str, turn: Turn) -> Outcome {
    enqueue(provider, start(instance)).await?;
    let taken = fetch(provider).await?;
    Ok(ack(provider, &taken.token, turn).await?)
}

/// Creates an instance with several executions. The last execution is running.
pub(crate) async fn run_executions(provider: &dyn Provider, instance: &str, executions: u64) -> Outcome {
    enqueue(provider, start(instance)).await?;
    for execution in 1..=executions {
        let taken = fetch(provider).await?;
        let is_last = execution == executions;
        let turn = Turn {
            execution,
            history: vec![event(instance, execution, 1, "")],
            messages: if is_last { Vec::new() } else { vec![continue_as_new(instance)] },
            metadata: if is_last {
                metadata()
            } else {
                metadata_with_status("ContinuedAsNew", &format!("input {execution}"))
            },
            ..Turn::of(instance, 1)
        };
        ack(provider, &taken.token, turn).await?;
    }
    Ok(())
}

/// The management methods of a provider.
pub(crate) fn admin(provider: &dyn Provider) -> Outcome<&dyn ProviderAdmin> {
    provider
        .as_management_capability()
        .ok_or_else(|| CaseFailure("the provider has no management capability".to_owned()))
}

/// Waits for a future, which has to end within [`WAIT_MAX`]. If it does not, the case fails
/// with the sentence `otherwise`.
pub(crate) async fn finish_in_time<T>(future: impl Future<Output = T>, otherwise: &str) -> Outcome<T> {
    tokio::time::timeout(WAIT_MAX, future).await.map_err(|_| CaseFailure(otherwise.to_owned()))
}
