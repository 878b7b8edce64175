//! Transient failures of one request, one partition or one process. They must not lose work,
//! fail a workflow, or delay other work for long. The tests run on the real engine in this
//! process, most of them in virtual time.

use std::time::Duration;

use duroxide::providers::{Provider, ScheduledActivityIdentifier, SessionFetchConfig, TagFilter, WorkItem};
use perihelion_client::{Batch, Query};
use serde_json::Value;
use tokio::time::Instant;

use super::{
    LOCK, NEVER, NO_WAIT, World, ack, activity_item, event, fetch_instance, order_metadata, raised_event,
    run_activities, start,
};
use crate::CosmosDBProvider;
use crate::documents::{Bundle, DocumentType, Outbox, UnknownMembers};
use crate::ops::activity::sessions::{self, SessionClaim};
use crate::ops::orchestration::unpack;
use crate::plan::{activity_document, message_document};

impl World {
    /// How many requests the fault rules have hit.
    async fn count_fault_hits(&self) -> u64 {
        let answer = self.engine.manage(http::Method::GET, "faults", "").await.unwrap();
        let report: Value = serde_json::from_slice(answer.body()).unwrap();
        report["faults"].as_array().unwrap().iter().filter_map(|rule| rule["hits"].as_u64()).sum()
    }

