//! Tests of operations on the real engine in this process: turns that are too large for
//! one batch, lost answers, and expired locks. The modules below use the same helpers.

mod clock_steps;
mod costs;
mod deletion_races;
mod deletions;
mod deletions_by_transaction;
mod failed_renewal;
mod heartbeats;
mod index_reads;
mod interleavings;
mod interrupted_process;
mod large;
mod large_turns;
mod late_locks;
mod late_requests;
mod left_sessions;
mod outdated_rows;
mod prefetch;
mod recorded_process;
mod sick_partitions;
mod steals;
mod throttled_takeovers;
mod transactions;
mod transient_failures;
mod unfinished_work;
mod versions;

use std::collections::BTreeSet;
use std::time::Duration;

use duroxide::providers::{ExecutionMetadata, Provider, ProviderAdmin, TagFilter, WorkItem};
use duroxide::{Event, EventKind};
use perihelion_client::Client;
use perihelion_server::{Embedded, EmbeddedOptions};

use crate::{CosmosDBProvider, OutboxFaultInjector};

/// The lock timeout of most fetches. It is so long that no lock expires during a test.
const LOCK: Duration = Duration::from_secs(30);
/// The poll timeout of a fetch that looks once.
const NO_WAIT: Duration = Duration::ZERO;
/// The interval of a reconciler that does not run during a test.
const NEVER: Duration = Duration::from_secs(3600);

/// The engine of a test. It makes providers, each with a client of its own.
struct World {
    engine: Embedded,
}

impl World {
    async fn open() -> World {
        World { engine: Embedded::open(EmbeddedOptions::default()).await.unwrap() }
    }

    async fn provider(&self) -> CosmosDBProvider {
        self.provider_with_reconciler(Duration::from_millis(50)).await
    }

    /// A provider whose reconciler runs at this interval and finishes work of any age.
    async fn provider_with_reconciler(&self, interval: Duration) -> CosmosDBProvider {
        let client = Client::over(&self.engine.endpoint(), self.engine.transport()).await.unwrap();
        CosmosDBProvider::builder()
            .with_client(client)
            .with_reconciler(interval, Duration::ZERO)
            .open()
            .await
            .unwrap()
    }

    /// A provider whose reconciler runs often, and gives up a deletion that makes no progress
    /// for this long.
    async fn provider_with_deletion_timeout(&self, timeout: Duration) -> CosmosDBProvider {
        let client = Client::over(&self.engine.endpoint(), self.engine.transport()).await.unwrap();
        let builder = CosmosDBProvider::builder().with_client(client).with_deletion_timeout(timeout);
        builder.with_reconciler(Duration::from_millis(50), Duration::ZERO).open().await.unwrap()
    }

    /// Injects a fault into requests of the providers.
    async fn inject_fault(&self, rule: &str) {
        let answer = self.engine.manage(http::Method::POST, "faults", rule).await.unwrap();
        assert!(answer.status().is_success(), "{rule}");
    }

    /// Removes all injected faults.
    async fn remove_faults(&self) {
        let answer = self.engine.manage(http::Method::DELETE, "faults", "").await.unwrap();
        assert!(answer.status().is_success());
    }
}

/// The message that starts an instance.
fn start(instance: &str, input: String) -> WorkItem {
    WorkItem::StartOrchestration {
        instance: instance.into(),
        orchestration: "Order".into(),
        input,
        version: Some("1.0.0".into()),
        parent_instance: None,
        parent_id: None,
        parent_execution_id: None,
        execution_id: 1,
    }
}

/// A message with an external event.
fn raised_event(instance: &str, data: &str) -> WorkItem {
    WorkItem::ExternalRaised { instance: instance.into(), name: "paid".into(), data: data.into() }
}

fn activity_item(instance: &str, id: u64, input: String) -> WorkItem {
    WorkItem::ActivityExecute {
        instance: instance.into(),
        execution_id: 1,
        id,
        name: "charge".into(),
        input,
        session_id: None,
        tag: None,
    }
}

/// An event of a history.
fn event(instance: &str, id: u64, data: String) -> Event {
    Event::with_event_id(id, instance, 1, None, EventKind::ExternalEvent { name: "paid".into(), data })
}

fn order_metadata() -> ExecutionMetadata {
    ExecutionMetadata {
        orchestration_name: Some("Order".into()),
        orchestration_version: Some("1.0.0".into()),
        ..ExecutionMetadata::default()
    }
}

/// Fetches the next instance. Returns its token and messages.
async fn fetch_instance(provider: &CosmosDBProvider) -> (String, Vec<WorkItem>) {
    let fetched = provider.fetch_orchestration_item(LOCK, NO_WAIT, None).await.unwrap();
    let (item, token, _) = fetched.expect("an instance with messages");
    (token, item.messages)
}

