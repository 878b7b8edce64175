//! Documents of a later version: this version does not consume what it cannot read, and keeps
//! members that it does not know. A test writes such documents itself.

use duroxide::providers::SessionFetchConfig;
use perihelion_client::{Patch, Query};
use serde_json::{Value, json};

use super::large_turns::complete_activities;
use super::*;
use crate::documents::Message;
use crate::documents::heartbeat::Roles;
use crate::plan::message_document;
use crate::store::layout_version::ContainerVersion;
use crate::sync::lock;
use crate::timing::{LAYOUT_KNOWN_FOR, NEW_FORMS_AFTER};

/// A work item of a variant that this version does not have.
const NEWER_ITEM: &str = r#"{"PauseInstance":{"instance":"a","until_ms":1}}"#;

/// Starts the instance and commits its first turn, so that its queue is empty.
async fn begin(provider: &CosmosDBProvider, instance: &str) {
    provider.enqueue_for_orchestrator(start(instance, String::new()), None).await.unwrap();
    let (token, _) = fetch_instance(provider).await;
    ack(provider, &token, vec![event(instance, 1, String::new())], vec![], vec![]).await.unwrap();
}

/// The documents of a type in the partition of an instance.
async fn documents_of(provider: &CosmosDBProvider, instance: &str, document_type: &str) -> Vec<Value> {
    let text = "SELECT * FROM c WHERE c.type = @type ORDER BY c.enq";
    let query = Query::new(text).with_parameter("@type", document_type).in_partition(instance);
    provider.core.store.rows(query).await.unwrap()
}

/// Sets one member of a document.
async fn set_member(
    provider: &CosmosDBProvider,
    instance: &str,
    id: &str,
    path: &str,
    value: impl serde::Serialize,
) {
    let patch = Patch::new().set(path, value).unwrap();
    provider.core.store.container.patch(instance, id, &patch).await.unwrap();
}

async fn fetch_now(provider: &CosmosDBProvider) -> Option<Vec<WorkItem>> {
    let fetched = provider.fetch_orchestration_item(LOCK, NO_WAIT, None).await.unwrap();
    fetched.map(|(item, _, _)| item.messages)
}

#[tokio::test]
async fn a_message_that_this_version_cannot_read_waits_and_keeps_its_place() {
    let world = World::open().await;
    let provider = world.provider().await;
    begin(&provider, "a").await;
    for data in ["1", "2", "3"] {
        provider.enqueue_for_orchestrator(raised_event("a", data), None).await.unwrap();
    }
    let messages = documents_of(&provider, "a", "orch_queue").await;
    let newer = messages[1]["id"].as_str().unwrap();
    set_member(&provider, "a", newer, "/item", NEWER_ITEM).await;
    let (token, taken) = fetch_instance(&provider).await;
    assert_eq!(taken, [raised_event("a", "1")], "messages behind the newer one wait, as the order matters");
    ack(&provider, &token, vec![event("a", 2, String::new())], vec![], vec![]).await.unwrap();
    for _ in 0..3 {
        assert_eq!(fetch_now(&provider).await, None);
    }
    let left = documents_of(&provider, "a", "orch_queue").await;
    assert_eq!(left.len(), 2, "neither consumed nor set aside");
    assert_eq!(left[0]["id"].as_str(), Some(newer));
    // A process that can read the message finds it.
    set_member(&provider, "a", newer, "/item", serde_json::to_string(&raised_event("a", "2")).unwrap()).await;
    let later = world.provider().await;
    assert_eq!(fetch_now(&later).await, Some(vec![raised_event("a", "2"), raised_event("a", "3")]));
}

#[tokio::test]
async fn messages_before_a_start_that_cannot_be_read_are_not_dropped() {
    let world = World::open().await;
    let provider = world.provider().await;
    let queued = WorkItem::QueueMessage { instance: "a".into(), name: "orders".into(), data: String::new() };
    provider.enqueue_for_orchestrator(queued, None).await.unwrap();
    provider.enqueue_for_orchestrator(start("a", String::new()), None).await.unwrap();
    let messages = documents_of(&provider, "a", "orch_queue").await;
    set_member(&provider, "a", messages[1]["id"].as_str().unwrap(), "/item", NEWER_ITEM).await;
    assert_eq!(fetch_now(&provider).await, None);
    assert_eq!(documents_of(&provider, "a", "orch_queue").await.len(), 2);
}

