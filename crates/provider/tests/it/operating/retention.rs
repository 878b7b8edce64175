//! Retention: instances that have ended are removed completely after their time, and no
//! others are. The tests advance the engine's clock. A provider whose own clock is ahead
//! stands for a provider that runs later.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use duroxide::providers::{OrchestrationItem, Provider, ProviderAdmin, WorkItem};
use duroxide::{Event, EventKind};
use duroxide_cdb::{CosmosDBProvider, ListOptions, RetentionOptions};
use perihelion_server::{Clock, EmbeddedOptions};
use perihelion_testkit::TestServer;
use serde_json::json;

use super::{LOCK, POLL_ONCE, RARELY, event, metadata, smallest_workflow, start};

const DAY: Duration = Duration::from_secs(24 * 3600);
/// The interval of a reconciler that runs during a test.
const OFTEN: Duration = Duration::from_millis(50);

/// The time limit for the reconciler.
const RECONCILER_TIMEOUT: Duration = Duration::from_secs(120);

struct World {
    server: TestServer,
    /// Seconds added to the real clock.
    added_s: Arc<AtomicU64>,
}

impl World {
    async fn open() -> World {
        let added_s = Arc::new(AtomicU64::new(0));
        let read_by_clock = Arc::clone(&added_s);
        let clock = Clock::from_fn(move || {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            now + Duration::from_secs(read_by_clock.load(Ordering::SeqCst))
        });
        World { server: TestServer::in_process(EmbeddedOptions::default().with_clock(clock)).await, added_s }
    }

    /// Advances the engine's clock.
    fn advance(&self, time: Duration) {
        self.added_s.fetch_add(time.as_secs(), Ordering::SeqCst);
    }

    /// A provider that keeps ended instances for a day, with its clock this far ahead. If
    /// `ahead` is zero, its reconciler does not run. Otherwise `ahead` must be more than a day: a provider
    /// whose clock differs less from the engine's clock adopts the engine's time.
    async fn provider(&self, ahead: Duration) -> CosmosDBProvider {
        let retention = RetentionOptions::new().with_finished_for(DAY).with_executions_kept(3);
        let builder = CosmosDBProvider::builder().with_client(self.server.client().await);
        let interval = if ahead.is_zero() { RARELY } else { OFTEN };
        let builder = builder.with_reconciler(interval, Duration::ZERO).with_retention(retention);
        builder.with_clock_error_ms(ahead.as_millis() as i64).open().await.unwrap()
    }

    /// The number of documents of instances.
    async fn document_count(&self) -> u64 {
        let container = self.server.client().await.database("duroxide").container("duroxide");
        let query = "SELECT VALUE COUNT(1) FROM c WHERE IS_STRING(c.instanceId)";
        container.query::<u64>(query).first().await.unwrap().unwrap()
    }
}

/// The ids of the listed instances, in order.
async fn listed(provider: &CosmosDBProvider) -> Vec<String> {
    let page = provider.list(&ListOptions::new()).await.unwrap();
    let mut ids: Vec<String> = page.instances.into_iter().map(|row| row.instance_id).collect();
    ids.sort();
    ids
}

/// Fetches the one instance with messages, commits a turn of it, and returns its id.
async fn commit_turn(
    provider: &CosmosDBProvider,
    execution: u64,
    history: Vec<Event>,
    messages: Vec<WorkItem>,
    status: Option<&str>,
) -> String {
    let (item, token, _) = provider.fetch_orchestration_item(LOCK, POLL_ONCE, None).await.unwrap().unwrap();
    ack_turn(provider, &item, &token, execution, history, messages, status).await;
    item.instance
}

/// Fetches this instance, and commits a turn of it. Other instances with messages are given back.
async fn commit_turn_of(
    provider: &CosmosDBProvider,
    instance: &str,
    execution: u64,
    history: Vec<Event>,
    messages: Vec<WorkItem>,
    status: Option<&str>,
) {
    let mut others = Vec::new();
    let (item, token) = loop {
        let fetched = provider.fetch_orchestration_item(LOCK, POLL_ONCE, None).await.unwrap();
        let (item, token, _) = fetched.expect("the instance has messages");
        if item.instance == instance {
            break (item, token);
        }
        others.push(token);
    };
    ack_turn(provider, &item, &token, execution, history, messages, status).await;
    for token in others {
        provider.abandon_orchestration_item(&token, None, true).await.unwrap();
    }
}

