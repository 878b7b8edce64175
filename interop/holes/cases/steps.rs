//! What every case is made of: work items, turns, and taking what is there.

use std::future::Future;
use std::time::Duration;

use duroxide::providers::{
    ExecutionMetadata, OrchestrationItem, Provider, ProviderAdmin, ProviderError,
    ScheduledActivityIdentifier, TagFilter, WorkItem,
};
use duroxide::{Event, EventKind};
use tokio::time::Instant;

use super::world::{Broken, Outcome};

/// A lock that outlasts a case, and one that a case waits for.
pub(crate) const LOCK: Duration = Duration::from_secs(60);
pub(crate) const SHORT_LOCK: Duration = Duration::from_millis(700);

/// How long a case waits for what must come.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// How long it makes sure that something does not come.
pub(crate) const QUIET: Duration = Duration::from_millis(1500);

/// Between two looks: the published crate does not wait for work.
const GLANCE: Duration = Duration::from_millis(20);

const NOW: Duration = Duration::ZERO;

/// What the runtime gives an ack: six attempts, with these waits between them.
const RUNTIME_WAITS_MS: [u64; 5] = [10, 20, 40, 80, 160];

pub(crate) fn start(instance: &str) -> WorkItem {
    child_start(instance, None)
}

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

pub(crate) fn continued(instance: &str) -> WorkItem {
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

pub(crate) fn raised(instance: &str, data: &str) -> WorkItem {
    WorkItem::ExternalRaised { instance: instance.to_owned(), name: "paid".to_owned(), data: data.to_owned() }
}

pub(crate) fn queued(instance: &str, data: &str) -> WorkItem {
    WorkItem::QueueMessage { instance: instance.to_owned(), name: "paid".to_owned(), data: data.to_owned() }
}

pub(crate) fn timer(instance: &str, id: u64, fire_at_ms: u64) -> WorkItem {
    WorkItem::TimerFired { instance: instance.to_owned(), execution_id: 1, id, fire_at_ms }
}

pub(crate) fn work(instance: &str, id: u64) -> WorkItem {
    special_work(instance, id, None, None)
}

pub(crate) fn special_work(instance: &str, id: u64, session: Option<&str>, tag: Option<&str>) -> WorkItem {
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

pub(crate) fn done(instance: &str, id: u64) -> WorkItem {
    WorkItem::ActivityCompleted { instance: instance.to_owned(), execution_id: 1, id, result: String::new() }
}

pub(crate) fn cancel(instance: &str, activity_id: u64) -> ScheduledActivityIdentifier {
    ScheduledActivityIdentifier { instance: instance.to_owned(), execution_id: 1, activity_id }
}

pub(crate) fn event(instance: &str, execution: u64, id: u64, data: &str) -> Event {
    let kind = EventKind::ExternalEvent { name: "paid".to_owned(), data: data.to_owned() };
    Event::with_event_id(id, instance, execution, None, kind)
}

pub(crate) fn named() -> ExecutionMetadata {
    ExecutionMetadata {
        orchestration_name: Some("Order".to_owned()),
        orchestration_version: Some("1.0.0".to_owned()),
        ..ExecutionMetadata::default()
    }
}

pub(crate) fn ended(status: &str, output: &str) -> ExecutionMetadata {
    ExecutionMetadata { status: Some(status.to_owned()), output: Some(output.to_owned()), ..named() }
}

/// What a turn brings.
#[derive(Clone)]
pub(crate) struct Turn {
    pub(crate) execution: u64,
    pub(crate) history: Vec<Event>,
    pub(crate) works: Vec<WorkItem>,
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
            works: Vec::new(),
            messages: Vec::new(),
            metadata: named(),
            cancelled: Vec::new(),
        }
    }
}

/// An instance that was taken.
pub(crate) struct Taken {
    pub(crate) item: OrchestrationItem,
    pub(crate) token: String,
    pub(crate) attempts: u32,
}

pub(crate) async fn enqueue(provider: &dyn Provider, item: WorkItem) -> Outcome {
    Ok(provider.enqueue_for_orchestrator(item, None).await?)
}

