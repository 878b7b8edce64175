//! Requests and whole operations that are late: they come when the instance that they were meant for
//! is deleted and another instance has its name, or when the staged documents that they are about are
//! committed and consumed.

use std::collections::BTreeSet;
use std::time::Duration;

use duroxide::Event;
use duroxide::providers::{ExecutionMetadata, Provider, ProviderAdmin, PruneOptions, TagFilter};
use perihelion_client::Query;
use serde_json::Value;

use super::recorded_process::RecordedProcess;
use super::{
    LOCK, NEVER, NO_WAIT, World, ack, activity_item, enqueue_activities, event, fetch_first_turn,
    fetch_instance, order_metadata, raised_event, run_activities,
};
use crate::CosmosDBProvider;
use crate::documents::lock_token::nonce;
use crate::documents::{DocumentType, Garbage, STATE_ID, State, Versioned};
use crate::ops::orchestration::stage;
use crate::ops::payload;
use crate::ops::repair::{garbage, purge};

/// The bytes of an event that does not stay in the state document, but becomes a chunk.
const CHUNK_BYTES: usize = 20_000;

/// The number of the activity of the first turn.
const ACTIVITY: u64 = 3;

/// A turn with several texts of this many bytes is staged. So is a message with one of them.
const LARGE_BYTES: usize = 700_000;

/// The ids of all documents of an instance.
async fn ids(provider: &CosmosDBProvider, instance: &str) -> BTreeSet<String> {
    let query = Query::new("SELECT VALUE c.id FROM c").in_partition(instance);
    provider.core.store.rows(query).await.unwrap().into_iter().collect()
}

/// The history of the first turn: its chunk has the same id in every incarnation.
fn history(fill: &str) -> Vec<Event> {
    vec![event("a", 1, fill.repeat(CHUNK_BYTES))]
}

/// Starts the instance `a` and runs its first turn, which writes a chunk of history and schedules an
/// activity. The text of the history tells two incarnations apart: `o` for the old one, `n` for the new
/// one.
async fn run_first_turn(provider: &CosmosDBProvider, fill: &str) {
    let token = fetch_first_turn(provider, "a").await;
    let activities = vec![activity_item("a", ACTIVITY, String::new())];
    ack(provider, &token, history(fill), activities, vec![]).await.unwrap();
    let expected = ["a:1:3", "h:1:0", STATE_ID].map(str::to_owned);
    assert!(ids(provider, "a").await.is_superset(&BTreeSet::from(expected)));
}

/// Checks that the instance `a` has the history of its first turn, and its activity.
async fn assert_whole(world: &World, fill: &str) {
    let other = world.provider_with_reconciler(NEVER).await;
    let kinds = |events: Vec<Event>| events.into_iter().map(|event| event.kind).collect::<Vec<_>>();
    assert!(kinds(other.read("a").await.unwrap()) == kinds(history(fill)), "the history is whole");
    let wait = Duration::from_secs(5);
    let fetched = other.fetch_work_item(LOCK, wait, None, &TagFilter::default()).await.unwrap();
    assert!(fetched.is_some_and(|(item, ..)| item == activity_item("a", ACTIVITY, String::new())));
}

/// Writes the tombstone of the instance `a`, and does not purge the instance.
async fn write_tombstone(provider: &CosmosDBProvider) -> Versioned<State> {
    let store = &provider.core.store;
    let before = store.state("a").await.unwrap().unwrap();
    let value = State {
        document_type: DocumentType::Deleted,
        commit_nonce: nonce(),
        commit_number: before.value.commit_number,
        purge: Some(vec!["a:1:3".to_owned()]),
        repair_at: Some(provider.core.clock.stamp()),
        ..State::blank("a", before.value.incarnation.clone())
    };
    let witness = value.commit_nonce.clone().into();
    let etag = store.put_state(&value, Some(&before.etag), "/ack", witness).await.unwrap();
    Versioned { value, etag }
}