/// Starts an instance, and fetches its first turn. Returns the token.
async fn fetch_first_turn(provider: &CosmosDBProvider, instance: &str) -> String {
    provider.enqueue_for_orchestrator(start(instance, String::new()), None).await.unwrap();
    fetch_instance(provider).await.0
}

/// Queues activities of the instance `a` with these numbers.
async fn enqueue_activities(provider: &CosmosDBProvider, ids: impl IntoIterator<Item = u64>) {
    for id in ids {
        provider.enqueue_for_worker(activity_item("a", id, String::new())).await.unwrap();
    }
}

/// Acks a turn of execution 1: it appends `history`, schedules `activities` and sends
/// `messages`.
async fn ack(
    provider: &CosmosDBProvider,
    token: &str,
    history: Vec<Event>,
    activities: Vec<WorkItem>,
    messages: Vec<WorkItem>,
) -> Result<(), duroxide::providers::ProviderError> {
    provider
        .ack_orchestration_item(token, 1, history, activities, messages, order_metadata(), Vec::new())
        .await
}

/// Fetches all activities, each at its first attempt, and completes them. Returns their numbers and
/// inputs.
async fn run_activities(provider: &CosmosDBProvider) -> Vec<(u64, String)> {
    let mut seen = Vec::new();
    while let Some((item, token, attempt)) =
        provider.fetch_work_item(LOCK, NO_WAIT, None, &TagFilter::default()).await.unwrap()
    {
        let WorkItem::ActivityExecute { instance, execution_id, id, input, .. } = item else {
            panic!("{item:?} is not an activity")
        };
        assert_eq!(attempt, 1);
        seen.push((id, input));
        let done = WorkItem::ActivityCompleted { instance, execution_id, id, result: String::new() };
        provider.ack_work_item(&token, Some(done)).await.unwrap();
    }
    seen
}

#[tokio::test]
async fn a_turn_of_a_thousand_activities_is_one_commit_and_each_is_run_once() {
    const COUNT: u64 = 1000;
    let world = World::open().await;
    let provider = world.provider().await;
    let token = fetch_first_turn(&provider, "fan").await;
    let activities = (1..=COUNT).map(|id| activity_item("fan", id, String::new())).collect();
    let timers = (2000..2100).map(|id| WorkItem::TimerFired {
        instance: "fan".into(),
        execution_id: 1,
        id,
        fire_at_ms: 1,
    });
    ack(&provider, &token, vec![event("fan", 1, String::new())], activities, timers.collect()).await.unwrap();
    let seen = run_activities(&provider).await;
    assert_eq!(seen.iter().map(|(id, _)| *id).collect::<Vec<_>>(), (1..=COUNT).collect::<Vec<_>>());
    let mut delivered = BTreeSet::new();
    let mut next_event_id = 2;
    while delivered.len() < (COUNT + 100) as usize {
        let (token, messages) = fetch_instance(&provider).await;
        for message in &messages {
            let (WorkItem::ActivityCompleted { id, .. } | WorkItem::TimerFired { id, .. }) = message else {
                panic!("{message:?} was never sent")
            };
            assert!(delivered.insert(*id), "{id} was delivered twice");
        }
        let history = vec![event("fan", next_event_id, String::new())];
        ack(&provider, &token, history, vec![], vec![]).await.unwrap();
        next_event_id += 1;
    }
    assert!(provider.fetch_orchestration_item(LOCK, NO_WAIT, None).await.unwrap().is_none());
}

#[tokio::test]
async fn a_turn_of_ten_megabytes_is_committed_whole() {
    let world = World::open().await;
    let provider = world.provider().await;
    let token = fetch_first_turn(&provider, "big").await;
    let large = |fill: &str| fill.repeat(1_200_000 / fill.len());
    let history: Vec<Event> = (1..=4).map(|id| event("big", id, large("ä\""))).collect();
    let activities = (1..=3).map(|id| activity_item("big", id, large("x"))).collect();
    ack(&provider, &token, history.clone(), activities, vec![start("child", large("y"))]).await.unwrap();
    assert_eq!(provider.read("big").await.unwrap(), history);
    let seen = run_activities(&provider).await;
    assert_eq!(
        seen.iter().map(|(id, input)| (*id, input.len())).collect::<Vec<_>>(),
        [(1, 1_200_000), (2, 1_200_000), (3, 1_200_000)]
    );
    let mut names = BTreeSet::new();
    for _ in 0..2 {
        let (item, _, _) = provider.fetch_orchestration_item(LOCK, NO_WAIT, None).await.unwrap().unwrap();
        if item.instance == "big" {
            assert_eq!((item.history.len(), item.messages.len()), (4, 3));
        }
        names.insert(item.instance);
    }
    assert_eq!(names, BTreeSet::from(["big".to_owned(), "child".to_owned()]));
}

