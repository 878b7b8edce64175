//! Turns of a wide fan-out: one turn takes many completions, and a process reads only what is
//! new in a long history. The commit deletes up to 64 of the completions that its turn has consumed. The
//! others are *leftovers*: the state lists them (`undeleted`) until they are deleted, after the commit.

use std::time::Duration;

use duroxide::providers::{Provider, WorkItem};
use perihelion_client::Query;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{LOCK, NEVER, NO_WAIT, World, ack, activity_item, event, fetch_instance, run_activities, start};
use crate::CosmosDBProvider;
use crate::documents::{STATE_ID, State};
use crate::ops::orchestration::leftovers;

/// Schedules and completes `count` activities of the instance `fan`.
pub(super) async fn complete_activities(provider: &CosmosDBProvider, count: u64) {
    provider.enqueue_for_orchestrator(start("fan", String::new()), None).await.unwrap();
    let (token, _) = fetch_instance(provider).await;
    let activities = (1..=count).map(|id| activity_item("fan", id, String::new())).collect();
    ack(provider, &token, vec![event("fan", 1, String::new())], activities, vec![]).await.unwrap();
    assert_eq!(run_activities(provider).await.len() as u64, count);
}

fn completed_ids(messages: &[WorkItem]) -> Vec<u64> {
    let id_of = |message: &WorkItem| match message {
        WorkItem::ActivityCompleted { id, .. } => *id,
        other => panic!("{other:?} is not a completion"),
    };
    messages.iter().map(id_of).collect()
}

#[tokio::test]
async fn one_turn_takes_a_thousand_completions_and_none_is_delivered_again() {
    const COUNT: u64 = 1000;
    let world = World::open().await;
    let provider = world.provider().await;
    complete_activities(&provider, COUNT).await;
    let container = &provider.core.store.container;
    let leftover = container.find::<Value>("fan", "c:1:900").await.unwrap().expect("a message").into_value();
    let (token, messages) = fetch_instance(&provider).await;
    assert_eq!(completed_ids(&messages), (1..=COUNT).collect::<Vec<_>>());
    ack(&provider, &token, vec![event("fan", 2, String::new())], vec![], vec![]).await.unwrap();
    let left = container.find::<Value>("fan", "c:1:900").await.unwrap();
    assert!(left.is_none(), "the completion is deleted after the commit");
    assert!(provider.fetch_orchestration_item(LOCK, NO_WAIT, None).await.unwrap().is_none());
    // Creates the completion again, as if the process had ended before it deleted the completion.
    container.create("fan", &leftover).await.unwrap();
    let other = world.provider().await;
    assert!(
        other.fetch_orchestration_item(LOCK, NO_WAIT, None).await.unwrap().is_none(),
        "the state says that it was consumed"
    );
    assert!(container.find::<Value>("fan", "c:1:900").await.unwrap().is_none(), "the claim has deleted it");
}

/// A process that does not know the list of leftovers would deliver them again.
#[tokio::test]
async fn a_turn_takes_64_messages_while_a_process_may_not_know_the_list_of_leftovers() {
    let world = World::open().await;
    let before = world.provider().await;
    let container = &before.core.store.container;
    // The container has layout version 2, and a live process reads only that version.
    let older = json!({ "id": "layout", "instanceId": 0, "type": "layout", "version": 2 });
    container.upsert(0_u64, &older).await.unwrap();
    let old_process = json!({
        "id": "n:old", "instanceId": 2, "type": "node", "turns": true, "reads": 2,
        "works": { "any": true, "untagged": false, "names": [] }, "ttl": 45,
    });
    container.upsert(2_u64, &old_process).await.unwrap();
    let provider = world.provider().await;
    complete_activities(&provider, 200).await;
    let (token, messages) = fetch_instance(&provider).await;
    assert_eq!(messages.len(), 64);
    ack(&provider, &token, vec![event("fan", 2, String::new())], vec![], vec![]).await.unwrap();
    let state = provider.core.store.state("fan").await.unwrap().expect("a state");
    assert_eq!(state.value.undeleted, Vec::<String>::new());
}

/// The process that made the commit deletes leftovers while another process claims the instance.
/// The other process may have read some of them as messages before they were deleted.
#[tokio::test]
async fn leftovers_that_another_process_has_just_deleted_still_count_as_consumed() {
    let world = World::open().await;
    let provider = world.provider().await;
    complete_activities(&provider, 200).await;
    let (token, _) = fetch_instance(&provider).await;
    ack(&provider, &token, vec![event("fan", 2, String::new())], vec![], vec![]).await.unwrap();
    let other = world.provider().await;
    let mut state = other.core.store.state("fan").await.unwrap().expect("a state");
    let consumed = leftovers::remove(&other.core.store, &mut state).await.unwrap();
    assert_eq!(consumed.len(), 200 - 64);
    assert!(consumed.contains("c:1:200"), "{consumed:?}");
}

#[tokio::test]
async fn the_next_commit_removes_the_list_of_leftovers() {
    let world = World::open().await;
    let provider = world.provider().await;
    complete_activities(&provider, 200).await;
    let (token, _) = fetch_instance(&provider).await;
    ack(&provider, &token, vec![event("fan", 2, String::new())], vec![], vec![]).await.unwrap();
    let listed = || async {
        let state = provider.core.store.state("fan").await.unwrap().expect("a state");
        state.value.undeleted.len()
    };
    assert_eq!(listed().await, 200 - 64);
    provider.enqueue_for_orchestrator(super::raised_event("fan", "1"), None).await.unwrap();
    let (token, messages) = fetch_instance(&provider).await;
    assert_eq!(messages.len(), 1);
    ack(&provider, &token, vec![event("fan", 3, String::new())], vec![], vec![]).await.unwrap();
    assert_eq!(listed().await, 0);
}