    /// Waits until a fault rule has hit a request.
    async fn wait_for_fault(&self) {
        while self.count_fault_hits().await == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

async fn count_bundles(provider: &CosmosDBProvider, instance: &str) -> usize {
    let query = Query::new("SELECT VALUE c.id FROM c WHERE c.type = 'bundle'").in_partition(instance);
    provider.core.store.rows::<String>(query).await.unwrap().len()
}

/// Schedules this many activities of `a` in its first turn.
async fn schedule_activities(provider: &CosmosDBProvider, token: &str, count: u64) {
    let activities = (1..=count).map(|id| activity_item("a", id, String::new())).collect();
    ack(provider, token, vec![event("a", 1, String::new())], activities, vec![]).await.unwrap();
}

/// A turn reads a bundle to cancel two of its activities. Before the commit of the turn is
/// applied, another process unpacks and deletes the bundle.
#[tokio::test(start_paused = true)]
async fn a_bundle_unpacked_during_the_commit_of_a_cancellation_does_not_fail_the_turn() {
    const COUNT: u64 = 40;
    let world = World::open().await;
    let (provider, other) =
        (world.provider_with_reconciler(NEVER).await, world.provider_with_reconciler(NEVER).await);
    provider.enqueue_for_orchestrator(start("a", String::new()), None).await.unwrap();
    let (token, _) = fetch_instance(&provider).await;
    // The commit succeeds, and every unpacking fails.
    world.inject_fault(r#"{"operation":"batch","count":1,"delayMs":1}"#).await;
    world.inject_fault(r#"{"operation":"batch","status":400}"#).await;
    schedule_activities(&provider, &token, COUNT).await;
    world.remove_faults().await;
    assert_eq!(count_bundles(&provider, "a").await, 1, "the bundle is not unpacked");

    provider.enqueue_for_orchestrator(raised_event("a", "stop"), None).await.unwrap();
    let (token, _) = fetch_instance(&provider).await;
    let cancelled = [7, 9].map(|activity_id| ScheduledActivityIdentifier {
        instance: "a".into(),
        execution_id: 1,
        activity_id,
    });
    world.inject_fault(r#"{"operation":"batch","count":1,"delayMs":2000}"#).await;
    let history = vec![event("a", 2, String::new())];
    let acked = provider.ack_orchestration_item(
        &token,
        1,
        history,
        vec![],
        vec![],
        order_metadata(),
        cancelled.to_vec(),
    );
    let unpacked = async {
        world.wait_for_fault().await;
        let bundle = Query::new("SELECT VALUE c.id FROM c WHERE c.type = 'bundle'").in_partition("a");
        for id in other.core.store.rows::<String>(bundle).await.unwrap() {
            unpack::run(&other.core, "a", &id).await.unwrap();
        }
    };
    let (acked, ()) = tokio::join!(acked, unpacked);
    acked.unwrap();
    assert_eq!(count_bundles(&provider, "a").await, 0);
    let ran: Vec<u64> = run_activities(&other).await.into_iter().map(|(id, _)| id).collect();
    assert_eq!(ran, (1..=COUNT).filter(|id| ![7, 9].contains(id)).collect::<Vec<_>>());
}

/// A message of the queue `orders`.
fn queued(instance: &str) -> WorkItem {
    WorkItem::QueueMessage { instance: instance.into(), name: "orders".into(), data: "1".into() }
}

/// In a rolling deployment an old process gives a start back with a delay. A new process gets the
/// message `early` of the instance before the start is visible again. The message must wait for the
/// start, and a turn must then take both.
async fn check_start_after_abandon(early: WorkItem) {
    let world = World::open().await;
    let (old, new) = (world.provider().await, world.provider().await);
    old.enqueue_for_orchestrator(start("a", String::new()), None).await.unwrap();
    let (token, _) = fetch_instance(&old).await;
    old.abandon_orchestration_item(&token, Some(Duration::from_secs(1)), false).await.unwrap();
    new.enqueue_for_orchestrator(early.clone(), None).await.unwrap();
    let fetched = new.fetch_orchestration_item(LOCK, NO_WAIT, None).await.unwrap();
    assert!(fetched.is_none(), "the start is not visible yet");
    let begun = Instant::now();
    let fetched = new.fetch_orchestration_item(LOCK, Duration::from_secs(30), None).await.unwrap();
    let (item, _, _) = fetched.expect("the start");
    assert_eq!(item.messages, [start("a", String::new()), early]);
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_queue_message_waits_for_a_start_that_is_not_visible_yet() {
    check_start_after_abandon(queued("a")).await;
}

#[tokio::test(start_paused = true)]
async fn a_start_that_was_given_back_is_taken_when_it_is_visible_again() {
    check_start_after_abandon(raised_event("a", "1")).await;
}

/// The first of several unpacking steps loses its answer, or the service fails for a moment.
#[tokio::test(start_paused = true)]
async fn a_bundle_is_unpacked_although_a_step_fails_for_a_moment() {
    const COUNT: u64 = 250;
    for rule in [
        r#"{"operation":"batch","count":1,"drop":"after"}"#,
        r#"{"operation":"batch","count":8,"status":503}"#,
    ] {
        let world = World::open().await;
        let provider = world.provider_with_reconciler(NEVER).await;
        provider.enqueue_for_orchestrator(start("a", String::new()), None).await.unwrap();
        let (token, _) = fetch_instance(&provider).await;
        // The first batch is the commit.
        world.inject_fault(r#"{"operation":"batch","count":1,"delayMs":1}"#).await;
        world.inject_fault(rule).await;
        let begun = Instant::now();
        schedule_activities(&provider, &token, COUNT).await;
        assert_eq!(count_bundles(&provider, "a").await, 0, "{rule}");
        assert_eq!(run_activities(&provider).await.len() as u64, COUNT, "{rule}");
        assert!(begun.elapsed() < Duration::from_secs(6), "{rule}: {:?}", begun.elapsed());
    }
}

/// The target's partition refuses all creates. The delivery continues in the background.
#[tokio::test(start_paused = true)]
async fn an_ack_does_not_wait_long_for_a_target_that_fails() {
    let world = World::open().await;
    let provider = world.provider_with_reconciler(NEVER).await;
    provider.enqueue_for_orchestrator(start("a", String::new()), None).await.unwrap();
    let (token, _) = fetch_instance(&provider).await;
    world.inject_fault(r#"{"operation":"create_item","status":503}"#).await;
    let begun = Instant::now();
    ack(&provider, &token, vec![event("a", 1, String::new())], vec![], vec![start("b", String::new())])
        .await
        .unwrap();
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    world.remove_faults().await;
    let fetched = provider.fetch_orchestration_item(LOCK, Duration::from_secs(10), None).await.unwrap();
    assert_eq!(fetched.expect("the message is delivered in the background").0.instance, "b");
}

/// Ten outboxes of one instance cannot be delivered. A bundle of another instance in the same
/// partition is left behind while the reconciler tries to deliver them.
#[tokio::test(start_paused = true)]
async fn outboxes_that_cannot_be_delivered_do_not_hold_the_reconciler() {
    let world = World::open().await;
    let writer = world.provider_with_reconciler(NEVER).await;
    let stamp = writer.core.clock.stamp();
    for number in 0..10 {
        let id = format!("x:source:{number}");
        let outbox = Outbox {
            visible_at: stamp,
            id: format!("o:1:{number}"),
            instance_id: "a".to_owned(),
            document_type: DocumentType::Outbox,
            made_at: stamp,
            messages: vec![message_document(&raised_event("target", "1"), id, stamp, None).unwrap()],
            staging_id: None,
        };
        writer.core.store.container.create("a", &outbox).await.unwrap();
    }
    let bundle = Bundle {
        id: "w:1:0".to_owned(),
        instance_id: "b".to_owned(),
        document_type: DocumentType::Bundle,
        made_at: stamp,
        visible_at: stamp,
        activities: vec![activity_document(&activity_item("b", 1, String::new()), stamp).unwrap()],
        messages: Vec::new(),
        cancelled: Vec::new(),
        skip: Vec::new(),
        staging_id: None,
        unknown: UnknownMembers::default(),
    };
    world.inject_fault(r#"{"operation":"create_item","status":503}"#).await;
    let _reconciling = world.provider().await;
    world.wait_for_fault().await;
    let mut batch = Batch::new("b");
    batch.create(&bundle).unwrap();
    writer.core.store.container.batch(batch).await.unwrap();
    let begun = Instant::now();
    while count_bundles(&writer, "b").await > 0 {
        assert!(begun.elapsed() < Duration::from_secs(10), "the bundle is not unpacked");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// The lock of the next activity is written, but its answer is lost, and it takes seconds until
/// the driver can read what was written.
#[tokio::test(start_paused = true)]
async fn an_activity_whose_lock_is_confirmed_late_runs_before_the_lock_expires() {
    let world = World::open().await;
    let provider = world.provider().await;
    for id in 1..=2 {
        provider.enqueue_for_worker(activity_item("a", id, String::new())).await.unwrap();
    }
    let fetch = async || {
        let wait = Duration::from_secs(60);
        let found = provider.fetch_work_item(LOCK, wait, None, &TagFilter::default()).await.unwrap();
        let (WorkItem::ActivityExecute { id, .. }, token, attempt) = found.expect("an activity") else {
            panic!("not an activity")
        };
        (id, token, attempt)
    };
    let (first, token, _) = fetch().await;
    world.inject_fault(r#"{"operation":"patch_item","count":1,"drop":"after"}"#).await;
    world.inject_fault(r#"{"operation":"read_item","status":503}"#).await;
    let begun = Instant::now();
    let end = async {
        tokio::time::sleep(Duration::from_secs(4)).await;
        world.remove_faults().await;
    };
    let work = async {
        let result = String::new();
        let done = WorkItem::ActivityCompleted { instance: "a".into(), execution_id: 1, id: first, result };
        provider.ack_work_item(&token, Some(done)).await.unwrap();
        fetch().await
    };
    let ((), (second, _, attempt)) = tokio::join!(end, work);
    assert_eq!((first, second, attempt), (1, 2, 1));
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
}

/// Two workers with the same owner claim a session. The first one releases its claim, because
/// another process has its activity. The second one still uses the session.
#[tokio::test(start_paused = true)]
async fn a_session_that_another_worker_of_the_owner_uses_is_still_renewed() {
    let world = World::open().await;
    let provider = world.provider().await;
    let core = &provider.core;
    let config = SessionFetchConfig { owner_id: "worker".into(), lock_timeout: LOCK };
    let claim = async || match sessions::claim(core, "cart", &config).await.unwrap() {
        SessionClaim::Owned(undo) => undo,
        SessionClaim::HeldByOther | SessionClaim::Unavailable => panic!("the session is free"),
    };
    let first = claim().await;
    claim().await;
    // After the first renewal the process knows all its sessions, and does not look for others.
    assert_eq!(provider.renew_session_lock(&["worker"], LOCK, LOCK).await.unwrap(), 1);
    sessions::release(core, first).await;
    assert_eq!(provider.renew_session_lock(&["worker"], LOCK, LOCK).await.unwrap(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_first_renewal_of_sessions_outlasts_a_failure() {
    let world = World::open().await;
    let provider = world.provider().await;
    let core = &provider.core;
    let config = SessionFetchConfig { owner_id: "worker".into(), lock_timeout: LOCK };
    sessions::claim(core, "cart", &config).await.unwrap();
    world.inject_fault(r#"{"operation":"query","count":5,"status":503}"#).await;
    assert_eq!(provider.renew_session_lock(&["worker"], LOCK, LOCK).await.unwrap(), 1);
    // If the sessions of the owner cannot be read, the sessions that the process knows are renewed. The
    // failed read is not returned as an error: in an outage the runtime would log it at every renewal.
    let restarted = world.provider().await;
    sessions::claim(&restarted.core, "till", &config).await.unwrap();
    let (id, key) = crate::plan::session_document_key("till");
    let locked_until = async || {
        let found = restarted.core.store.container.find::<Value>(key, &id).await.unwrap();
        found.unwrap().value["lockedUntil"].as_u64().unwrap()
    };
    let before = locked_until().await;
    world.inject_fault(r#"{"operation":"query","status":503}"#).await;
    assert_eq!(restarted.renew_session_lock(&["worker"], 2 * LOCK, 2 * LOCK).await.unwrap(), 1);
    world.remove_faults().await;
    assert!(locked_until().await > before, "the known session is renewed");
}

#[tokio::test]
async fn a_cancellation_that_was_consumed_is_not_delivered_again() {
    let world = World::open().await;
    let provider = world.provider().await;
    let id = crate::documents::dedup::sent_message_id("source", 1, 0);
    let item = WorkItem::CancelInstance { instance: "a".into(), reason: "late".into() };
    let message = message_document(&item, id, provider.core.clock.stamp(), None).unwrap();
    provider.enqueue_for_orchestrator(start("a", String::new()), None).await.unwrap();
    super::write_message(&provider, &message).await;
    let (token, messages) = fetch_instance(&provider).await;
    assert_eq!(messages.len(), 2);
    ack(&provider, &token, vec![event("a", 1, String::new())], vec![], vec![]).await.unwrap();
    super::write_message(&provider, &message).await;
    assert!(provider.fetch_orchestration_item(LOCK, NO_WAIT, None).await.unwrap().is_none());
}

/// The runtime uses a delay of a second or more when it gives back an activity that it does not know,
/// and a shorter delay for an activity that it could run.
#[tokio::test(start_paused = true)]
async fn an_activity_that_is_given_back_for_a_moment_is_not_left_to_other_processes() {
    let world = World::open().await;
    let (provider, other) = (world.provider().await, world.provider().await);
    let mut tokens = Vec::new();
    for id in 1..=2 {
        provider.enqueue_for_worker(activity_item("a", id, String::new())).await.unwrap();
        let wait = Duration::from_secs(5);
        let found = provider.fetch_work_item(4 * LOCK, wait, None, &TagFilter::default()).await.unwrap();
        tokens.push(found.expect("the activity").1);
    }
    let waiting = tokio::spawn(async move {
        other.fetch_work_item(LOCK, Duration::from_secs(600), None, &TagFilter::default()).await
    });
    // Both processes write heartbeats meanwhile.
    tokio::time::sleep(Duration::from_secs(30)).await;
    provider.abandon_work_item(&tokens[0], Some(Duration::from_secs(1)), false).await.unwrap();
    provider.abandon_work_item(&tokens[1], Some(Duration::from_millis(100)), false).await.unwrap();
    let was_left = |id: &str| {
        let name = crate::process::hints::activity_name("a", id);
        provider.core.hints.left_activities.was_left(&name)
    };
    assert!(was_left("a:1:1"), "the other process may be able to run it");
    assert!(!was_left("a:1:2"));
    waiting.abort();
}
