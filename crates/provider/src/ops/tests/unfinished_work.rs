//! Other processes finish the unfinished work of a process that has ended. Unreadable documents
//! do not block other work. A start is found behind many other messages. The tests run on the
//! real engine in this process.

use std::time::Duration;

use duroxide::providers::{Provider, SessionFetchConfig, TagFilter, WorkItem};
use perihelion_client::{Patch, Query};
use serde_json::json;

use super::{LOCK, NEVER, NO_WAIT, World, ack, activity_item, event, fetch_instance, start};
use crate::CosmosDBProvider;

/// The time limit of a wait.
const WAIT_MAX: Duration = Duration::from_secs(20);

/// The reconciler finds 70 bundles in every pass, more than the 64 documents of one round, and can never
/// unpack them.
#[tokio::test]
async fn a_document_that_cannot_be_finished_does_not_delay_later_ones() {
    let world = World::open().await;
    let mut provider = world.provider().await;
    for number in 0..70 {
        let instance = format!("broken-{number}");
        let broken = json!({
            "id": "w:1:0", "instanceId": instance, "type": "bundle", "madeAt": 1000 + number,
        });
        provider.core.store.container.create(instance.as_str(), &broken).await.unwrap();
    }
    provider.set_outbox_fault_injector(crate::OutboxFaultInjector::fail_next(1));
    provider.enqueue_for_orchestrator(start("a", String::new()), None).await.unwrap();
    let (token, _) = fetch_instance(&provider).await;
    ack(&provider, &token, vec![event("a", 1, String::new())], vec![], vec![start("b", String::new())])
        .await
        .unwrap();
    let found = provider.fetch_orchestration_item(LOCK, WAIT_MAX, None).await.unwrap();
    assert_eq!(found.expect("the reconciler delivers").0.instance, "b");
    let broken = "SELECT VALUE c.id FROM c WHERE c.type = 'bundle'";
    let remaining: Vec<String> = provider.core.store.rows(Query::new(broken)).await.unwrap();
    assert_eq!(remaining.len(), 70, "unreadable bundles are kept");
}

/// The reconciler does not run by its interval, so only a poll can wake it.
#[tokio::test]
async fn a_waiting_process_finishes_the_work_of_a_killed_one() {
    let world = World::open().await;
    let mut killed = world.provider_with_reconciler(NEVER).await;
    killed.set_outbox_fault_injector(crate::OutboxFaultInjector::fail_next(1));
    killed.enqueue_for_orchestrator(start("a", String::new()), None).await.unwrap();
    let (token, _) = fetch_instance(&killed).await;
    ack(&killed, &token, vec![event("a", 1, String::new())], vec![], vec![start("b", String::new())])
        .await
        .unwrap();
    drop(killed);
    let other = world.provider_with_reconciler(NEVER).await;
    let found = other.fetch_orchestration_item(LOCK, WAIT_MAX, None).await.unwrap();
    assert_eq!(found.expect("the message is delivered").0.instance, "b");
}

#[tokio::test]
async fn a_restarted_process_renews_the_sessions_it_had() {
    let world = World::open().await;
    let before_restart = world.provider().await;
    let config = SessionFetchConfig { owner_id: "worker-1".into(), lock_timeout: LOCK };
    for (id, session) in [(1, "cart"), (2, "till")] {
        let mut item = activity_item("a", id, String::new());
        let WorkItem::ActivityExecute { session_id, .. } = &mut item else { panic!("{item:?}") };
        *session_id = Some(session.into());
        before_restart.enqueue_for_worker(item).await.unwrap();
        let tags = TagFilter::default();
        let fetched = before_restart.fetch_work_item(LOCK, NO_WAIT, Some(&config), &tags).await.unwrap();
        assert!(fetched.is_some());
    }
    let after_restart = world.provider().await;
    let renew = |owners| after_restart.renew_session_lock(owners, LOCK, LOCK);
    assert_eq!(renew(&["worker-1"]).await.unwrap(), 2);
    assert_eq!(renew(&["worker-2"]).await.unwrap(), 0);
    assert_eq!(renew(&["worker-1", "worker-2"]).await.unwrap(), 2, "sessions of both owners");
}

/// Creates an instance whose history is in a chunk, and one message to the instance.
async fn create_instance_with_chunk(provider: &CosmosDBProvider, instance: &str) {
    provider.enqueue_for_orchestrator(start(instance, String::new()), None).await.unwrap();
    let (token, _) = fetch_instance(provider).await;
    let history = vec![event(instance, 1, "x".repeat(20_000))];
    ack(provider, &token, history, vec![], vec![super::raised_event(instance, "on")]).await.unwrap();
}

#[tokio::test]
async fn an_instance_with_a_lost_history_chunk_is_fetched_with_the_error() {
    let world = World::open().await;
    let provider = world.provider().await;
    create_instance_with_chunk(&provider, "a").await;
    let chunks = Query::new("SELECT VALUE c.id FROM c WHERE c.hx = 1").in_partition("a");
    for chunk in provider.core.store.rows::<String>(chunks).await.unwrap() {
        provider.core.store.container.delete("a", &chunk).await.unwrap();
    }
    let other = world.provider().await;
    for attempt in 1..=2 {
        let found = other.fetch_orchestration_item(LOCK, NO_WAIT, None).await.unwrap();
        let (item, token, attempts) = found.expect("the instance is fetched");
        assert!(item.history_error.is_some_and(|error| error.contains("has lost its chunk")));
        assert_eq!((attempts, item.history.len()), (attempt, 0));
        other.abandon_orchestration_item(&token, None, false).await.unwrap();
    }
    assert!(other.read("a").await.is_err());
}

#[tokio::test]
async fn an_instance_whose_state_cannot_be_read_does_not_stop_the_others() {
    let world = World::open().await;
    let provider = world.provider().await;
    create_instance_with_chunk(&provider, "unreadable").await;
    let unreadable = Patch::new().set("/execution", "not a number").unwrap();
    provider.core.store.container.patch("unreadable", "i", &unreadable).await.unwrap();
    let other = world.provider().await;
    assert!(other.fetch_orchestration_item(LOCK, NO_WAIT, None).await.unwrap().is_none());
    provider.enqueue_for_orchestrator(start("readable", String::new()), None).await.unwrap();
    let found = other.fetch_orchestration_item(LOCK, NO_WAIT, None).await.unwrap();
    assert_eq!(found.expect("the other instance is fetched").0.instance, "readable");
}

/// The queue has more events than one turn takes, and then the start.
#[tokio::test]
async fn a_start_behind_a_hundred_events_is_fetched_first() {
    let world = World::open().await;
    let provider = world.provider().await;
    for number in 0..100 {
        provider.enqueue_for_orchestrator(super::raised_event("a", &number.to_string()), None).await.unwrap();
    }
    assert!(provider.fetch_orchestration_item(LOCK, NO_WAIT, None).await.unwrap().is_none());
    // The start comes from a process that does not fetch instances.
    let client = world.provider().await;
    client.enqueue_for_orchestrator(start("a", String::new()), None).await.unwrap();
    let (mut delivered, mut turn) = (Vec::new(), 0);
    while delivered.len() < 101 {
        turn += 1;
        let (token, messages) = fetch_instance(&provider).await;
        delivered.extend(messages);
        ack(&provider, &token, vec![event("a", turn, String::new())], vec![], vec![]).await.unwrap();
    }
    assert_eq!(delivered[0], start("a", String::new()));
    for (number, message) in delivered[1..].iter().enumerate() {
        assert_eq!(*message, super::raised_event("a", &number.to_string()));
    }
    assert_eq!(turn, 2);
}