async fn ack_turn(
    provider: &CosmosDBProvider,
    item: &OrchestrationItem,
    token: &str,
    execution: u64,
    history: Vec<Event>,
    messages: Vec<WorkItem>,
    status: Option<&str>,
) {
    let mut metadata = metadata("Order", status);
    metadata.parent_instance_id = item.messages.iter().find_map(|message| match message {
        WorkItem::StartOrchestration { parent_instance, .. } => parent_instance.clone(),
        _ => None,
    });
    let acked =
        provider.ack_orchestration_item(token, execution, history, vec![], messages, metadata, vec![]);
    acked.await.unwrap();
}

#[tokio::test]
async fn an_instance_of_one_document_expires_and_its_name_is_free_again() {
    let world = World::open().await;
    let provider = world.provider(Duration::ZERO).await;
    smallest_workflow(&provider, "done").await;
    provider.enqueue_for_orchestrator(start("running", None), None).await.unwrap();
    commit_turn(&provider, 1, vec![event("running", 1)], vec![], None).await;
    let before = provider.metrics().requests;
    world.advance(DAY - Duration::from_secs(60));
    assert_eq!(listed(&provider).await, ["done", "running"]);
    world.advance(Duration::from_secs(120));
    assert_eq!(listed(&provider).await, ["running"]);
    assert!(provider.get_instance_info("done").await.is_err());
    assert!(provider.read("done").await.unwrap().is_empty());
    world.server.manage(http::Method::POST, "maintain", "").await;
    assert_eq!(world.document_count().await, 1, "only the running instance remains");
    assert!(
        provider.metrics().requests - before <= 8,
        "the provider sends requests to remove a document that expires by its TTL"
    );

    // The name is free: a new instance runs under it.
    smallest_workflow(&provider, "done").await;
    assert_eq!(provider.get_instance_info("done").await.unwrap().status, "Completed");
    assert_eq!(provider.read("done").await.unwrap().len(), 2);
}

#[tokio::test]
async fn a_tree_is_removed_whole_after_its_root_has_ended_and_not_while_a_child_runs() {
    let world = World::open().await;
    let provider = world.provider(Duration::ZERO).await;
    provider.enqueue_for_orchestrator(start("root", None), None).await.unwrap();
    let child = vec![start("child", Some("root"))];
    assert_eq!(commit_turn(&provider, 1, vec![event("root", 1)], child, Some("Completed")).await, "root");
    assert_eq!(commit_turn(&provider, 1, vec![event("child", 1)], vec![], None).await, "child");
    // The history of the instance `long` does not fit into one document.
    let long = EventKind::ExternalEvent { name: "long".into(), data: "x".repeat(20_000) };
    provider.enqueue_for_orchestrator(start("long", None), None).await.unwrap();
    let events = vec![Event::with_event_id(1, "long", 1, None, long)];
    assert_eq!(commit_turn(&provider, 1, events, vec![], Some("Failed")).await, "long");
    world.advance(2 * DAY);
    assert_eq!(
        listed(&provider).await,
        ["child", "long", "root"],
        "no TTL removes a running instance, a parent, or an instance of several documents"
    );

    let after_two_days = world.provider(2 * DAY).await;
    wait_until_listed(&after_two_days, &["child", "root"]).await;
    let raised =
        WorkItem::ExternalRaised { instance: "child".into(), name: "go".into(), data: String::new() };
    provider.enqueue_for_orchestrator(raised, None).await.unwrap();
    commit_turn(&provider, 1, vec![event("child", 2)], vec![], Some("Completed")).await;
    assert_eq!(
        listed(&provider).await,
        ["child", "root"],
        "a tree is kept until all its instances have ended"
    );
    after_two_days.close().await;

    let after_four_days = world.provider(4 * DAY).await;
    wait_until_listed(&after_four_days, &[]).await;
    assert!(after_four_days.read("long").await.unwrap().is_empty());
    let tombstones = 3;
    assert_eq!(world.document_count().await, tombstones);
}

/// The tree has more instances than one distributed transaction, or one round of the reconciler, can
/// delete.
#[tokio::test]
async fn a_tree_of_many_instances_is_removed_whole() {
    const CHILDREN: usize = 130;
    let world = World::open().await;
    let provider = world.provider(Duration::ZERO).await;
    provider.enqueue_for_orchestrator(start("root", None), None).await.unwrap();
    let children = (0..CHILDREN).map(|number| start(&format!("child-{number}"), Some("root"))).collect();
    commit_turn(&provider, 1, vec![event("root", 1)], children, Some("Completed")).await;
    for _ in 0..CHILDREN {
        commit_turn(&provider, 1, vec![event("child", 1)], vec![], Some("Completed")).await;
    }
    world.advance(2 * DAY);
    let later = world.provider(4 * DAY).await;
    wait_until_listed(&later, &[]).await;
    assert_eq!(later.list_instances().await.unwrap(), Vec::<String>::new());
    let tombstones = CHILDREN as u64 + 1;
    assert_eq!(world.document_count().await, tombstones);
}

