//! Deletions of a tree by one distributed transaction: by a process that ends at any of its
//! requests, and with transactions that fail.

use duroxide::providers::ProviderAdmin;
use perihelion_client::Client;

use super::deletions::{
    REQUESTS_MAX, TREE, assert_all_or_nothing, assert_tree_deleted, delete_until, documents_of_type,
    reconciling_provider, start_child, tree_ids,
};
use super::interrupted_process::{InterruptedProcess, LastRequest};
use super::{NEVER, World, ack, event, fetch_first_turn, start};
use crate::{CosmosDBProvider, CrossInstance};

/// Creates a parent whose turn starts two children, and an instance without a parent, `detached`.
/// All three starts are queued.
async fn create_tree(world: &World, provider: &CosmosDBProvider) {
    let token = fetch_first_turn(provider, "parent").await;
    let children = ["queued", "late"].map(|child| start_child(child, "parent"));
    let messages = children.into_iter().chain([start("detached", String::new())]).collect();
    ack(provider, &token, vec![event("parent", 1, String::new())], vec![], messages).await.unwrap();
    assert_eq!(documents_of_type(world, "outbox").await.len(), 0, "the turn is a transaction");
    assert_eq!(documents_of_type(world, "orch_queue").await.len(), 3);
}

/// The number of requests of an operation that the engine has counted.
async fn requests(world: &World, operation: &str) -> u64 {
    let answer = world.engine.manage(http::Method::GET, "counters", "").await.unwrap();
    let counters: serde_json::Value = serde_json::from_slice(answer.body()).unwrap();
    counters["operations"][operation]["requests"].as_u64().unwrap_or(0)
}

/// A provider that deletes by transactions, if they are possible. Its reconciler does not run.
async fn provider(world: &World) -> CosmosDBProvider {
    let client = Client::over(&world.engine.endpoint(), world.engine.transport()).await.unwrap();
    let builder = CosmosDBProvider::builder().with_client(client).with_reconciler(NEVER, NEVER);
    builder.with_cross_instance(CrossInstance::Transaction).open().await.unwrap()
}

#[tokio::test]
async fn a_deletion_by_a_transaction_interrupted_at_any_request_is_all_or_nothing() {
    for last in [LastRequest::Unsent, LastRequest::Applied] {
        for count in 1..REQUESTS_MAX {
            let world = World::open().await;
            let process = InterruptedProcess::new(&world, last);
            let interrupted = process.provider_with(&world, CrossInstance::Transaction).await;
            create_tree(&world, &interrupted).await;
            let what = format!("{last:?} {count}");
            let deleted = delete_until(count, &process, interrupted, &what).await;
            if let Some(deleted) = &deleted {
                assert_eq!(deleted.instances_deleted, 1, "only the parent has begun: {what}");
                assert_eq!(deleted.queue_messages_deleted, 2, "{what}");
            }
            assert_eq!(documents_of_type(&world, "deletion").await.len(), 0, "no coordinator: {what}");
            if let Some(left) = assert_all_or_nothing(&world, deleted.is_some(), &what).await {
                assert_eq!(left, TREE, "{what}");
            }
            if deleted.is_some() {
                assert!(count > 10, "{what}: a deletion of three instances takes more than ten requests");
                break;
            }
        }
    }
}

/// A deletion in two phases first writes a mark into each instance, and a document, the coordinator,
/// stores how far the deletion has come. A transaction needs neither. Deletions of both kinds report
/// the same counts.
#[tokio::test]
async fn a_deletion_by_a_transaction_needs_no_coordinator_and_no_marks() {
    let mut results = Vec::new();
    // 400/5406: the account has no transactions.
    for fault in [None, Some(r#"{"operation":"transaction","status":400,"subStatus":5406}"#)] {
        let world = World::open().await;
        let provider = provider(&world).await;
        create_tree(&world, &provider).await;
        if let Some(rule) = fault {
            world.inject_fault(rule).await;
        }
        let replaced_before = requests(&world, "replace_item").await;
        let batches_before = requests(&world, "batch").await;
        let set = tree_ids(&provider).await;
        let deleted = provider.delete_instances_atomic(&set, true).await.unwrap();
        results.push((deleted.instances_deleted, deleted.events_deleted, deleted.queue_messages_deleted));
        let replaced = requests(&world, "replace_item").await - replaced_before;
        let batches = requests(&world, "batch").await - batches_before;
        assert_eq!(batches, 3, "the purge of each instance is one batch");
        match fault {
            None => assert_eq!(replaced, 0),
            // The marks, the stage of the coordinator and the tombstones are replaces.
            Some(_) => assert!(replaced > 3, "{replaced}"),
        }
        drop(provider);
        assert_tree_deleted(&reconciling_provider(&world).await, "deleted").await;
    }
    assert_eq!(results[0], results[1]);
}

/// The deletion is counted as if its answer had arrived.
#[tokio::test]
async fn the_outcome_of_a_deletion_whose_answer_was_lost_is_found_out() {
    let world = World::open().await;
    let provider = provider(&world).await;
    create_tree(&world, &provider).await;
    let set = tree_ids(&provider).await;
    world.inject_fault(r#"{"operation":"transaction","drop":"after","count":1}"#).await;
    let deleted = provider.delete_instances_atomic(&set, true).await.unwrap();
    assert_eq!((deleted.instances_deleted, deleted.queue_messages_deleted), (1, 2));
    drop(provider);
    assert_tree_deleted(&reconciling_provider(&world).await, "lost answer").await;
}

/// The start of an instance that has not begun may be delivered after the deletion has read the queue
/// of that instance. A transaction would miss the start. The marks of a deletion in two phases make sure
/// that it is found.
#[tokio::test]
async fn an_instance_with_neither_state_nor_start_is_deleted_in_two_phases() {
    let world = World::open().await;
    let provider = provider(&world).await;
    create_tree(&world, &provider).await;
    let mut set = tree_ids(&provider).await;
    set.push("ghost".to_owned());
    let transactions_before = requests(&world, "transaction").await;
    provider.delete_instances_atomic(&set, true).await.unwrap();
    assert_eq!(requests(&world, "transaction").await, transactions_before);
    drop(provider);
    assert_tree_deleted(&reconciling_provider(&world).await, "deleted").await;
}

/// Two phases need no transactions, so a tree is deleted while transactions fail.
#[tokio::test]
async fn a_tree_is_deleted_while_transactions_fail() {
    for rule in [
        r#"{"operation":"transaction","status":429,"subStatus":3200,"retryAfterMs":10}"#,
        r#"{"operation":"transaction","status":403}"#,
        r#"{"operation":"transaction","status":413}"#,
    ] {
        let world = World::open().await;
        let provider = provider(&world).await;
        create_tree(&world, &provider).await;
        let set = tree_ids(&provider).await;
        world.inject_fault(rule).await;
        provider.delete_instances_atomic(&set, true).await.unwrap_or_else(|error| panic!("{rule}: {error}"));
        drop(provider);
        assert_tree_deleted(&reconciling_provider(&world).await, rule).await;
    }
}