#[tokio::test]
async fn a_message_of_a_newer_layout_is_left_and_a_broken_one_is_set_aside() {
    for (member, value, is_left) in [
        ("/item", json!({ "packed": "AAAA" }), true),
        ("/attemptCount", json!({ "total": 1 }), true),
        ("/item", json!("not JSON"), false),
        ("/item", Value::Null, false),
    ] {
        let world = World::open().await;
        let provider = world.provider().await;
        begin(&provider, "a").await;
        provider.enqueue_for_orchestrator(raised_event("a", "1"), None).await.unwrap();
        let id = documents_of(&provider, "a", "orch_queue").await[0]["id"].as_str().unwrap().to_owned();
        set_member(&provider, "a", &id, member, &value).await;
        assert_eq!(fetch_now(&provider).await, None, "{value}");
        let is_queued = documents_of(&provider, "a", "orch_queue").await.len() == 1;
        assert_eq!(is_queued, is_left, "{value}");
    }
}

#[tokio::test]
async fn an_activity_that_this_version_cannot_read_waits() {
    for (member, value) in [("/item", json!(NEWER_ITEM)), ("/attemptCount", json!("one"))] {
        let world = World::open().await;
        let provider = world.provider().await;
        provider.enqueue_for_worker(activity_item("a", 1, String::new())).await.unwrap();
        provider.enqueue_for_worker(activity_item("a", 2, String::new())).await.unwrap();
        set_member(&provider, "a", "a:1:1", member, &value).await;
        let worker = world.provider().await;
        assert_eq!(run_activities(&worker).await, [(2, String::new())], "{value}");
        assert_eq!(documents_of(&provider, "a", "worker_queue").await.len(), 1, "{value}");
    }
}

/// An outbox and a bundle, each with a message of a type that this version does not know, are
/// left. The reconciler goes on: it does not count them as failures.
#[tokio::test]
async fn outboxes_and_bundles_with_unknown_types_are_left_and_block_no_round() {
    let world = World::open().await;
    let mut provider = world.provider().await;
    let now = provider.core.clock.stamp();
    let message = message_document(&raised_event("b", "1"), "x:source:1".into(), now, None).unwrap();
    let mut newer = serde_json::to_value(&message).unwrap();
    newer["type"] = json!("broadcast");
    let outbox = json!({
        "id": "o:1:0", "instanceId": "a", "type": "outbox", "madeAt": 1000, "visibleAt": 1000,
        "messages": [newer.clone()],
    });
    let bundle = json!({
        "id": "w:1:0", "instanceId": "b", "type": "bundle", "madeAt": 1001, "visibleAt": 1001,
        "activities": [], "messages": [newer],
    });
    for document in [&outbox, &bundle] {
        let instance = document["instanceId"].as_str().unwrap();
        provider.core.store.container.create(instance, document).await.unwrap();
    }
    let pass = crate::ops::repair::reconcile::run_pass(&provider.core).await;
    assert_eq!(pass, (2, 0, 2), "both are read and left, and neither is a failure");
    provider.set_outbox_fault_injector(OutboxFaultInjector::fail_next(1));
    provider.enqueue_for_orchestrator(start("c", String::new()), None).await.unwrap();
    let (token, _) = fetch_instance(&provider).await;
    ack(&provider, &token, vec![event("c", 1, String::new())], vec![], vec![start("d", String::new())])
        .await
        .unwrap();
    let found = provider.fetch_orchestration_item(LOCK, Duration::from_secs(20), None).await.unwrap();
    assert_eq!(found.expect("the reconciler delivers other outboxes").0.instance, "d");
    assert_eq!(documents_of(&provider, "a", "outbox").await.len(), 1);
    assert_eq!(documents_of(&provider, "b", "bundle").await.len(), 1);
}

