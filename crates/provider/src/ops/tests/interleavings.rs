//! Interleavings that a test can only make by writing documents or injecting faults: a
//! crash between two steps, a late commit of a staged turn, a stale hint. The tests run on the
//! real engine in this process.

use std::collections::BTreeSet;
use std::time::Duration;

use duroxide::providers::{
    ExecutionMetadata, Provider, ProviderAdmin, ScheduledActivityIdentifier, SessionFetchConfig, TagFilter,
    WorkItem,
};
use perihelion_client::{Client, Query};
use serde_json::{Value, json};

use super::{
    LOCK, NEVER, NO_WAIT, World, ack, activity_item, event, fetch_first_turn, fetch_instance, order_metadata,
    raised_event, run_activities, start,
};
use crate::CosmosDBProvider;
use crate::documents::{Deletion, DeletionStage, DocumentType, Execution, Message, Outbox, State};
use crate::plan::session_document_key;

/// The time limit of a wait.
const WAIT_MAX: Duration = Duration::from_secs(20);

/// The partition key of all deletions.
const DELETIONS_KEY: u64 = 1;

/// The id of the deletion that [`create_deletion`] creates.
pub(super) const DELETION_ID: &str = "d:cut-off";

/// The bytes of a large value. Three of these values do not fit into one commit.
const LARGE_BYTES: usize = 700_000;