/// A reconciler has read the tombstone, and purges the instance when another process has purged it
/// and the name is in use again.
#[tokio::test]
async fn a_late_purge_leaves_the_next_instance_of_that_name_alone() {
    let world = World::open().await;
    let provider = world.provider_with_reconciler(NEVER).await;
    run_first_turn(&provider, "o").await;
    let tombstone = write_tombstone(&provider).await;
    purge::run(&provider.core, &tombstone).await.unwrap();
    assert_eq!(ids(&provider, "a").await, BTreeSet::from([STATE_ID.to_owned()]));
    run_first_turn(&provider, "n").await;
    purge::run(&provider.core, &tombstone).await.unwrap();
    assert_whole(&world, "n").await;
}

#[tokio::test]
async fn late_requests_of_a_deletion_leave_the_next_instance_of_that_name_alone() {
    let (world, process, deleting) = RecordedProcess::open().await;
    let provider = world.provider_with_reconciler(NEVER).await;
    run_first_turn(&provider, "o").await;
    process.forget_requests();
    deleting.delete_instance("a", true).await.unwrap();
    assert_eq!(ids(&provider, "a").await, BTreeSet::from([STATE_ID.to_owned()]));
    run_first_turn(&provider, "n").await;
    process.send_again().await;
    assert_whole(&world, "n").await;
}

/// The purge needs several batches, and it runs three times at the same time.
#[tokio::test]
async fn an_instance_with_many_documents_is_purged_whole() {
    const COUNT: u64 = 250;
    let world = World::open().await;
    let provider = world.provider_with_reconciler(NEVER).await;
    run_first_turn(&provider, "o").await;
    enqueue_activities(&provider, 10..10 + COUNT).await;
    let mut tombstone = write_tombstone(&provider).await;
    let listed = ids(&provider, "a").await.into_iter().filter(|id| id.starts_with("a:"));
    tombstone.value.purge = Some(listed.collect());
    let witness = tombstone.value.commit_nonce.clone().into();
    let (store, etag) = (&provider.core.store, Some(&tombstone.etag));
    tombstone.etag = store.put_state(&tombstone.value, etag, "/ack", witness).await.unwrap();
    let purges = (0..3).map(|_| purge::run(&provider.core, &tombstone));
    for purged in futures_util::future::join_all(purges).await {
        purged.unwrap();
    }
    assert_eq!(ids(&provider, "a").await, BTreeSet::from([STATE_ID.to_owned()]));
    let state = store.state("a").await.unwrap().unwrap().value;
    assert!(state.is_deleted() && state.purge.is_none() && state.ttl.is_some());
}

/// Ends execution 1 of the instance `a`, and begins execution 2.
async fn continue_as_new(provider: &CosmosDBProvider) {
    provider.enqueue_for_orchestrator(raised_event("a", "on"), None).await.unwrap();
    let (token, _) = fetch_instance(provider).await;
    let metadata = ExecutionMetadata {
        status: Some("ContinuedAsNew".into()),
        output: Some(String::new()),
        ..order_metadata()
    };
    let last = vec![event("a", 2, String::new())];
    let next = vec![raised_event("a", "next")];
    provider.ack_orchestration_item(&token, 1, last, vec![], next, metadata, vec![]).await.unwrap();
    let (token, _) = fetch_instance(provider).await;
    let first = vec![event("a", 1, String::new())];
    let ack = provider.ack_orchestration_item(&token, 2, first, vec![], vec![], order_metadata(), vec![]);
    ack.await.unwrap();
}

fn keep_last_only() -> PruneOptions {
    PruneOptions { keep_last: Some(1), completed_before: None }
}

/// An execution is pruned while the instance is purged. The garbage record of the pruned history must
/// not outlive the purge: its collection would delete the history of the next instance of that name.
#[tokio::test]
async fn a_garbage_record_that_is_created_during_a_purge_is_purged_too() {
    let (world, process, deleting) = RecordedProcess::open().await;
    let provider = world.provider_with_reconciler(NEVER).await;
    run_first_turn(&provider, "o").await;
    continue_as_new(&provider).await;
    let tombstone = write_tombstone(&provider).await;
    // A prune sends this batch. Here the collection of the garbage does not follow.
    let store = provider.core.store.clone();
    let garbage = Garbage { history: Some(1), ..Garbage::blank("a", "pruned", provider.core.clock.stamp()) };
    process.before_next_batch(async move {
        let mut batch = perihelion_client::Batch::new("a");
        batch.delete("e:1").unwrap().create(&garbage).unwrap();
        store.container.batch(batch).await.unwrap();
    });
    purge::run(&deleting.core, &tombstone).await.unwrap();
    assert_eq!(ids(&provider, "a").await, BTreeSet::from([STATE_ID.to_owned()]));
}