/// Story of a bug: a document of an unknown type counted as finished, so the reconciler read its
/// partition in every interval.
#[tokio::test]
async fn the_reconciler_leaves_a_document_of_an_unknown_type() {
    let world = World::open().await;
    let provider = world.provider().await;
    let newer = json!({ "id": "b:1:0", "instanceId": "a", "type": "broadcast", "madeAt": 1000 });
    provider.core.store.container.create("a", &newer).await.unwrap();
    let pass = crate::ops::repair::reconcile::run_pass(&provider.core).await;
    assert_eq!(pass, (1, 0, 1), "the document is read and left, and not handled");
    assert_eq!(documents_of(&provider, "a", "broadcast").await.len(), 1);
}

#[tokio::test]
async fn members_that_this_version_does_not_know_survive_its_commits() {
    let world = World::open().await;
    let provider = world.provider().await;
    begin(&provider, "a").await;
    let unknown_value = json!({ "since": "2.0", "list": [1, 2] });
    set_member(&provider, "a", "i", "/later", &unknown_value).await;
    provider.enqueue_for_orchestrator(raised_event("a", "1"), None).await.unwrap();
    // A turn of another process, which reads the state and schedules an activity.
    let other = world.provider().await;
    let (token, _) = fetch_instance(&other).await;
    let history = vec![event("a", 2, String::new())];
    ack(&other, &token, history, vec![activity_item("a", 7, String::new())], vec![]).await.unwrap();
    let state = documents_of(&provider, "a", "history").await;
    assert_eq!(state[0]["later"], unknown_value, "{state:?}");
    assert!(state[0]["seq"].as_u64() > Some(1));
    // The activity is locked from the row of a poll, renewed, and abandoned.
    set_member(&provider, "a", "a:1:7", "/later", &unknown_value).await;
    let worker = world.provider().await;
    let tags = TagFilter::default();
    for _ in 0..2 {
        let (_, token, _) = worker.fetch_work_item(LOCK, NO_WAIT, None, &tags).await.unwrap().unwrap();
        worker.renew_work_item_lock(&token, LOCK).await.unwrap();
        assert_eq!(documents_of(&provider, "a", "worker_queue").await[0]["later"], unknown_value);
        worker.abandon_work_item(&token, None, false).await.unwrap();
        assert_eq!(documents_of(&provider, "a", "worker_queue").await[0]["later"], unknown_value);
        assert_eq!(documents_of(&provider, "a", "worker_queue").await[0]["lock"], Value::Null);
    }
}

#[tokio::test]
async fn members_of_sessions_and_packed_messages_survive() {
    let world = World::open().await;
    let provider = world.provider().await;
    let config = SessionFetchConfig { owner_id: "worker-1".into(), lock_timeout: LOCK };
    let mut item = activity_item("a", 1, String::new());
    let WorkItem::ActivityExecute { session_id, .. } = &mut item else { panic!("{item:?}") };
    *session_id = Some("cart".into());
    provider.enqueue_for_worker(item).await.unwrap();
    let tags = TagFilter::default();
    provider.fetch_work_item(LOCK, NO_WAIT, Some(&config), &tags).await.unwrap().unwrap();
    let (id, key) = crate::plan::session_document_key("cart");
    let patch = Patch::new().set("/later", "kept").unwrap();
    provider.core.store.container.patch(key, &id, &patch).await.unwrap();
    assert_eq!(provider.renew_session_lock(&["worker-1"], LOCK * 2, LOCK).await.unwrap(), 1);
    let session: Value = provider.core.store.container.read::<Value>(key, &id).await.unwrap().into_value();
    assert_eq!(session["later"], "kept");

    let now = provider.core.clock.stamp();
    let message = message_document(&raised_event("b", "1"), "x:source:1".into(), now, None).unwrap();
    let mut packed = serde_json::to_value(&message).unwrap();
    packed["later"] = json!("kept");
    let outbox = json!({
        "id": "o:1:0", "instanceId": "s", "type": "outbox", "madeAt": 1000, "visibleAt": 1000,
        "messages": [packed.clone()],
    });
    let outbox = serde_json::from_value(outbox).unwrap();
    super::super::orchestration::deliver::deliver_again(&provider.core, outbox).await.unwrap();
    assert_eq!(documents_of(&provider, "b", "orch_queue").await[0]["later"], "kept");
    packed["_etag"] = json!("x");
    let read: Message = serde_json::from_value(packed).unwrap();
    assert_eq!(
        serde_json::to_value(&read).unwrap().get("_etag"),
        None,
        "the service's own members are not kept"
    );
}