/// Each batch takes two seconds: the commit, and then the batches that delete the consumed
/// messages.
#[tokio::test(start_paused = true)]
async fn messages_of_a_large_turn_do_not_wait_until_its_completions_are_deleted() {
    let world = World::open().await;
    // The reconciler would deliver the message as well.
    let provider = world.provider_with_reconciler(NEVER).await;
    complete_activities(&provider, 200).await;
    let (token, _) = fetch_instance(&provider).await;
    world.inject_fault(r#"{"operation":"batch","delayMs":2000}"#).await;
    let begun = Instant::now();
    let acked =
        ack(&provider, &token, vec![event("fan", 2, String::new())], vec![], vec![start("b", String::new())]);
    let delivered = async {
        let query = || Query::new("SELECT VALUE c.id FROM c WHERE c.type = 'orch_queue'").in_partition("b");
        while provider.core.store.rows::<String>(query()).await.unwrap().is_empty() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        begun.elapsed()
    };
    let (acked, delivered) = tokio::join!(acked, delivered);
    acked.unwrap();
    assert!(begun.elapsed() >= Duration::from_secs(4), "{:?}", begun.elapsed());
    assert!(delivered < Duration::from_secs(3), "{delivered:?}");
}

#[tokio::test]
async fn a_large_turn_is_given_back_with_few_requests() {
    let world = World::open().await;
    let provider = world.provider_with_reconciler(NEVER).await;
    complete_activities(&provider, 1000).await;
    let (token, messages) = fetch_instance(&provider).await;
    assert_eq!(messages.len(), 1000);
    provider.core.store.container.delete("fan", "c:1:500").await.unwrap();
    let before = provider.metrics().requests;
    provider.abandon_orchestration_item(&token, None, false).await.unwrap();
    let requests = provider.metrics().requests - before;
    // Ten batches write attempt counts, and one of them is sent again without the deleted message.
    // One more batch ends the lock.
    assert!(requests <= 16, "{requests} requests");
    let attempts = Query::new("SELECT VALUE c.attemptCount FROM c WHERE c.type = 'orch_queue'");
    let attempts: Vec<u32> = provider.core.store.rows(attempts.in_partition("fan")).await.unwrap();
    assert_eq!((attempts.len(), attempts.iter().all(|count| *count == 1)), (999, true));
}

#[tokio::test]
async fn a_large_turn_that_is_given_back_is_delivered_whole_again() {
    const COUNT: u64 = 300;
    let world = World::open().await;
    let provider = world.provider().await;
    complete_activities(&provider, COUNT).await;
    let (token, messages) = fetch_instance(&provider).await;
    assert_eq!(messages.len() as u64, COUNT);
    provider.abandon_orchestration_item(&token, None, false).await.unwrap();
    let fetched = provider.fetch_orchestration_item(LOCK, NO_WAIT, None).await.unwrap();
    let (item, token, attempt) = fetched.expect("the same turn");
    assert_eq!((item.messages.len() as u64, attempt), (COUNT, 2));
    ack(&provider, &token, vec![event("fan", 2, String::new())], vec![], vec![]).await.unwrap();
    assert!(provider.fetch_orchestration_item(LOCK, NO_WAIT, None).await.unwrap().is_none());
}

/// Another process has taken the lock before the turn is given back with a delay.
#[tokio::test]
async fn a_large_turn_whose_lock_is_lost_delays_none_of_its_messages() {
    let world = World::open().await;
    let provider = world.provider_with_reconciler(NEVER).await;
    complete_activities(&provider, 150).await;
    let (token, messages) = fetch_instance(&provider).await;
    assert_eq!(messages.len(), 150);
    let store = &provider.core.store;
    let state = store.state("fan").await.unwrap().unwrap();
    let mut lock = state.value.lock.clone().unwrap();
    lock.nonce = "of-another-process".to_owned();
    let next = State { lock: Some(lock), ..state.value };
    store.container.replace("fan", STATE_ID, &next).await.unwrap();
    let abandoned = provider.abandon_orchestration_item(&token, Some(Duration::from_secs(60)), false).await;
    assert!(abandoned.is_err(), "another process has the lock");
    let delayed = Query::new("SELECT VALUE c.id FROM c WHERE c.type = 'orch_queue' AND c.visibleAt > @now")
        .with_parameter("@now", provider.core.clock.now().0)
        .in_partition("fan");
    assert_eq!(store.rows::<String>(delayed).await.unwrap(), Vec::<String>::new());
}

/// The first chunk of the history is deleted after the other process has read it. So a read
/// of the whole history would fail.
#[tokio::test]
async fn a_process_reads_only_the_newer_events_of_a_history_that_it_knows() {
    let world = World::open().await;
    let (writer, reader) = (world.provider().await, world.provider().await);
    let text = "x".repeat(5000);
    let mut expected = Vec::new();
    for turn in 1..=8_u64 {
        let message = if turn == 1 { start("a", String::new()) } else { super::raised_event("a", "1") };
        writer.enqueue_for_orchestrator(message, None).await.unwrap();
        let (token, _) = fetch_instance(&writer).await;
        let events = vec![event("a", 2 * turn - 1, text.clone()), event("a", 2 * turn, turn.to_string())];
        expected.extend(events.clone());
        ack(&writer, &token, events, vec![], vec![]).await.unwrap();
        assert_eq!(reader.read("a").await.unwrap(), expected, "turn {turn}");
        if turn == 4 {
            writer.core.store.container.delete("a", "h:1:0").await.unwrap();
        }
    }
    let new_reader = world.provider().await;
    assert!(new_reader.read("a").await.is_err(), "the first chunk is deleted");
}