/// Waits until exactly these instances are listed.
async fn wait_until_listed(provider: &CosmosDBProvider, expected: &[&str]) {
    let removed = async {
        while listed(provider).await != expected {
            tokio::time::sleep(OFTEN).await;
        }
    };
    assert!(tokio::time::timeout(RECONCILER_TIMEOUT, removed).await.is_ok(), "{:?}", listed(provider).await);
}

/// Commits a turn of the instance `eternal` that sends these messages and continues as new.
async fn continue_as_new(provider: &CosmosDBProvider, execution: u64, mut messages: Vec<WorkItem>) {
    // As JSON text, because the fields differ between duroxide versions.
    let next = json!({"ContinueAsNew": {
        "instance": "eternal", "orchestration": "Order", "input": "", "version": "1.0.0",
        "carry_forward_events": [], "initial_custom_status": null,
    }});
    messages.push(serde_json::from_value(next).unwrap());
    let kind = EventKind::ExternalEvent { name: "round".into(), data: String::new() };
    let history = vec![Event::with_event_id(1, "eternal", execution, None, kind)];
    commit_turn_of(provider, "eternal", execution, history, messages, Some("ContinuedAsNew")).await;
}

/// The parent never ends, so its tree is never removed as a whole. Its children that have ended are
/// removed after their time, and a child that runs is not.
#[tokio::test]
async fn ended_children_of_an_eternal_instance_are_removed() {
    let world = World::open().await;
    let provider = world.provider(Duration::ZERO).await;
    provider.enqueue_for_orchestrator(start("eternal", None), None).await.unwrap();
    continue_as_new(&provider, 1, vec![start("ended", Some("eternal"))]).await;
    commit_turn_of(&provider, "ended", 1, vec![event("ended", 1)], vec![], Some("Completed")).await;
    for execution in 2..=6 {
        continue_as_new(&provider, execution, vec![]).await;
    }
    continue_as_new(&provider, 7, vec![start("running", Some("eternal"))]).await;
    world.advance(2 * DAY);
    let later = world.provider(2 * DAY).await;
    commit_turn_of(&later, "running", 1, vec![event("running", 1)], vec![], None).await;
    assert_eq!(listed(&later).await, ["ended", "eternal", "running"]);
    continue_as_new(&later, 8, vec![]).await;
    wait_until_listed(&later, &["eternal", "running"]).await;
}

/// The options keep three executions. Older ones are deleted after every eighth execution.
#[tokio::test]
async fn retention_keeps_the_last_executions_of_an_eternal_instance() {
    let world = World::open().await;
    let provider = world.provider(Duration::ZERO).await;
    provider.enqueue_for_orchestrator(start("eternal", None), None).await.unwrap();
    for execution in 1..=24 {
        continue_as_new(&provider, execution, vec![]).await;
        let listed = provider.list_executions("eternal").await.unwrap();
        assert!(listed.len() <= 3 + 8 && listed.last() == Some(&execution), "{execution}: {listed:?}");
    }
    assert_eq!(provider.list_executions("eternal").await.unwrap(), [22, 23, 24]);
    for execution in 22..=24 {
        let history = provider.read_history_with_execution_id("eternal", execution).await.unwrap();
        assert_eq!(history.len(), 1, "{execution}");
    }
}

#[tokio::test]
async fn a_message_to_a_missing_instance_is_kept_as_long_as_an_ended_instance() {
    let world = World::open().await;
    let provider = world.provider(Duration::ZERO).await;
    let raised = WorkItem::ExternalRaised { instance: "gone".into(), name: "go".into(), data: String::new() };
    provider.enqueue_for_orchestrator(raised, None).await.unwrap();
    assert!(provider.fetch_orchestration_item(LOCK, POLL_ONCE, None).await.unwrap().is_none());
    assert_eq!(world.document_count().await, 1, "the message waits for a start");
    let later = world.provider(2 * DAY).await;
    assert!(later.fetch_orchestration_item(LOCK, POLL_ONCE, None).await.unwrap().is_none());
    assert_eq!(world.document_count().await, 0);
}