/// The layout version of the container; `None` without the document.
async fn stored_version(provider: &CosmosDBProvider) -> Option<u64> {
    let found = provider.core.store.container.find::<Value>(0_u64, "layout").await.unwrap();
    found.and_then(|item| item.into_value()["version"].as_u64())
}

#[tokio::test]
async fn a_provider_that_is_too_old_for_a_container_refuses_to_open_it() {
    let world = World::open().await;
    let provider = world.provider().await;
    assert_eq!(stored_version(&provider).await, Some(3), "a new container has the version of its provider");
    let newer = json!({ "id": "layout", "instanceId": 0, "type": "layout", "version": 4 });
    provider.core.store.container.upsert(0_u64, &newer).await.unwrap();
    let client = Client::over(&world.engine.endpoint(), world.engine.transport()).await.unwrap();
    let error = CosmosDBProvider::builder().with_client(client).open().await.unwrap_err();
    for words in ["layout version 4", "up to 3", "Update the program"] {
        assert!(error.message.contains(words), "{words}: {error}");
    }
    assert!(!error.is_retryable());
}

/// In the simulation this build plays processes of an earlier version.
#[tokio::test]
async fn a_process_that_plays_an_earlier_version_writes_that_version_and_refuses_later_ones() {
    let world = World::open().await;
    let open = || async {
        let client = Client::over(&world.engine.endpoint(), world.engine.transport()).await.unwrap();
        CosmosDBProvider::builder().with_client(client).with_layout_version(2).open().await
    };
    let old = open().await.unwrap();
    assert_eq!(stored_version(&old).await, Some(2));
    let heartbeats = || Query::new("SELECT VALUE c.reads FROM c WHERE c.type = 'node'").in_partition(2_u64);
    let readable = loop {
        old.fetch_orchestration_item(LOCK, Duration::from_secs(1), None).await.unwrap();
        let readable: Vec<Value> = old.core.store.rows(heartbeats()).await.unwrap();
        if !readable.is_empty() {
            break readable;
        }
    };
    assert_eq!(readable, [json!(2)]);
    let newer = json!({ "id": "layout", "instanceId": 0, "type": "layout", "version": 3 });
    old.core.store.container.upsert(0_u64, &newer).await.unwrap();
    assert!(open().await.unwrap_err().message.contains("up to 2"));
}

/// A container of layout version 1 has no layout document. Its version is raised when the last
/// process that reads only version 1 has stopped.
#[tokio::test]
async fn the_layout_version_is_raised_when_every_live_process_can_read_it() {
    let world = World::open().await;
    let before = world.provider().await;
    let container = &before.core.store.container;
    container.delete(0_u64, "layout").await.unwrap();
    let old_process = json!({
        "id": "n:old", "instanceId": 2, "type": "node", "turns": true,
        "works": { "any": true, "untagged": false, "names": [] }, "ttl": 45,
    });
    container.upsert(2_u64, &old_process).await.unwrap();
    let provider = world.provider().await;
    let fetch = || provider.fetch_orchestration_item(LOCK, Duration::from_secs(1), None);
    assert!(fetch().await.unwrap().is_none());
    assert!(!provider.core.membership.all_can_read(3), "the old process reads version 1");
    assert_eq!(stored_version(&provider).await, None, "an old process is alive");
    container.delete(2_u64, "n:old").await.unwrap();
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    while stored_version(&provider).await.is_none() {
        assert!(tokio::time::Instant::now() < deadline, "the version is not raised");
        // A poll that finds rows reads the heartbeats again.
        before.enqueue_for_orchestrator(start("a", String::new()), None).await.unwrap();
        fetch().await.unwrap();
    }
    assert_eq!(stored_version(&provider).await, Some(3));
}