/// Requests or answers are lost, or the service refuses some attempts, before or after it has applied
/// them.
#[tokio::test]
async fn a_commit_whose_first_attempts_fail_is_applied_once() {
    for rule in [
        r#"{"operation":"batch","count":1,"drop":"after"}"#,
        r#"{"operation":"batch","count":3,"drop":"before"}"#,
        r#"{"operation":"batch","count":2,"status":503,"when":"after"}"#,
        r#"{"operation":"batch","count":8,"status":503}"#,
        r#"{"operation":"batch","count":5,"status":429,"subStatus":3200,"retryAfterMs":5}"#,
        r#"{"operation":"batch","count":5,"status":449}"#,
        r#"{"operation":"batch","count":5,"status":408}"#,
    ] {
        let world = World::open().await;
        let provider = world.provider().await;
        let token = fetch_first_turn(&provider, "a").await;
        world.inject_fault(rule).await;
        let history = vec![event("a", 1, String::new())];
        let activities = vec![activity_item("a", 7, String::new())];
        ack(&provider, &token, history.clone(), activities, vec![])
            .await
            .unwrap_or_else(|error| panic!("{rule}: {error}"));
        assert_eq!(provider.read("a").await.unwrap(), history, "{rule}");
        assert_eq!(run_activities(&provider).await.len(), 1, "{rule}");
    }
}