impl World {
    /// Injects a fault into batches. `rule` has the members of the rule besides the operation.
    async fn inject_batch_fault(&self, rule: &str) {
        self.inject_fault(&format!(r#"{{"operation":"batch",{rule}}}"#)).await;
    }
}

/// Rows of an instance's partition.
async fn rows(provider: &CosmosDBProvider, instance: &str, text: &str) -> Vec<Value> {
    provider.core.store.rows(Query::new(text).in_partition(instance)).await.unwrap()
}

/// Waits until the condition holds. `what` names the event that makes it hold.
async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let wait = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(WAIT_MAX, wait).await.unwrap_or_else(|_| panic!("{what} does not happen"));
}

/// Waits until the lock of an instance is written, and then removes it from the state document.
/// Otherwise the process that holds the lock would renew it.
async fn lose_lock(provider: &CosmosDBProvider, instance: &str) {
    eventually("the write of the lock", async || {
        let state = provider.core.store.state(instance).await.unwrap();
        state.is_some_and(|state| state.value.lock.is_some())
    })
    .await;
    let mut state = provider.core.store.state(instance).await.unwrap().unwrap();
    state.value.lock = None;
    let nonce = state.value.commit_nonce.clone();
    provider.core.store.put_state(&state.value, Some(&state.etag), "/ack", nonce.into()).await.unwrap();
}

/// Three large events of the instance `a`, so that a turn with this history is staged.
fn large_history(fill: &str) -> Vec<duroxide::Event> {
    (1..=3).map(|id| event("a", id, fill.repeat(LARGE_BYTES))).collect()
}

#[tokio::test]
async fn a_stale_staged_turn_changes_nothing() {
    let world = World::open().await;
    let (first, second) = (world.provider().await, world.provider().await);
    first.enqueue_for_orchestrator(start("a", String::new()), None).await.unwrap();
    let short_lock = Duration::from_millis(800);
    let fetched = first.fetch_orchestration_item(short_lock, NO_WAIT, None).await.unwrap();
    let (_, stale_token, _) = fetched.expect("the instance");
    // The first batch of the staging is late. Meanwhile the lock is lost, so the commit is sent
    // after another process has taken the instance.
    world.inject_batch_fault(r#""count":1,"delayMs":2500"#).await;
    let late_ack =
        tokio::spawn(async move { ack(&first, &stale_token, large_history("s"), vec![], vec![]).await });
    lose_lock(&second, "a").await;
    let fetched = second.fetch_orchestration_item(LOCK, WAIT_MAX, None).await.unwrap();
    let (_, token, _) = fetched.expect("the instance without its lock");
    let fresh = large_history("f");
    ack(&second, &token, fresh.clone(), vec![], vec![]).await.unwrap();
    assert!(late_ack.await.unwrap().is_err(), "another process had the lock");
    assert!(second.read("a").await.unwrap() == fresh, "only the committed history is stored");
}

#[tokio::test]
async fn a_failed_staging_leaves_its_garbage_record_and_a_commit_deletes_its_own() {
    // The garbage records of stagings. Their stored type is `litter`.
    const STAGING_RECORDS: &str = "SELECT c.id FROM c WHERE c.type = 'litter' AND IS_DEFINED(c.staging)";
    let world = World::open().await;
    let provider = world.provider().await;
    let token = fetch_first_turn(&provider, "a").await;
    let history = large_history("h");
    let ack_turn = async || {
        let activities = (1..=3).map(|id| activity_item("a", id, "w".repeat(LARGE_BYTES))).collect();
        let messages = vec![start("child", "c".repeat(LARGE_BYTES))];
        ack(&provider, &token, history.clone(), activities, messages).await
    };
    // The first batch creates the garbage record. The second one fails.
    world.inject_batch_fault(r#""count":1,"delayMs":1"#).await;
    world.inject_batch_fault(r#""count":1,"status":400"#).await;
    ack_turn().await.unwrap_err();
    let uncommitted = rows(&provider, "a", STAGING_RECORDS).await;
    assert_eq!(uncommitted.len(), 1, "{uncommitted:?}");
    world.remove_faults().await;
    ack_turn().await.unwrap();
    let remaining: BTreeSet<String> =
        rows(&provider, "a", STAGING_RECORDS).await.iter().map(Value::to_string).collect();
    let uncommitted: BTreeSet<String> = uncommitted.iter().map(Value::to_string).collect();
    assert!(remaining.is_subset(&uncommitted), "the commit deleted its garbage record");
    assert!(provider.read("a").await.unwrap() == history);
    assert_eq!(run_activities(&provider).await.len(), 3);
}

#[tokio::test]
async fn an_activity_cancelled_before_its_bundle_is_unpacked_never_runs() {
    const COUNT: u64 = 40;
    let world = World::open().await;
    let crashing = world.provider_with_reconciler(NEVER).await;
    let token = fetch_first_turn(&crashing, "a").await;
    // The commit succeeds, and every unpacking fails.
    world.inject_batch_fault(r#""count":1,"delayMs":1"#).await;
    world.inject_batch_fault(r#""status":400"#).await;
    let activities = (1..=COUNT).map(|id| activity_item("a", id, String::new())).collect();
    ack(&crashing, &token, vec![event("a", 1, String::new())], activities, vec![]).await.unwrap();
    world.remove_faults().await;
    let bundles = rows(&crashing, "a", "SELECT c.id FROM c WHERE c.type = 'bundle'").await;
    assert_eq!(bundles.len(), 1, "the bundle is not unpacked");

    crashing.enqueue_for_orchestrator(raised_event("a", "stop"), None).await.unwrap();
    let (token, _) = fetch_instance(&crashing).await;
    let cancelled = [7, 9].map(|activity_id| ScheduledActivityIdentifier {
        instance: "a".into(),
        execution_id: 1,
        activity_id,
    });
    let history = vec![event("a", 2, String::new())];
    let acked = crashing
        .ack_orchestration_item(&token, 1, history, vec![], vec![], order_metadata(), cancelled.to_vec())
        .await;
    acked.unwrap();

    let reconciling = world.provider().await;
    eventually("the unpacking of the bundle", async || {
        rows(&reconciling, "a", "SELECT c.id FROM c WHERE c.type = 'bundle'").await.is_empty()
    })
    .await;
    let ran: Vec<u64> = run_activities(&reconciling).await.into_iter().map(|(id, _)| id).collect();
    let expected: Vec<u64> = (1..=COUNT).filter(|id| ![7, 9].contains(id)).collect();
    assert_eq!(ran, expected);
}

/// A worker has a stale hint about an activity and claims its session. The activity no longer
/// exists, so the worker releases the session.
#[tokio::test]
async fn a_session_is_released_if_its_activity_no_longer_exists() {
    let in_session = |id| match activity_item("a", id, String::new()) {
        WorkItem::ActivityExecute { instance, execution_id, id, name, input, tag, .. } => {
            let session_id = Some("printer".to_owned());
            WorkItem::ActivityExecute { instance, execution_id, id, name, input, session_id, tag }
        }
        other => other,
    };
    let worker = |owner: &str, lock_timeout| SessionFetchConfig { owner_id: owner.to_owned(), lock_timeout };
    let fetch = async |provider: &CosmosDBProvider, worker: SessionFetchConfig| {
        provider.fetch_work_item(LOCK, NO_WAIT, Some(&worker), &TagFilter::default()).await.unwrap()
    };
    let world = World::open().await;
    let (hinted, other) = (world.provider().await, world.provider().await);
    let token = fetch_first_turn(&hinted, "a").await;
    ack(&hinted, &token, vec![event("a", 1, String::new())], vec![in_session(1)], vec![]).await.unwrap();

    // Another worker completes the activity, and its session expires.
    let (_, done, _) = fetch(&other, worker("other", Duration::from_millis(50))).await.expect("the activity");
    other.ack_work_item(&done, None).await.unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(fetch(&hinted, worker("late", LOCK)).await.is_none(), "the activity is completed");

    let (id, key) = session_document_key("printer");
    let held = other.core.store.container.find::<Value>(key, &id).await.unwrap();
    assert_ne!(
        held.map(|held| held.value["owner"].clone()),
        Some(json!("late")),
        "the session was given back"
    );
    other.enqueue_for_worker(in_session(2)).await.unwrap();
    assert!(fetch(&other, worker("third", LOCK)).await.is_some(), "the session is free");
}

/// Creates two instances, and a deletion of both instances. The process of the deletion ended
/// at this stage, two minutes ago. The `marked` instances have the mark of the deletion.
async fn create_interrupted_deletion(
    world: &World,
    stage: DeletionStage,
    marked: &[&str],
) -> CosmosDBProvider {
    let provider = world.provider_with_reconciler(NEVER).await;
    for name in ["a", "b"] {
        let token = fetch_first_turn(&provider, name).await;
        ack(&provider, &token, vec![event(name, 1, String::new())], vec![], vec![]).await.unwrap();
    }
    create_deletion(&provider, stage, marked).await;
    provider
}

/// Creates a deletion of the instances `a` and `b`. Its process ended at this stage, two minutes ago. The
/// `marked` instances have the mark of the deletion.
pub(super) async fn create_deletion(provider: &CosmosDBProvider, stage: DeletionStage, marked: &[&str]) {
    let store = &provider.core.store;
    let two_minutes_ms = 120_000;
    let made_at = crate::documents::stamp::Stamp::at_ms(provider.core.clock.stamp().ms() - two_minutes_ms);
    let deletion = Deletion {
        id: DELETION_ID.to_owned(),
        instance_id: DELETIONS_KEY,
        document_type: DocumentType::Deletion,
        instances: vec!["a".to_owned(), "b".to_owned()],
        in_delivery: Vec::new(),
        stage,
        made_at,
        unknown: crate::documents::UnknownMembers::default(),
    };
    store.container.create(deletion.instance_id, &deletion).await.unwrap();
    for name in marked {
        let state = store.state(name).await.unwrap().expect("its state");
        let next = State { deletion: Some(deletion.id.clone()), ..state.value };
        store.put_state(&next, Some(&state.etag), "/del", deletion.id.clone().into()).await.unwrap();
    }
}

#[tokio::test]
async fn a_deletion_interrupted_before_its_commit_is_rolled_back() {
    let world = World::open().await;
    let provider = create_interrupted_deletion(&world, DeletionStage::Prepared, &["a"]).await;
    let _reconciling = world.provider().await;
    eventually("the rollback of the deletion", async || {
        let state = provider.core.store.state("a").await.unwrap().expect("its state");
        state.value.deletion.is_none()
    })
    .await;
    for name in ["a", "b"] {
        provider.enqueue_for_orchestrator(raised_event(name, "1"), None).await.unwrap();
        let waited = provider.fetch_orchestration_item(LOCK, WAIT_MAX, None).await.unwrap();
        let (item, token, _) = waited.expect("the instance can run");
        assert_eq!((item.instance.as_str(), item.history.len()), (name, 1));
        ack(&provider, &token, vec![event(name, 2, String::new())], vec![], vec![]).await.unwrap();
    }
}

#[tokio::test]
async fn a_deletion_interrupted_after_its_commit_is_completed() {
    let world = World::open().await;
    let provider = create_interrupted_deletion(&world, DeletionStage::Committed, &["a", "b"]).await;
    let _reconciling = world.provider().await;
    eventually("the end of the deletion", async || {
        let container = &provider.core.store.container;
        container.find::<Value>(DELETIONS_KEY, DELETION_ID).await.unwrap().is_none()
    })
    .await;
    for name in ["a", "b"] {
        let state = provider.core.store.state(name).await.unwrap().expect("its tombstone");
        assert!(state.value.is_deleted(), "{name} is deleted");
        assert!(provider.read(name).await.unwrap_or_default().is_empty());
    }
}

/// The service refuses the message in the outbox, because its id contains a slash.
#[tokio::test]
async fn an_undeliverable_outbox_is_retried_with_growing_pauses() {
    let world = World::open().await;
    let provider = world.provider().await;
    let stamp = provider.core.clock.stamp();
    let message =
        crate::plan::message_document(&raised_event("b", "1"), "x:no/body:1:0".into(), stamp, None).unwrap();
    let outbox = Outbox {
        visible_at: crate::documents::stamp::Stamp(1),
        id: "o:1:0".to_owned(),
        instance_id: "a".to_owned(),
        document_type: DocumentType::Outbox,
        made_at: crate::documents::stamp::Stamp::at_ms(1),
        messages: vec![message],
        staging_id: None,
    };
    provider.core.store.container.create("a", &outbox).await.unwrap();
    world.engine.manage(http::Method::DELETE, "counters", "").await.unwrap();
    // In thirty intervals of the reconciler, with pauses of one, two, four, eight and sixteen
    // intervals, there are at most six attempts.
    tokio::time::sleep(Duration::from_millis(30 * 50)).await;
    let counters = world.engine.manage(http::Method::GET, "counters", "").await.unwrap();
    let counters: Value = serde_json::from_slice(counters.body()).unwrap();
    let attempts = counters["operations"]["create_item"]["requests"].as_u64().unwrap();
    assert!((2..=6).contains(&attempts), "{attempts} attempts");
    let outbox = provider.core.store.find::<Value>("a", "o:1:0").await.unwrap();
    assert!(outbox.is_some(), "the outbox cannot be delivered");
}

#[tokio::test]
async fn tombstones_expire_and_only_queried_paths_are_indexed() {
    let world = World::open().await;
    let provider = world.provider().await;
    let properties = provider.core.store.container.properties().await.unwrap();
    let properties = serde_json::to_value(&properties).unwrap();
    assert_eq!(properties["defaultTtl"], -1, "documents may have a TTL");
    let policy = &properties["indexingPolicy"];
    assert!(policy["excludedPaths"].as_array().is_some_and(|paths| paths.iter().any(|p| p["path"] == "/*")));
    assert!(policy["compositeIndexes"].as_array().is_none_or(Vec::is_empty));

    let token = fetch_first_turn(&provider, "a").await;
    let cancelled = ScheduledActivityIdentifier { instance: "a".into(), execution_id: 1, activity_id: 9 };
    let history = vec![event("a", 1, String::new())];
    let acked = provider
        .ack_orchestration_item(&token, 1, history, vec![], vec![], order_metadata(), vec![cancelled])
        .await;
    acked.unwrap();
    let tombstones = rows(&provider, "a", "SELECT c.ttl FROM c WHERE c.type = 'cancelled'").await;
    assert_eq!(tombstones, [json!({"ttl": 3600})]);
    duroxide::providers::ProviderAdmin::delete_instance(&provider, "a", true).await.unwrap();
    let remaining = rows(&provider, "a", "SELECT c.id, IS_DEFINED(c.ttl) AS expires FROM c").await;
    assert_eq!(
        remaining,
        [json!({"id": "i", "expires": true})],
        "a deleted instance is one document with a time to live"
    );
}

/// The hashes are parts of stored ids and partition keys. If they changed, the next release
/// would not find the documents.
#[test]
fn stored_hashes_never_change() {
    let (id, key) = session_document_key("printer");
    assert_eq!((id.len(), &id[..10], key), (66, "s:ba70e1da", 6_559_807_626_117_884));
}

/// After throttled requests, takeovers wait longer: the commit of another process may be throttled
/// too, and that process may be about to finish its work.
#[tokio::test]
async fn a_throttled_process_takes_over_later() {
    let world = World::open().await;
    let provider = world.provider().await;
    let extra_wait = || provider.core.congestion.extra_wait(tokio::time::Instant::now());
    provider.enqueue_for_orchestrator(start("a", String::new()), None).await.unwrap();
    assert_eq!(extra_wait(), Duration::ZERO);
    world.inject_fault(r#"{"operation":"create_item","count":3,"status":429,"retryAfterMs":100}"#).await;
    provider.enqueue_for_orchestrator(super::raised_event("a", "1"), None).await.unwrap();
    assert!(extra_wait() > Duration::from_millis(300), "{:?}", extra_wait());
}

/// A message of the queue `orders`.
fn queued(instance: &str, data: &str) -> WorkItem {
    WorkItem::QueueMessage { instance: instance.into(), name: "orders".into(), data: data.into() }
}

/// Between the read of a message without a start and its removal, another process changes the
/// state, or the message. Then the message stays, and the next claim decides.
#[tokio::test]
async fn a_message_without_a_start_stays_if_the_state_or_the_message_has_changed() {
    let world = World::open().await;
    let provider = world.provider().await;
    let store = &provider.core.store;
    for changes_state in [true, false] {
        let instance = format!("unstarted-{changes_state}");
        provider.enqueue_for_orchestrator(queued(&instance, "1"), None).await.unwrap();
        let blank = State::blank(&instance, "incarnation".to_owned());
        store.put_state(&blank, None, "/incarnation", "incarnation".into()).await.unwrap();
        let state = store.state(&instance).await.unwrap().unwrap();
        let query = perihelion_client::Query::new("SELECT * FROM c WHERE c.type = 'orch_queue'");
        let rows: Vec<Value> = store.rows(query.in_partition(instance.as_str())).await.unwrap();
        let read = crate::store::decode_row::<crate::documents::Message>(rows[0].clone()).unwrap();
        let (changed, path) =
            if changes_state { ("i", "/updatedAt") } else { (read.value.id.as_str(), "/attemptCount") };
        let patch = perihelion_client::Patch::new().set(path, 1).unwrap();
        store.container.patch(instance.as_str(), changed, &patch).await.unwrap();
        let messages = [(&read.value, &read.etag)];
        let remove = super::super::payload::remove_messages_if_unchanged;
        let is_removed = remove(store, &instance, Some(&state), &messages).await.unwrap();
        assert!(!is_removed, "{changes_state}");
        assert!(store.find::<Value>(&instance, &read.value.id).await.unwrap().is_some(), "{changes_state}");
    }
    // A message without a start is removed if nothing has changed, as duroxide's contract says.
    provider.enqueue_for_orchestrator(queued("unknown", "1"), None).await.unwrap();
    assert!(provider.fetch_orchestration_item(LOCK, NO_WAIT, None).await.unwrap().is_none());
    let query = perihelion_client::Query::new("SELECT VALUE c.id FROM c WHERE c.type = 'orch_queue'");
    let left: Vec<String> = store.rows(query).await.unwrap();
    assert!(left.is_empty(), "{left:?}");
}

/// Twenty targets fail, and at most 16 are written to at the same time. The last target gets its message
/// in the same attempt, and the outbox stays for the others.
#[tokio::test]
async fn failing_targets_of_an_outbox_do_not_delay_other_targets() {
    let world = World::open().await;
    let provider = world.provider_with_reconciler(NEVER).await;
    let stamp = provider.core.clock.stamp();
    let message = |target: &str, id: &str| {
        crate::plan::message_document(&raised_event(target, "1"), id.to_owned(), stamp, None).unwrap()
    };
    // The service refuses an id with a slash.
    let mut messages: Vec<_> =
        (0..20).map(|number| message(&format!("target-{number:02}"), "x:no/body:1")).collect();
    messages.push(message("z", "x:source:20"));
    let outbox = Outbox {
        visible_at: stamp,
        id: "o:1:0".to_owned(),
        instance_id: "a".to_owned(),
        document_type: DocumentType::Outbox,
        made_at: stamp,
        messages,
        staging_id: None,
    };
    provider.core.store.container.create("a", &outbox).await.unwrap();
    let delivered = super::super::orchestration::deliver::deliver_again(&provider.core, outbox).await;
    assert!(delivered.is_err(), "twenty targets refuse the message");
    let found = provider.core.store.find::<Value>("z", "x:source:20").await.unwrap();
    assert!(found.is_some(), "the target behind the failing ones has its message");
    let outbox = provider.core.store.find::<Value>("a", "o:1:0").await.unwrap();
    assert!(outbox.is_some(), "the outbox stays for the failing targets");
}

/// A program is run twice and starts the same workflow again. The start is delivered with the
/// history, and no turn of a new instance is tried.
#[tokio::test]
async fn a_fresh_process_that_starts_an_existing_instance_gets_no_error() {
    const WAIT: Duration = Duration::from_secs(5);
    let world = World::open().await;
    let before = world.provider().await;
    let token = fetch_first_turn(&before, "a").await;
    ack(&before, &token, vec![event("a", 1, "first run".into())], vec![], vec![]).await.unwrap();
    let fresh = world.provider().await;
    for instance in ["a", "new"] {
        fresh.enqueue_for_orchestrator(start(instance, String::new()), None).await.unwrap();
        let (item, token, _) = fresh.fetch_orchestration_item(LOCK, WAIT, None).await.unwrap().unwrap();
        assert_eq!(item.instance, instance);
        assert_eq!(item.history.len(), usize::from(instance == "a"));
        assert_eq!(item.messages, [start(instance, String::new())]);
        ack(&fresh, &token, vec![event(instance, 2, String::new())], vec![], vec![]).await.unwrap();
    }
    assert_eq!(fresh.read("a").await.unwrap().len(), 2);
}

/// A provider that has created its container takes each start for that of a new instance, and does not
/// look for an existing one. After a start has collided with an existing instance, it checks the next
/// starts.
#[tokio::test]
async fn starts_are_checked_after_one_has_collided_with_an_existing_instance() {
    const WAIT: Duration = Duration::from_secs(5);
    let world = World::open().await;
    // This provider has created the container.
    let provider = world.provider().await;
    let other = world.provider().await;
    for instance in ["a", "b"] {
        let token = fetch_first_turn(&other, instance).await;
        ack(&other, &token, vec![event(instance, 1, String::new())], vec![], vec![]).await.unwrap();
    }
    for (instance, is_refused) in [("a", true), ("b", false)] {
        provider.enqueue_for_orchestrator(start(instance, String::new()), None).await.unwrap();
        let (item, token, _) = provider.fetch_orchestration_item(LOCK, WAIT, None).await.unwrap().unwrap();
        assert_eq!(item.history.is_empty(), is_refused, "{instance}");
        let acked = ack(&provider, &token, vec![event(instance, 2, String::new())], vec![], vec![]).await;
        assert_eq!(acked.is_err(), is_refused, "{instance}: {acked:?}");
        if is_refused {
            let (token, _) = fetch_instance(&provider).await;
            ack(&provider, &token, vec![event(instance, 2, String::new())], vec![], vec![]).await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_cancelled_activity_is_given_back_without_an_error() {
    let world = World::open().await;
    let provider = world.provider().await;
    let token = fetch_first_turn(&provider, "a").await;
    let activities = vec![super::activity_item("a", 9, String::new())];
    ack(&provider, &token, vec![event("a", 1, String::new())], activities, vec![]).await.unwrap();
    let tags = duroxide::providers::TagFilter::default();
    let (_, work_token, _) = provider.fetch_work_item(LOCK, NO_WAIT, None, &tags).await.unwrap().unwrap();
    provider.enqueue_for_orchestrator(raised_event("a", "stop"), None).await.unwrap();
    let (token, _) = fetch_instance(&provider).await;
    let cancelled = ScheduledActivityIdentifier { instance: "a".into(), execution_id: 1, activity_id: 9 };
    let history = vec![event("a", 2, String::new())];
    let (metadata, no_items) = (super::order_metadata(), Vec::new());
    provider
        .ack_orchestration_item(&token, 1, history, no_items.clone(), no_items, metadata, vec![cancelled])
        .await
        .unwrap();
    assert!(
        provider.renew_work_item_lock(&work_token, LOCK).await.is_err(),
        "the renewal fails, so that the runtime cancels the activity"
    );
    provider.ack_work_item(&work_token, None).await.unwrap();
    let result =
        WorkItem::ActivityCompleted { instance: "a".into(), execution_id: 1, id: 9, result: "x".into() };
    assert!(provider.ack_work_item(&work_token, Some(result)).await.is_err(), "a result is refused");
}

/// Each call counts a part of a large container, and ends with the page that exceeds its limit, here
/// 8 RU. It returns the count so far, and the count of the whole container after all parts were counted.
/// The depths of queues are counted up to a limit.
#[tokio::test]
async fn counts_of_a_large_container_cost_a_bounded_number_of_request_units() {
    const INSTANCES: usize = 1_200;
    let world = World::open().await;
    let provider = world.provider().await;
    let store = &provider.core.store;
    for number in 0..INSTANCES {
        let state = State {
            is_created: true,
            execution: Execution {
                number: 1,
                status: "Completed".into(),
                event_count: 2,
                ..Execution::default()
            },
            ..State::blank(&format!("instance-{number}"), String::new())
        };
        store.container.create(state.instance_id.as_str(), &state).await.unwrap();
    }
    let mut scan = super::super::admin::count::InstanceScan::default();
    let mut seen = Vec::new();
    for _ in 0..8 {
        let charge_ru = scan.step(store, 8.0).await.unwrap();
        assert!(charge_ru < 25.0, "{charge_ru} RU");
        let result = scan.result();
        assert_eq!(result.total_events, 2 * result.total_instances);
        seen.push(result.completed_instances as usize);
    }
    assert!(seen[0] < INSTANCES, "{seen:?}");
    assert!(seen.contains(&INSTANCES) && seen.is_sorted(), "{seen:?}");
    let stamp = provider.core.clock.stamp();
    for group in 0..25 {
        let mut batch = perihelion_client::Batch::new("queue");
        for number in 0..100 {
            let id = format!("x:source:{group}:{number}");
            let message =
                crate::plan::message_document(&raised_event("queue", "1"), id, stamp, None).unwrap();
            batch.create(&message).unwrap();
        }
        store.container.batch(batch).await.unwrap();
    }
    assert_eq!(
        provider.get_queue_depths().await.unwrap().orchestrator_queue,
        2_000,
        "the count ends at its limit"
    );
}

#[test]
fn the_documentation_says_how_long_tombstones_last() {
    use crate::timing::{CANCELLED_TTL, TOMBSTONE_TTL};
    let text = perihelion_testkit::repository::read("docs/provider.md");
    let row = |document_type: &str| {
        let is_row = |line: &&str| line.starts_with('|') && line.contains(&format!("| `{document_type}` |"));
        text.lines().find(is_row).unwrap_or_else(|| panic!("a row about {document_type}")).to_owned()
    };
    assert_eq!(TOMBSTONE_TTL, Duration::from_secs(7 * 24 * 3600));
    assert!(row("deleted").contains("for a week"), "{}", row("deleted"));
    assert_eq!(CANCELLED_TTL, Duration::from_secs(3600));
    assert!(row("cancelled").contains("for an hour"), "{}", row("cancelled"));
    assert!(!text.contains("tombstone for a day") && !text.contains("tombstones for a day"));
}

/// A poll can find a completion, and a turn consume it, before the ack of the activity has
/// recorded it in the hints.
#[tokio::test]
async fn a_completion_recorded_after_its_turn_makes_no_further_turn_of_an_ended_instance() {
    let world = World::open().await;
    let client = Client::over(&world.engine.endpoint(), world.engine.transport()).await.unwrap();
    let builder = CosmosDBProvider::builder().with_client(client).with_commit_tier_for_short_polls();
    let provider = builder.open().await.unwrap();
    let token = fetch_first_turn(&provider, "late").await;
    let history = vec![event("late", 1, String::new())];
    ack(&provider, &token, history, vec![activity_item("late", 2, String::new())], vec![]).await.unwrap();
    assert_eq!(run_activities(&provider).await.len(), 1);
    let queued = rows(&provider, "late", "SELECT * FROM c WHERE c.type = 'orch_queue'").await;
    let [completion] = queued.as_slice() else { panic!("{queued:?} is not one completion") };
    let completion: Message = serde_json::from_value(completion.clone()).unwrap();
    let (token, messages) = fetch_instance(&provider).await;
    assert_eq!(messages.len(), 1);
    let ended = ExecutionMetadata { status: Some("Completed".into()), ..order_metadata() };
    let history = vec![event("late", 3, String::new())];
    provider.ack_orchestration_item(&token, 1, history, vec![], vec![], ended, vec![]).await.unwrap();
    let core = &provider.core;
    core.hints.instances.update_and_wake(|hints| hints.add_message(completion, core.clock.now()));
    let fetched = provider.fetch_orchestration_item(LOCK, NO_WAIT, None).await.unwrap();
    assert!(fetched.is_none(), "a consumed completion makes no further turn");
}

/// The answer to the create of an activity is lost. The reads that would show whether the create was
/// applied fail too. The next attempt finds the activity.
#[tokio::test(start_paused = true)]
async fn an_activity_whose_enqueue_lost_its_answer_exists_once() {
    let world = World::open().await;
    let provider = world.provider().await;
    world.inject_fault(r#"{"operation":"create_item","count":1,"drop":"after"}"#).await;
    world.inject_fault(r#"{"operation":"read_item","status":503}"#).await;
    // The faults last longer than the driver tries to read the activity.
    let end = async {
        tokio::time::sleep(Duration::from_secs(12)).await;
        world.remove_faults().await;
    };
    let (enqueued, ()) = tokio::join!(provider.enqueue_for_worker(activity_item("a", 1, String::new())), end);
    enqueued.unwrap();
    let activities = rows(&provider, "a", "SELECT VALUE c.id FROM c WHERE c.type = 'worker_queue'").await;
    assert_eq!(activities, [serde_json::json!("a:1:1")]);
    // An activity that is enqueued later with the same id is a second activity.
    provider.enqueue_for_worker(activity_item("a", 1, String::new())).await.unwrap();
    let activities = rows(&provider, "a", "SELECT VALUE c.id FROM c WHERE c.type = 'worker_queue'").await;
    assert_eq!(activities.len(), 2, "{activities:?}");
}