#[tokio::test]
async fn a_late_collection_of_a_pruned_history_leaves_the_next_instance_of_that_name_alone() {
    let world = World::open().await;
    let provider = world.provider_with_reconciler(NEVER).await;
    run_first_turn(&provider, "o").await;
    let record = Garbage {
        history: Some(1),
        activities: vec!["a:1:3".to_owned()],
        ..Garbage::blank("a", "late", provider.core.clock.stamp())
    };
    provider.core.store.create("a", &record.id, &record).await.unwrap();
    provider.delete_instance("a", true).await.unwrap();
    run_first_turn(&provider, "n").await;
    garbage::collect(&provider.core.store, &record).await.unwrap();
    assert_whole(&world, "n").await;
}

#[tokio::test]
async fn late_requests_of_a_prune_leave_the_next_instance_of_that_name_alone() {
    let (world, process, pruning) = RecordedProcess::open().await;
    let provider = world.provider_with_reconciler(NEVER).await;
    run_first_turn(&provider, "o").await;
    continue_as_new(&provider).await;
    process.forget_requests();
    pruning.prune_executions("a", keep_last_only()).await.unwrap();
    pruning.core.background.wait_until_idle().await;
    assert!(!ids(&provider, "a").await.contains("h:1:0"), "the history is pruned");
    provider.delete_instance("a", true).await.unwrap();
    run_first_turn(&provider, "n").await;
    continue_as_new(&provider).await;
    process.send_again().await;
    let history = provider.read_history_with_execution_id("a", 1).await.unwrap();
    assert_eq!(history.len(), 2, "the history is whole");
}

/// A claim has read a completion of the deleted instance, and deletes it when the next instance of
/// that name has a completion with the same id.
#[tokio::test]
async fn requests_that_drop_a_stale_completion_leave_the_next_completion_alone() {
    let (world, process, claiming) = RecordedProcess::open().await;
    let provider = world.provider_with_reconciler(NEVER).await;
    run_first_turn(&provider, "o").await;
    run_activities(&provider).await;
    let store = &provider.core.store;
    let old = store.find::<Value>("a", "c:1:3").await.unwrap().expect("a completion").value;
    provider.delete_instance("a", true).await.unwrap();
    store.container.create("a", &old).await.unwrap();
    process.forget_requests();
    assert!(claiming.fetch_orchestration_item(LOCK, NO_WAIT, None).await.unwrap().is_none());
    assert!(!ids(&provider, "a").await.contains("c:1:3"), "the stale completion is deleted");
    run_first_turn(&provider, "n").await;
    assert_eq!(run_activities(&provider).await.len(), 1);
    process.send_again().await;
    assert!(ids(&provider, "a").await.contains("c:1:3"), "the completion is there");
}

/// A turn consumes more completions than its commit deletes. The others are deleted after the commit,
/// and the next instance of that name has completions with the same ids.
#[tokio::test]
async fn requests_that_delete_consumed_completions_leave_the_next_completions_alone() {
    const COUNT: u64 = 70;
    let (world, process, consuming) = RecordedProcess::open().await;
    let provider = world.provider_with_reconciler(NEVER).await;
    let complete_all = async || {
        let token = fetch_first_turn(&provider, "a").await;
        let activities = (1..=COUNT).map(|id| activity_item("a", id, String::new())).collect();
        ack(&provider, &token, history("h"), activities, vec![]).await.unwrap();
        assert_eq!(run_activities(&provider).await.len() as u64, COUNT);
    };
    let is_completion = |id: &&String| id.starts_with("c:");
    complete_all().await;
    let (token, messages) = fetch_instance(&consuming).await;
    assert_eq!(messages.len() as u64, COUNT);
    process.forget_requests();
    ack(&consuming, &token, vec![event("a", 2, String::new())], vec![], vec![]).await.unwrap();
    assert_eq!(ids(&provider, "a").await.iter().filter(is_completion).count(), 0);
    provider.delete_instance("a", true).await.unwrap();
    complete_all().await;
    process.send_again().await;
    assert_eq!(ids(&provider, "a").await.iter().filter(is_completion).count() as u64, COUNT);
}