/// This matters because the runtime reads the history before each activity, and treats a
/// failed read as an empty history.
#[tokio::test(start_paused = true)]
async fn a_read_outlasts_an_outage_of_seconds() {
    let world = World::open().await;
    let provider = world.provider().await;
    let token = fetch_first_turn(&provider, "a").await;
    let history = vec![event("a", 1, String::new())];
    ack(&provider, &token, history.clone(), vec![], vec![]).await.unwrap();
    world.inject_fault(r#"{"operation":"read_item","count":20,"status":503}"#).await;
    assert_eq!(provider.read("a").await.unwrap(), history);
}

/// Requests or answers are lost, or the service refuses some attempts.
#[tokio::test]
async fn an_event_whose_first_enqueue_attempts_fail_is_delivered_once() {
    for rule in [
        r#"{"operation":"create_item","count":1,"drop":"after"}"#,
        r#"{"operation":"create_item","count":2,"drop":"before"}"#,
        r#"{"operation":"create_item","count":6,"status":503}"#,
    ] {
        let world = World::open().await;
        let provider = world.provider().await;
        provider.enqueue_for_orchestrator(start("a", String::new()), None).await.unwrap();
        world.inject_fault(rule).await;
        provider.enqueue_for_orchestrator(raised_event("a", "1"), None).await.unwrap();
        let (_, messages) = fetch_instance(&provider).await;
        assert_eq!(messages, [start("a", String::new()), raised_event("a", "1")], "{rule}");
    }
}

#[tokio::test]
async fn a_message_that_could_not_be_delivered_after_the_commit_arrives_later_and_once() {
    let world = World::open().await;
    let mut provider = world.provider().await;
    provider.set_outbox_fault_injector(OutboxFaultInjector::fail_next(1));
    let token = fetch_first_turn(&provider, "a").await;
    let messages = vec![start("b", String::new()), raised_event("b", "1"), raised_event("b", "2")];
    ack(&provider, &token, vec![event("a", 1, String::new())], vec![], messages.clone()).await.unwrap();
    let found = provider.fetch_orchestration_item(LOCK, Duration::from_secs(20), None).await.unwrap();
    let (item, token, _) = found.expect("the reconciler delivers");
    assert_eq!(item.instance, "b");
    ack(&provider, &token, vec![event("b", 1, String::new())], vec![], vec![]).await.unwrap();
    let mut delivered = item.messages;
    if delivered.len() < messages.len() {
        delivered.extend(fetch_instance(&provider).await.1);
    }
    assert_eq!(delivered, messages);
}

/// Writes a message to its queue, as the sender does in every attempt.
async fn write_message(provider: &CosmosDBProvider, message: &crate::documents::Message) {
    let until = tokio::time::Instant::now() + LOCK;
    let now = provider.core.clock.stamp();
    super::payload::send_message(&provider.core.store, message.clone(), now, until).await.unwrap();
}

#[tokio::test]
async fn a_message_that_was_consumed_is_not_delivered_again() {
    let world = World::open().await;
    let provider = world.provider().await;
    let now = provider.core.clock.stamp();
    let id = crate::documents::dedup::sent_message_id("source", 1, 0);
    let message = crate::plan::message_document(&raised_event("a", "1"), id, now, None).unwrap();
    provider.enqueue_for_orchestrator(start("a", String::new()), None).await.unwrap();
    write_message(&provider, &message).await;
    let (token, messages) = fetch_instance(&provider).await;
    assert_eq!(messages.len(), 2);
    ack(&provider, &token, vec![event("a", 1, String::new())], vec![], vec![]).await.unwrap();
    write_message(&provider, &message).await;
    assert!(provider.fetch_orchestration_item(LOCK, NO_WAIT, None).await.unwrap().is_none());
    provider.delete_instance("a", true).await.unwrap();
    write_message(&provider, &message).await;
    assert!(
        provider.fetch_orchestration_item(LOCK, NO_WAIT, None).await.unwrap().is_none(),
        "a message to a deleted instance is not delivered"
    );
}

#[tokio::test]
async fn a_stale_holder_cannot_commit() {
    let world = World::open().await;
    let (first, second) = (world.provider().await, world.provider().await);
    first.enqueue_for_orchestrator(start("a", String::new()), None).await.unwrap();
    // Long enough that the lock does not expire before the next fetch on a busy machine.
    let short_lock = Duration::from_secs(1);
    let (_, stale_token, _) =
        first.fetch_orchestration_item(short_lock, NO_WAIT, None).await.unwrap().unwrap();
    assert!(
        second.fetch_orchestration_item(LOCK, NO_WAIT, None).await.unwrap().is_none(),
        "a locked instance is not fetched"
    );
    let waited = second.fetch_orchestration_item(LOCK, Duration::from_secs(10), None).await.unwrap();
    let (_, token, attempts) = waited.expect("the lock expires");
    assert_eq!(attempts, 2);
    let refused = ack(&first, &stale_token, vec![event("a", 1, "stale".into())], vec![], vec![]).await;
    assert!(refused.unwrap_err().message.contains("Invalid lock token"));
    ack(&second, &token, vec![event("a", 1, "fresh".into())], vec![], vec![]).await.unwrap();
    assert_eq!(first.read("a").await.unwrap(), second.read("a").await.unwrap());
    assert!(first.abandon_orchestration_item(&stale_token, None, false).await.is_err());
}

#[tokio::test]
async fn renewing_and_appending_keep_the_lock() {
    let world = World::open().await;
    let (first, second) = (world.provider().await, world.provider().await);
    let token = fetch_first_turn(&first, "a").await;
    // Another process changes the state, so the etag in the lock table of the first process is
    // outdated.
    second.renew_orchestration_item_lock(&token, LOCK).await.unwrap();
    second
        .append_with_execution("a", 1, vec![event("a", 1, "appended under the lock".into())])
        .await
        .unwrap();
    ack(&first, &token, vec![event("a", 2, "then".into())], vec![], vec![]).await.unwrap();
    assert_eq!(second.read("a").await.unwrap().len(), 2);
}

#[tokio::test]
async fn an_instance_may_have_any_name() {
    let world = World::open().await;
    let provider = world.provider().await;
    // `i` is also the id of a state document, and 1 the partition key of the deletions.
    for name in ["a/b", "a\\b?c#d", "\"quoted\"", "Grüße ☃", "~nodes", "", "i", "1"] {
        let token = fetch_first_turn(&provider, name).await;
        let activities = vec![activity_item(name, 2, String::new())];
        ack(&provider, &token, vec![event(name, 1, String::new())], activities, vec![]).await.unwrap();
        assert_eq!(run_activities(&provider).await.len(), 1, "{name}");
        let (token, messages) = fetch_instance(&provider).await;
        assert_eq!(messages.len(), 1, "{name}");
        ack(&provider, &token, vec![event(name, 2, String::new())], vec![], vec![]).await.unwrap();
        provider.delete_instance(name, true).await.unwrap();
        assert!(provider.get_instance_info(name).await.is_err());
    }
    let too_long = "x".repeat(3000);
    assert!(provider.enqueue_for_orchestrator(start(&too_long, String::new()), None).await.is_err());
}

/// The state of an ended instance has expired, and its timer is still pending. An instance that is
/// created again with that name sets the same timer. Its commit must not collide with the old timer.
#[tokio::test]
async fn an_instance_that_is_created_again_can_set_the_timer_of_the_earlier_one() {
    let world = World::open().await;
    let provider = world.provider().await;
    let fire_at_ms = provider.core.clock.now_ms() + 7_200_000;
    let timer = || WorkItem::TimerFired { instance: "a".into(), execution_id: 1, id: 2, fire_at_ms };
    for incarnation in 1..=2 {
        provider.enqueue_for_orchestrator(start("a", String::new()), None).await.unwrap();
        let (token, messages) = fetch_instance(&provider).await;
        assert_eq!(messages.len(), 1, "incarnation {incarnation}: only the start");
        ack(&provider, &token, vec![event("a", 1, String::new())], vec![], vec![timer()]).await.unwrap();
        let state = crate::documents::STATE_ID;
        provider.core.store.state_cache.forget("a");
        provider.core.store.container.delete("a", state).await.unwrap();
    }
}