/// Raises the version of the container as a process of version 3 does.
async fn raise_to_3(provider: &CosmosDBProvider) {
    let newer = json!({ "id": "layout", "instanceId": 0, "type": "layout", "version": 3 });
    provider.core.store.container.upsert(0_u64, &newer).await.unwrap();
}

/// A provider that plays layout version 2.
async fn open_old(world: &World) -> Result<CosmosDBProvider, duroxide::providers::ProviderError> {
    let client = Client::over(&world.engine.endpoint(), world.engine.transport()).await.unwrap();
    CosmosDBProvider::builder().with_client(client).with_layout_version(2).open().await
}

/// Story of a bug: an old process had opened the container and had not fetched yet, so it had no heartbeat. A
/// new process raised the version and wrote the new form of a state at once. The old process then took that
/// instance and would have counted the listed completions twice.
#[tokio::test(start_paused = true)]
async fn new_forms_are_written_two_minutes_after_the_version_is_raised() {
    let world = World::open().await;
    let old = open_old(&world).await.unwrap();
    assert_eq!(stored_version(&old).await, Some(2));
    let provider = world.provider().await;
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    while stored_version(&provider).await != Some(3) {
        assert!(tokio::time::Instant::now() < deadline, "the version is not raised");
        provider.fetch_orchestration_item(LOCK, Duration::from_secs(1), None).await.unwrap();
    }
    complete_activities(&provider, 100).await;
    let (token, messages) = fetch_instance(&provider).await;
    assert_eq!(messages.len(), 64, "the old process may still take work");
    provider.abandon_orchestration_item(&token, None, true).await.unwrap();
    tokio::time::sleep(NEW_FORMS_AFTER).await;
    assert_eq!(fetch_instance(&provider).await.1.len(), 100);
    let later = world.provider().await;
    let (version, now_ms) = (&later.core.store.layout_version, later.core.clock.now_ms());
    assert!(version.may_write_forms_of(3, now_ms), "a process that opens the container later need not wait");
}

/// Story of a bug: 0.1.0 does not check the layout version. A process of 0.1.0 that was started after the
/// version was raised read the new form of a state, and its commit dropped the list of completions.
#[tokio::test]
async fn no_new_forms_are_written_while_a_process_that_cannot_read_them_is_alive() {
    let world = World::open().await;
    let provider = world.provider().await;
    let container = &provider.core.store.container;
    let old_process = json!({
        "id": "n:old", "instanceId": 2, "type": "node", "turns": true,
        "works": { "any": true, "untagged": false, "names": [] }, "ttl": 45,
    });
    container.upsert(2_u64, &old_process).await.unwrap();
    let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
    while provider.core.membership.view().members().len() < 2 {
        assert!(tokio::time::Instant::now() < deadline, "the heartbeat is not read");
        provider.fetch_orchestration_item(LOCK, Duration::from_secs(1), None).await.unwrap();
    }
    complete_activities(&provider, 100).await;
    assert_eq!(fetch_instance(&provider).await.1.len(), 64);
}