/// Story of a bug: a batch that was too large as a whole was sent again and again. So an instance of more
/// than 32 MB was never purged, and its name was never free again.
#[tokio::test]
async fn a_purge_of_documents_that_are_too_large_together_takes_smaller_batches() {
    let world = World::open().await;
    let provider = world.provider_with_reconciler(NEVER).await;
    run_first_turn(&provider, "o").await;
    enqueue_activities(&provider, 10..20).await;
    world.inject_fault(r#"{"operation":"batch","status":413,"count":2}"#).await;
    provider.delete_instance("a", true).await.unwrap();
    assert_eq!(ids(&provider, "a").await, BTreeSet::from([STATE_ID.to_owned()]));
}

/// The first attempt to create the garbage record of a staged message arrives after the message was
/// created. The answer to the creation of the message was lost, so the message is created again.
#[tokio::test]
async fn a_message_whose_garbage_record_arrives_late_is_accepted_once() {
    let (_world, process, provider) = RecordedProcess::open().await;
    run_first_turn(&provider, "o").await;
    process.forget_requests();
    let (store, now) = (&provider.core.store, provider.core.clock.stamp());
    let item = raised_event("a", &"e".repeat(LARGE_BYTES));
    let message = crate::plan::message_document(&item, "x:late:1".to_owned(), now, None).unwrap();
    let until = tokio::time::Instant::now() + LOCK;
    let prepared = payload::prepare_message(store, message, now, until).await.unwrap();
    payload::create_message(store, &prepared).await.unwrap();
    let before = ids(&provider, "a").await;
    process.send_again().await;
    payload::create_message(store, &prepared).await.unwrap();
    assert_eq!(ids(&provider, "a").await, before);
    let (_, messages) = fetch_instance(&provider).await;
    assert!(messages == [item]);
}

/// All requests of a staged turn arrive once more, after its activities have ended and their inputs
/// were deleted.
#[tokio::test]
async fn late_requests_of_a_staged_turn_create_nothing() {
    let (world, process, staging) = RecordedProcess::open().await;
    let provider = world.provider_with_reconciler(NEVER).await;
    let token = fetch_first_turn(&staging, "a").await;
    process.forget_requests();
    let activities = (1..=4).map(|id| activity_item("a", id, "w".repeat(LARGE_BYTES))).collect();
    ack(&staging, &token, history("h"), activities, vec![]).await.unwrap();
    staging.core.background.wait_until_idle().await;
    assert_eq!(run_activities(&provider).await.len(), 4);
    provider.core.background.wait_until_idle().await;
    let before = ids(&provider, "a").await;
    process.send_again().await;
    assert_eq!(ids(&provider, "a").await, before);
}

/// The turn before the given-up staging has a large history, which must not be read again.
#[tokio::test]
async fn documents_of_a_staging_that_was_given_up_are_collected_without_a_scan() {
    let (_world, process, provider) = RecordedProcess::open().await;
    run_first_turn(&provider, "h").await;
    let before = ids(&provider, "a").await;
    let (store, now) = (&provider.core.store, provider.core.clock.stamp());
    let until = tokio::time::Instant::now() + LOCK;
    let parts = crate::plan::part_documents("a", "p:s", &"x".repeat(1000), Some(&"s".to_owned()), None);
    let staged = stage::stage_parts(store, "a", "s", &parts, now, until).await.unwrap();
    let record = store.find::<Garbage>("a", &staged.id).await.unwrap().expect("a record");
    process.forget_requests();
    garbage::collect_due(store, record).await.unwrap();
    let is_scan = |body: &&String| body.contains("SELECT *");
    assert_eq!(process.bodies().iter().find(is_scan), None);
    assert_eq!(ids(&provider, "a").await, before);
}