/// Takes an instance if there is one now.
pub(crate) async fn look(provider: &dyn Provider, lock: Duration) -> Result<Option<Taken>, ProviderError> {
    let found = provider.fetch_orchestration_item(lock, NOW, None).await?;
    Ok(found.map(|(item, token, attempts)| Taken { item, token, attempts }))
}

/// Takes an instance as soon as there is one.
pub(crate) async fn take_for(provider: &dyn Provider, lock: Duration) -> Outcome<Taken> {
    let found = until(async || look(provider, lock).await).await?;
    found.ok_or_else(|| Broken("there was nothing to take".to_owned()))
}

pub(crate) async fn take(provider: &dyn Provider) -> Outcome<Taken> {
    take_for(provider, LOCK).await
}

/// Takes an activity if there is one now.
pub(crate) async fn look_for_work(
    provider: &dyn Provider,
    lock: Duration,
) -> Result<Option<(WorkItem, String, u32)>, ProviderError> {
    provider.fetch_work_item(lock, NOW, None, &TagFilter::default()).await
}

/// Takes an activity as soon as there is one.
pub(crate) async fn take_work(provider: &dyn Provider, lock: Duration) -> Outcome<(WorkItem, String, u32)> {
    let found = until(async || look_for_work(provider, lock).await).await?;
    found.ok_or_else(|| Broken("there was no activity".to_owned()))
}

/// Looks until there is something or [`PATIENCE`] ends; errors end it at once.
pub(crate) async fn until<T, E>(look: impl AsyncFnMut() -> Result<Option<T>, E>) -> Result<Option<T>, E> {
    within(PATIENCE, look).await
}

/// Looks until there is something or the time is over.
pub(crate) async fn within<T, E>(
    time: Duration,
    mut look: impl AsyncFnMut() -> Result<Option<T>, E>,
) -> Result<Option<T>, E> {
    let deadline = Instant::now() + time;
    loop {
        match look().await? {
            Some(found) => return Ok(Some(found)),
            None if Instant::now() >= deadline => return Ok(None),
            None => tokio::time::sleep(GLANCE).await,
        }
    }
}

pub(crate) async fn ack(provider: &dyn Provider, token: &str, turn: Turn) -> Result<(), ProviderError> {
    let Turn { execution, history, works, messages, metadata, cancelled } = turn;
    provider.ack_orchestration_item(token, execution, history, works, messages, metadata, cancelled).await
}

/// Acks as patiently as the runtime does, and no more.
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

/// Makes an instance that has had its first turn.
pub(crate) async fn begin(provider: &dyn Provider, instance: &str) -> Outcome {
    begin_with(provider, instance, Turn::of(instance, 1)).await
}

pub(crate) async fn begin_with(provider: &dyn Provider, instance: &str, turn: Turn) -> Outcome {
    enqueue(provider, start(instance)).await?;
    let taken = take(provider).await?;
    Ok(ack(provider, &taken.token, turn).await?)
}

/// Makes an instance with so many executions, the last of which runs.
pub(crate) async fn continue_often(provider: &dyn Provider, instance: &str, executions: u64) -> Outcome {
    enqueue(provider, start(instance)).await?;
    for execution in 1..=executions {
        let taken = take(provider).await?;
        let is_last = execution == executions;
        let turn = Turn {
            execution,
            history: vec![event(instance, execution, 1, "")],
            messages: if is_last { Vec::new() } else { vec![continued(instance)] },
            metadata: if is_last { named() } else { ended("ContinuedAsNew", &format!("input {execution}")) },
            ..Turn::of(instance, 1)
        };
        ack(provider, &taken.token, turn).await?;
    }
    Ok(())
}

pub(crate) fn admin(provider: &dyn Provider) -> Outcome<&dyn ProviderAdmin> {
    provider.as_management_capability().ok_or_else(|| Broken("the provider does not manage".to_owned()))
}

/// What a future comes to within [`PATIENCE`].
pub(crate) async fn in_time<T>(future: impl Future<Output = T>, otherwise: &str) -> Outcome<T> {
    tokio::time::timeout(PATIENCE, future).await.map_err(|_| Broken(otherwise.to_owned()))
}