/// The other half of the rule: no live process names the new version in a heartbeat.
#[tokio::test(start_paused = true)]
async fn a_process_that_has_fetched_nothing_for_long_reads_the_version_before_it_takes_work() {
    let world = World::open().await;
    let old = open_old(&world).await.unwrap();
    old.enqueue_for_orchestrator(start("a", String::new()), None).await.unwrap();
    let newer = json!({ "id": "layout", "instanceId": 0, "type": "layout", "version": 3 });
    old.core.store.container.upsert(0_u64, &newer).await.unwrap();
    tokio::time::sleep(LAYOUT_KNOWN_FOR).await;
    let error = old.fetch_orchestration_item(LOCK, NO_WAIT, None).await.expect_err("a refusal");
    assert!(error.message.contains("layout version 3"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_process_that_cannot_read_the_layout_version_takes_work_all_the_same() {
    let world = World::open().await;
    let provider = world.provider().await;
    provider.enqueue_for_orchestrator(start("a", String::new()), None).await.unwrap();
    tokio::time::sleep(LAYOUT_KNOWN_FOR).await;
    world.inject_fault(r#"{"operation":"read_item","delayMs":60000}"#).await;
    let fetched = provider.fetch_orchestration_item(LOCK, Duration::from_secs(20), None).await.unwrap();
    assert!(fetched.is_some());
}

#[tokio::test(start_paused = true)]
async fn while_the_layout_version_cannot_be_read_a_fetch_waits_for_it_at_most_once_a_minute() {
    let world = World::open().await;
    let provider = world.provider().await;
    tokio::time::sleep(LAYOUT_KNOWN_FOR).await;
    world.inject_fault(r#"{"operation":"read_item","delayMs":60000}"#).await;
    let begun = tokio::time::Instant::now();
    let mut waited = 0;
    while begun.elapsed() < Duration::from_secs(170) {
        let called = tokio::time::Instant::now();
        provider.fetch_orchestration_item(LOCK, NO_WAIT, None).await.unwrap();
        waited += usize::from(called.elapsed() >= Duration::from_secs(1));
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(waited, 3);
}

#[tokio::test(start_paused = true)]
async fn a_fetch_that_is_dropped_while_it_reads_the_layout_version_leaves_that_to_the_next_fetch() {
    let world = World::open().await;
    let old = open_old(&world).await.unwrap();
    old.enqueue_for_orchestrator(start("a", String::new()), None).await.unwrap();
    tokio::time::sleep(LAYOUT_KNOWN_FOR).await;
    world.inject_fault(r#"{"operation":"read_item","delayMs":60000}"#).await;
    let fetch = || old.fetch_orchestration_item(LOCK, NO_WAIT, None);
    tokio::time::timeout(Duration::from_secs(1), fetch()).await.expect_err("it waits for the version");
    world.remove_faults().await;
    raise_to_3(&old).await;
    let error = fetch().await.expect_err("a refusal");
    assert!(error.message.contains("layout version 3"), "{error}");
}

/// The machine sleeps for two minutes. Meanwhile another process raises the version.
async fn raise_while_the_machine_sleeps(old: &CosmosDBProvider) {
    raise_to_3(old).await;
    old.core.store.layout_version.let_machine_sleep(NEW_FORMS_AFTER);
}

/// Only the wall clock tells that the machine has slept.
#[tokio::test]
async fn a_process_on_a_machine_that_has_slept_reads_the_version_before_it_takes_work() {
    let world = World::open().await;
    let old = open_old(&world).await.unwrap();
    old.enqueue_for_orchestrator(start("a", String::new()), None).await.unwrap();
    raise_while_the_machine_sleeps(&old).await;
    let error = old.fetch_orchestration_item(LOCK, NO_WAIT, None).await.expect_err("a refusal");
    assert!(error.message.contains("layout version 3"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_process_that_was_suspended_while_it_read_an_instance_does_not_take_it() {
    let world = World::open().await;
    let old = open_old(&world).await.unwrap();
    old.enqueue_for_orchestrator(start("a", String::new()), None).await.unwrap();
    world.inject_fault(r#"{"operation":"query","delayMs":1000}"#).await;
    let sleep = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        raise_while_the_machine_sleeps(&old).await;
    };
    let (fetched, ()) = tokio::join!(old.fetch_orchestration_item(LOCK, NO_WAIT, None), sleep);
    let error = fetched.expect_err("a refusal");
    assert!(error.message.contains("layout version 3"), "{error}");
    let state = documents_of(&old, "a", "history").await;
    assert!(state.is_empty(), "no lock was written: {state:?}");
}

/// The first activity has been taken by another worker. The process is suspended while it finds that out.
#[tokio::test(start_paused = true)]
async fn a_process_that_was_suspended_between_two_activities_does_not_lock_the_second() {
    let world = World::open().await;
    let old = open_old(&world).await.unwrap();
    for id in [1, 2] {
        old.enqueue_for_worker(activity_item("a", id, String::new())).await.unwrap();
    }
    world.inject_fault(r#"{"operation":"patch_item","count":1,"delayMs":1000,"status":412}"#).await;
    let sleep = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        raise_while_the_machine_sleeps(&old).await;
    };
    let tags = TagFilter::default();
    let (fetched, ()) = tokio::join!(old.fetch_work_item(LOCK, NO_WAIT, None, &tags), sleep);
    let error = fetched.expect_err("a refusal");
    assert!(error.message.contains("layout version 3"), "{error}");
    let locks: Vec<Value> =
        documents_of(&old, "a", "worker_queue").await.iter().map(|row| row["lock"].clone()).collect();
    assert_eq!(locks, [Value::Null, Value::Null]);
}

/// A container exists for a moment before its layout document does.
#[tokio::test(start_paused = true)]
async fn a_process_that_opens_a_container_before_its_layout_document_exists_looks_again() {
    let world = World::open().await;
    let provider = world.provider().await;
    let container = &provider.core.store.container;
    container.delete(0_u64, "layout").await.unwrap();
    let create = async {
        tokio::time::sleep(Duration::from_millis(900)).await;
        let document =
            json!({ "id": "layout", "instanceId": 0, "type": "layout", "version": 3, "first": true });
        container.create(0_u64, &document).await.unwrap();
    };
    let (opened, ()) = tokio::join!(open_old(&world), create);
    assert!(opened.unwrap_err().message.contains("layout version 3"));
}

/// Two processes create a container at the same time, and the other one writes its version first.
#[tokio::test]
async fn a_process_that_creates_a_container_together_with_another_keeps_the_version_of_the_other() {
    let world = World::open().await;
    let create = async |readable| {
        let client = Client::over(&world.engine.endpoint(), world.engine.transport()).await.unwrap();
        let container = client.database("duroxide").container("duroxide");
        ContainerVersion::create(&container, readable, tokio::time::Instant::now()).await
    };
    let old = open_old(&world).await.unwrap();
    assert_eq!(create(3).await.unwrap().get(), 2, "the old process may live");
    assert_eq!(stored_version(&old).await, Some(2));
    let newer = json!({ "id": "layout", "instanceId": 0, "type": "layout", "version": 3 });
    old.core.store.container.upsert(0_u64, &newer).await.unwrap();
    let refusal = create(2).await.expect_err("a refusal");
    assert!(refusal.summary().contains("layout version 3"), "{refusal:?}");
}

/// The layout version was raised while this process was stopped for a minute and did not count as
/// alive. Heartbeats of other processes tell it that the container has become too new for it.
#[tokio::test]
async fn a_process_that_has_become_too_old_for_its_container_fetches_nothing_more() {
    let world = World::open().await;
    let provider = world.provider().await;
    provider.enqueue_for_orchestrator(start("a", String::new()), None).await.unwrap();
    let newer = json!({
        "id": "n:new", "instanceId": 2, "type": "node", "turns": false, "reads": 4, "layout": 4,
        "works": { "any": false, "untagged": false, "names": [] }, "ttl": 45,
    });
    provider.core.store.container.upsert(2_u64, &newer).await.unwrap();
    let wait = Duration::from_secs(2);
    let refused = async {
        loop {
            match provider.fetch_orchestration_item(LOCK, wait, None).await {
                Err(error) => break error,
                // This turn was taken before the first heartbeats were read.
                Ok(Some((_, token, _))) => {
                    provider.abandon_orchestration_item(&token, None, true).await.unwrap();
                }
                Ok(None) => {}
            }
        }
    };
    let error = tokio::time::timeout(Duration::from_secs(30), refused).await.expect("a refusal");
    assert!(error.message.contains("layout version 4"), "{error}");
    assert!(provider.fetch_work_item(LOCK, NO_WAIT, None, &TagFilter::default()).await.is_err());
    *lock(&provider.core.membership.fetched_roles) = Roles::default();
    provider.fetch_orchestration_item(LOCK, NO_WAIT, None).await.expect_err("a refusal");
    assert_eq!(
        *lock(&provider.core.membership.fetched_roles),
        Roles::default(),
        "a process that cannot fetch registers no role"
    );
}
