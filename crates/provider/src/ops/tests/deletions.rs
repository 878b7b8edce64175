//! Deletions of a tree by a process that ends at any of its requests: another process
//! completes the deletion or rolls it back, and no document of a deleted tree remains or is
//! created again. Also messages that arrive after a deletion, pruning during a turn, and
//! instances between two executions. Garbage records have the stored type `litter`, and
//! heartbeats have the stored type `node`.

use std::sync::Arc;
use std::time::Duration;

use duroxide::Event;
use duroxide::providers::{DeleteInstanceResult, InstanceFilter, Provider, ProviderAdmin, WorkItem};
use perihelion_client::Query;
use serde_json::{Value, json};

use super::interrupted_process::{InterruptedProcess, LastRequest};
use super::recorded_process::RecordedProcess;
use super::{LOCK, NEVER, NO_WAIT, World, ack, event, fetch_first_turn, fetch_instance, start};
use crate::ops::repair::{reconcile, retain};
use crate::{CosmosDBProvider, OutboxFaultInjector};

/// The time limit of a wait.
const WAIT_MAX: Duration = Duration::from_secs(20);

/// More requests than a deletion sends.
pub(super) const REQUESTS_MAX: usize = 200;

/// The instances of the tree, in the order of their ids.
pub(super) const TREE: [&str; 3] = ["late", "parent", "queued"];

/// The message that starts a child of `parent`.
pub(super) fn start_child(instance: &str, parent: &str) -> WorkItem {
    match start(instance, String::new()) {
        WorkItem::StartOrchestration { instance, orchestration, input, version, execution_id, .. } => {
            WorkItem::StartOrchestration {
                instance,
                orchestration,
                input,
                version,
                parent_instance: Some(parent.to_owned()),
                parent_id: Some(7),
                parent_execution_id: Some(1),
                execution_id,
            }
        }
        other => other,
    }
}

/// Creates a parent and two children: the start of the child `queued` is queued, and the start
/// of the child `late` is in the outbox. The outbox also has a cancellation of `queued`, and the start
/// of an instance without a parent, `detached`.
async fn create_tree(world: &World, provider: &mut CosmosDBProvider) {
    let token = fetch_first_turn(provider, "parent").await;
    let messages = vec![start_child("queued", "parent")];
    ack(provider, &token, vec![event("parent", 1, String::new())], vec![], messages).await.unwrap();
    provider.enqueue_for_orchestrator(super::raised_event("parent", "1"), None).await.unwrap();
    let token = loop {
        let (item, token, _) = provider.fetch_orchestration_item(LOCK, NO_WAIT, None).await.unwrap().unwrap();
        if item.instance == "parent" {
            break token;
        }
        provider.abandon_orchestration_item(&token, Some(Duration::from_millis(1)), true).await.unwrap();
    };
    provider.set_outbox_fault_injector(OutboxFaultInjector::fail_next(1));
    let cancel = WorkItem::CancelInstance { instance: "queued".into(), reason: String::new() };
    let messages = vec![start_child("late", "parent"), cancel, start("detached", String::new())];
    ack(provider, &token, vec![event("parent", 2, String::new())], vec![], messages).await.unwrap();
    provider.core.background.wait_until_idle().await;
    assert_eq!(documents_of_type(world, "outbox").await.len(), 1, "the start is not delivered");
}

pub(super) async fn documents_of_type(world: &World, document_type: &str) -> Vec<Value> {
    let provider = world.provider_with_reconciler(NEVER).await;
    let query = Query::new("SELECT * FROM c WHERE c.type = @kind").with_parameter("@kind", document_type);
    provider.core.store.rows(query).await.unwrap()
}

/// The instances of the parent's tree.
pub(super) async fn tree_ids(provider: &CosmosDBProvider) -> Vec<String> {
    let mut tree = provider.get_instance_tree("parent").await.unwrap().all_ids;
    tree.sort();
    tree
}

/// Waits until there is no deletion, mark, purge, outbox or garbage record. Returns the
/// remaining documents, without tombstones of instances.
pub(super) async fn wait_for_cleanup(provider: &CosmosDBProvider) -> Vec<Value> {
    let unfinished = "SELECT c.id, c.type, c.instanceId FROM c WHERE c.type = 'deletion' OR IS_DEFINED(c.del) OR \
                IS_DEFINED(c.purge) OR c.type = 'outbox' OR c.type = 'litter'";
    let all = "SELECT c.id, c.type, c.instanceId FROM c WHERE c.type != 'deleted'";
    let wait = async {
        loop {
            let rows: Vec<Value> = provider.core.store.rows(Query::new(unfinished)).await.unwrap();
            if rows.is_empty() {
                return provider.core.store.rows(Query::new(all)).await.unwrap();
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(WAIT_MAX, wait).await.expect("another process finishes the deletion")
}

/// A provider whose reconciler finishes or aborts deletions of other processes at once.
pub(super) async fn reconciling_provider(world: &World) -> CosmosDBProvider {
    world.provider_with_deletion_timeout(Duration::ZERO).await
}

/// Checks that no document of the tree remains or is created again, and that the instance
/// `detached` exists. The fetches below also delete a start of the tree that was delivered after the
/// deletion. `what` names the case in failure messages.
pub(super) async fn assert_tree_deleted(provider: &CosmosDBProvider, what: &str) {
    wait_for_cleanup(provider).await;
    loop {
        let waited = provider.fetch_orchestration_item(LOCK, WAIT_MAX, None).await.unwrap();
        let (item, token, _) = waited.expect("the detached instance starts");
        let instance = item.instance.as_str();
        let turn = ack(provider, &token, vec![event(instance, 1, String::new())], vec![], vec![]).await;
        // A deleted instance may be fetched from the cache, but its commit fails.
        assert_eq!(turn.is_ok(), instance == "detached", "{what}: {instance}");
        if turn.is_ok() {
            break;
        }
    }
    assert!(provider.fetch_orchestration_item(LOCK, NO_WAIT, None).await.unwrap().is_none(), "{what}");
    assert_eq!(provider.list_instances().await.unwrap(), ["detached"], "{what}");
    let remaining = wait_for_cleanup(provider).await;
    let is_of_system = |row: &Value| row["type"] == "node" || row["type"] == "layout";
    let of_tree = |row: &&Value| row["instanceId"] != "detached" && !is_of_system(row);
    assert_eq!(remaining.iter().find(of_tree), None, "{what}: {remaining:?}");
}

/// Deletes the tree of the parent, and ends the process at its `count`th request from now. `None` if the
/// process ended before the deletion did.
pub(super) async fn delete_until(
    count: usize,
    process: &InterruptedProcess,
    provider: CosmosDBProvider,
    what: &str,
) -> Option<DeleteInstanceResult> {
    let set = tree_ids(&provider).await;
    assert_eq!(set, TREE);
    let deleted = process.run_until(count, provider.delete_instances_atomic(&set, true)).await;
    deleted.map(|deleted| deleted.unwrap_or_else(|error| panic!("{what}: {error}")))
}

#[tokio::test]
async fn a_deletion_interrupted_at_any_request_is_all_or_nothing() {
    for last in [LastRequest::Unsent, LastRequest::Applied] {
        for count in 1..REQUESTS_MAX {
            let world = World::open().await;
            let process = InterruptedProcess::new(&world, last);
            let mut interrupted = process.provider(&world).await;
            create_tree(&world, &mut interrupted).await;
            let what = format!("{last:?} {count}");
            let deleted = delete_until(count, &process, interrupted, &what).await;
            assert_all_or_nothing(&world, deleted.is_some(), &what).await;
            if deleted.is_some() {
                assert!(count > 20, "{what}: a deletion of three instances takes more than 20 requests");
                break;
            }
        }
    }
}

/// Lets another process finish or abort an interrupted deletion, and checks that either the whole
/// tree remains or nothing of it. Deletes a tree that remains, and returns its ids; `None` if
/// nothing remains. If `is_ended`, the deletion had ended, and nothing may remain.
pub(super) async fn assert_all_or_nothing(world: &World, is_ended: bool, what: &str) -> Option<Vec<String>> {
    let other = reconciling_provider(world).await;
    let remaining = wait_for_cleanup(&other).await;
    let mut left = None;
    if remaining.iter().any(|row| row["instanceId"] == "parent") {
        assert!(!is_ended, "{what}: the parent exists after a completed deletion");
        let names = tree_ids(&other).await;
        assert!(TREE.iter().all(|name| names.iter().any(|found| found == name)), "{what}: {names:?}");
        other.delete_instances_atomic(&names, true).await.unwrap();
        left = Some(names);
    }
    assert_tree_deleted(&other, what).await;
    left
}

#[tokio::test]
async fn a_child_that_is_only_in_an_outbox_is_deleted_with_its_parent() {
    let world = World::open().await;
    let mut provider = world.provider_with_reconciler(NEVER).await;
    create_tree(&world, &mut provider).await;
    for ids in [vec!["parent"], vec!["parent", "queued"], vec!["late", "parent"]] {
        let ids: Vec<String> = ids.into_iter().map(str::to_owned).collect();
        let refused = provider.delete_instances_atomic(&ids, true).await.unwrap_err();
        assert!(refused.message.contains("orphan"), "{refused}");
    }
    let marked = "SELECT c.id FROM c WHERE IS_DEFINED(c.del)";
    let marked: Vec<Value> = provider.core.store.rows(Query::new(marked)).await.unwrap();
    assert_eq!(marked, Vec::<Value>::new(), "the marks are cleared");
}

/// Ends the process of a deletion of the tree after the tombstone of the parent is written, and before that
/// of its child `queued`.
pub(super) async fn interrupt_between_tombstones() -> World {
    // A deletion writes its first tombstone after more than ten requests.
    for count in 10..REQUESTS_MAX {
        let world = World::open().await;
        let process = InterruptedProcess::new(&world, LastRequest::Applied);
        let mut interrupted = process.provider(&world).await;
        create_tree(&world, &mut interrupted).await;
        let is_ended = delete_until(count, &process, interrupted, &count.to_string()).await.is_some();
        assert!(!is_ended, "no deletion was interrupted between the parent and its child");
        let provider = world.provider_with_reconciler(NEVER).await;
        if is_deleted(&provider, "parent").await && !is_deleted(&provider, "queued").await {
            return world;
        }
    }
    panic!("a deletion takes fewer requests");
}

pub(super) async fn is_deleted(provider: &CosmosDBProvider, instance: &str) -> bool {
    provider.core.store.state(instance).await.unwrap().unwrap().value.is_deleted()
}

/// Story of a bug, which the simulation found: a parent was deleted with its children and created again.
/// The purge of a child was still to be done, and deleted the message with which the new parent started
/// a child of that name. So the new parent waited for ever. Later only the start was kept, and events for
/// the new child were lost.
#[tokio::test]
async fn a_parent_that_is_created_again_before_its_old_children_are_purged_starts_new_ones() {
    let world = interrupt_between_tombstones().await;
    let provider = world.provider_with_reconciler(NEVER).await;
    provider.enqueue_for_orchestrator(start("parent", String::new()), None).await.unwrap();
    let (token, _) = fetch_turn_of(&provider, "parent").await;
    let messages = vec![start_child("queued", "parent")];
    ack(&provider, &token, vec![event("parent", 1, String::new())], vec![], messages).await.unwrap();
    provider.enqueue_for_orchestrator(super::raised_event("queued", "new"), None).await.unwrap();
    let other = reconciling_provider(&world).await;
    wait_for_cleanup(&other).await;
    let (token, messages) = fetch_turn_of(&other, "queued").await;
    assert_eq!(messages, [start_child("queued", "parent"), super::raised_event("queued", "new")]);
    ack(&other, &token, vec![event("queued", 1, String::new())], vec![], vec![]).await.unwrap();
}

/// While the tombstone of a child cannot be written, its parent is not purged: neither by a claim, which
/// finds a start of the parent, nor by the reconciler. So the name of the parent is not free.
#[tokio::test(start_paused = true)]
async fn no_instance_is_purged_before_all_have_their_tombstones() {
    for is_claim in [true, false] {
        let world = interrupt_between_tombstones().await;
        world.inject_fault(r#"{"operation":"replace_item","status":403}"#).await;
        let other = world.provider_with_deletion_timeout(Duration::ZERO).await;
        if is_claim {
            other.enqueue_for_orchestrator(start("parent", String::new()), None).await.unwrap();
            let _ = other.fetch_orchestration_item(LOCK, Duration::from_secs(3), None).await;
        } else {
            // The tombstone becomes due after the coordinator. Now it is due first.
            let due = perihelion_client::Patch::new().set("/madeAt", 1).unwrap();
            other.core.store.container.patch("parent", "i", &due).await.unwrap();
            let (_, _, left_count) = reconcile::run_pass(&other.core).await;
            assert_eq!(left_count, 1, "the tombstone is left to its deletion");
        }
        let parent = other.core.store.state("parent").await.unwrap().unwrap().value;
        assert!(parent.is_deleted() && parent.purge.is_some(), "claim: {is_claim}");
        world.remove_faults().await;
        wait_for_cleanup(&other).await;
        for instance in TREE {
            assert!(is_deleted(&other, instance).await, "claim: {is_claim}, {instance}");
        }
        if is_claim {
            let (token, _) = fetch_turn_of(&other, "parent").await;
            ack(&other, &token, vec![event("parent", 1, String::new())], vec![], vec![]).await.unwrap();
        }
    }
}

/// The text of the request that commits a deletion in two phases.
pub(super) const COMMIT: &str = "\"Committed\"";

/// Runs the first turns of two instances, `a` and `b`.
pub(super) async fn run_two_instances(provider: &CosmosDBProvider) -> [String; 2] {
    let set = ["a", "b"].map(str::to_owned);
    for name in &set {
        provider.enqueue_for_orchestrator(start(name, String::new()), None).await.unwrap();
        let (token, _) = fetch_instance(provider).await;
        ack(provider, &token, vec![event(name, 1, String::new())], vec![], vec![]).await.unwrap();
    }
    set
}

/// Story of a bug: a deletion was committed, and its tombstones could not be written at once. The caller
/// was told that the instances were deleted, and started one of them again. Later the reconciler wrote the
/// tombstone and purged the new start.
#[tokio::test]
async fn an_instance_that_is_started_right_after_its_deletion_is_not_deleted() {
    let (world, process, provider) = RecordedProcess::open().await;
    let world = Arc::new(world);
    let set = run_two_instances(&provider).await;
    let faulty = Arc::clone(&world);
    process.before_answer_to(COMMIT, async move {
        faulty.inject_fault(r#"{"operation":"replace_item","status":403,"count":3}"#).await;
    });
    let deleted = provider.delete_instances_atomic(&set, true).await.unwrap();
    provider.enqueue_for_orchestrator(start("a", "new".into()), None).await.unwrap();
    let other = reconciling_provider(&world).await;
    wait_for_cleanup(&other).await;
    let (_, messages) = fetch_turn_of(&other, "a").await;
    assert_eq!(messages, [start("a", "new".into())]);
    assert_eq!(deleted.instances_deleted, 2);
}

#[tokio::test(start_paused = true)]
async fn a_deletion_whose_tombstones_cannot_be_written_says_that_the_names_are_not_free() {
    let (world, process, provider) = RecordedProcess::open().await;
    let world = Arc::new(world);
    let set = run_two_instances(&provider).await;
    let faulty = Arc::clone(&world);
    process.before_answer_to(COMMIT, async move {
        faulty.inject_fault(r#"{"operation":"replace_item","status":403}"#).await;
    });
    let unfinished = provider.delete_instances_atomic(&set, true).await.unwrap_err();
    assert!(unfinished.message.contains("is committed") && unfinished.is_retryable(), "{unfinished}");
    world.remove_faults().await;
    let other = reconciling_provider(&world).await;
    wait_for_cleanup(&other).await;
    assert_eq!(other.list_instances().await.unwrap(), Vec::<String>::new());
}

/// Another process began to purge the instances, and ended. The coordinator stays until the purges are
/// done: a purge reads it to know which messages are for instances that are deleted too.
#[tokio::test]
async fn the_coordinator_stays_while_another_process_purges() {
    let (world, process, provider) = RecordedProcess::open().await;
    let set = run_two_instances(&provider).await;
    let container = provider.core.store.container.clone();
    process.before_next_batch(async move {
        for instance in ["a", "b"] {
            let patch = perihelion_client::Patch::new().set("/ack", "other").unwrap();
            container.patch(instance, "i", &patch).await.unwrap();
        }
    });
    provider.delete_instances_atomic(&set, true).await.unwrap();
    assert_eq!(documents_of_type(&world, "deletion").await.len(), 1);
    let other = reconciling_provider(&world).await;
    wait_for_cleanup(&other).await;
    assert_eq!(other.list_instances().await.unwrap(), Vec::<String>::new());
}

/// Fetches turns until one is of this instance. Turns of other instances are committed, unless these
/// are deleted.
pub(super) async fn fetch_turn_of(provider: &CosmosDBProvider, wanted: &str) -> (String, Vec<WorkItem>) {
    loop {
        let fetched = provider.fetch_orchestration_item(LOCK, WAIT_MAX, None).await.unwrap();
        let (item, token, _) = fetched.unwrap_or_else(|| panic!("{wanted} has no turn"));
        if item.instance == wanted {
            return (token, item.messages);
        }
        let event = event(&item.instance, 1, String::new());
        let _ = ack(provider, &token, vec![event], vec![], vec![]).await;
    }
}

/// The outbox is read before its instance is deleted, and delivered after the deletion. The
/// tombstone of the child lists the start as a consumed message.
#[tokio::test]
async fn a_start_in_delivery_while_its_parent_is_deleted_starts_nothing() {
    let world = World::open().await;
    let mut provider = world.provider_with_reconciler(NEVER).await;
    create_tree(&world, &mut provider).await;
    let outbox = documents_of_type(&world, "outbox").await.remove(0);
    let outbox: crate::documents::Outbox = serde_json::from_value(outbox).unwrap();
    let set = tree_ids(&provider).await;
    provider.delete_instances_atomic(&set, true).await.unwrap();
    crate::ops::orchestration::deliver::deliver_again(&provider.core, outbox).await.unwrap();
    assert_tree_deleted(&provider, "late").await;
}

#[tokio::test]
async fn one_of_two_overlapping_deletions_succeeds_and_no_mark_is_left() {
    let world = World::open().await;
    let mut first = world.provider_with_reconciler(NEVER).await;
    create_tree(&world, &mut first).await;
    let second = reconciling_provider(&world).await;
    // The reconciler of the second process may deliver the outbox meanwhile. An instance
    // belongs to the tree whether its start is in the outbox or queued.
    let set = tree_ids(&first).await;
    let (one, two) =
        tokio::join!(first.delete_instances_atomic(&set, true), second.delete_instances_atomic(&set, true));
    assert!(one.is_ok() || two.is_ok(), "{one:?} {two:?}");
    assert_tree_deleted(&second, "overlapping").await;
}

/// Story of a bug: the answer to the commit of a deletion was lost, and another process finished the
/// deletion before the commit was tried again. The caller was told that the deletion was aborted.
#[tokio::test]
async fn a_deletion_that_another_process_finishes_succeeds() {
    let (world, process, provider) = RecordedProcess::open().await;
    let set = run_two_instances(&provider).await;
    let other = world.provider_with_deletion_timeout(Duration::from_secs(3600)).await;
    process.lose_answer_to(COMMIT);
    process.before_answer_to(COMMIT, async move {
        wait_for_cleanup(&other).await;
    });
    provider.delete_instances_atomic(&set, true).await.unwrap();
    assert_eq!(provider.list_instances().await.unwrap(), Vec::<String>::new());
    assert!(process.bodies().iter().any(|body| body.contains(COMMIT)), "it was deleted in two phases");
}

/// Runs three executions of the instance `a`. A message for the fourth is queued.
async fn run_three_executions(provider: &CosmosDBProvider) {
    provider.enqueue_for_orchestrator(start("a", String::new()), None).await.unwrap();
    for execution in 1..=3 {
        let (token, _) = fetch_instance(provider).await;
        let next = super::raised_event("a", "on");
        let metadata = duroxide::providers::ExecutionMetadata {
            status: Some("ContinuedAsNew".into()),
            output: Some("x".repeat(200_000)),
            ..super::order_metadata()
        };
        let history = vec![event("a", 1, format!("{execution}"))];
        provider
            .ack_orchestration_item(&token, execution, history, vec![], vec![next], metadata, vec![])
            .await
            .unwrap();
    }
}

/// Story of a bug: the answer to a pruning was lost, and the read that checks it failed too. The next
/// attempt found no execution, and the caller was told that another process had pruned it.
#[tokio::test(start_paused = true)]
async fn a_pruning_whose_answer_and_check_are_lost_succeeds() {
    // The text in the body of the request that prunes: it creates a garbage record.
    const GARBAGE: &str = "litter";
    let (world, process, provider) = RecordedProcess::open().await;
    run_three_executions(&provider).await;
    let world = Arc::new(world);
    let faulty = Arc::clone(&world);
    process.lose_answer_to(GARBAGE);
    process.before_answer_to(GARBAGE, async move {
        faulty.inject_fault(r#"{"operation":"read_item","status":403,"count":1}"#).await;
    });
    let options = duroxide::providers::PruneOptions { keep_last: Some(2), completed_before: None };
    let pruned = provider.prune_executions("a", options).await.unwrap();
    assert_eq!((pruned.executions_deleted, pruned.events_deleted), (1, 1));
    assert_eq!(provider.list_executions("a").await.unwrap(), [2, 3]);
}

#[tokio::test]
async fn pruning_during_a_turn_does_not_affect_the_turn() {
    let world = World::open().await;
    let provider = world.provider().await;
    run_three_executions(&provider).await;
    let (token, _) = fetch_instance(&provider).await;
    let options = duroxide::providers::PruneOptions { keep_last: Some(1), completed_before: None };
    let pruned = provider.prune_executions("a", options).await.unwrap();
    assert_eq!((pruned.executions_deleted, pruned.events_deleted), (2, 2));
    provider
        .ack_orchestration_item(
            &token,
            4,
            vec![event("a", 1, "4".into())],
            vec![],
            vec![],
            super::order_metadata(),
            vec![],
        )
        .await
        .unwrap();
    assert_eq!(provider.list_executions("a").await.unwrap(), [3, 4]);
    assert_eq!(provider.read_history_with_execution_id("a", 3).await.unwrap().len(), 1);
    assert_eq!(provider.get_execution_info("a", 3).await.unwrap().output.unwrap().len(), 200_000);
    let ids = "SELECT VALUE c.id FROM c WHERE c.type = 'part' OR c.hx > 0 OR c.type = 'litter'";
    let remaining: Vec<String> = provider.core.store.rows(Query::new(ids).in_partition("a")).await.unwrap();
    // The history of execution 3 (`h:3`), and the part with its output (`k:`).
    let of_third = |id: &&String| id.starts_with("h:3") || id.starts_with("k:");
    assert_eq!((remaining.len(), remaining.iter().filter(of_third).count()), (2, 2), "{remaining:?}");
    assert_eq!(json!(remaining.iter().filter(|id| id.starts_with("k:")).count()), 1);
}

/// The message with the result of the child.
fn answer(result: &str) -> WorkItem {
    WorkItem::SubOrchCompleted {
        parent_instance: "parent".into(),
        parent_execution_id: 1,
        parent_id: 7,
        result: result.into(),
    }
}

/// Starts the parent, which starts its child. Returns the child's token.
pub(super) async fn start_parent_and_child(provider: &CosmosDBProvider) -> String {
    let token = fetch_first_turn(provider, "parent").await;
    let messages = vec![start_child("child", "parent")];
    ack(provider, &token, vec![event("parent", 1, String::new())], vec![], messages).await.unwrap();
    let (token, messages) = fetch_instance(provider).await;
    assert_eq!(messages, [start_child("child", "parent")]);
    token
}

/// Completes the child with this result.
pub(super) async fn complete_child(provider: &CosmosDBProvider, token: &str, result: &str) {
    let history = vec![event("child", 1, String::new())];
    let metadata = duroxide::providers::ExecutionMetadata {
        parent_instance_id: Some("parent".into()),
        status: Some("Completed".into()),
        ..super::order_metadata()
    };
    provider
        .ack_orchestration_item(token, 1, history, vec![], vec![answer(result)], metadata, vec![])
        .await
        .unwrap();
}

/// The child has ended, and its result is in delivery while the whole tree is deleted and
/// started again with the same instance and event ids.
#[tokio::test]
async fn a_result_for_a_deleted_parent_does_not_reach_a_new_instance_of_that_name() {
    let world = World::open().await;
    let mut provider = world.provider_with_reconciler(NEVER).await;
    let token = start_parent_and_child(&provider).await;
    provider.set_outbox_fault_injector(OutboxFaultInjector::fail_next(1));
    complete_child(&provider, &token, "old").await;
    // The delivered outbox of the parent may still exist.
    let outboxes = documents_of_type(&world, "outbox").await;
    let outbox = outboxes.into_iter().find(|outbox| outbox["instanceId"] == "child").unwrap();
    let outbox: crate::documents::Outbox = serde_json::from_value(outbox).unwrap();
    let set = tree_ids(&provider).await;
    assert_eq!(set, ["child", "parent"]);
    provider.delete_instances_atomic(&set, true).await.unwrap();
    let token = start_parent_and_child(&provider).await;
    crate::ops::orchestration::deliver::deliver_again(&provider.core, outbox).await.unwrap();
    assert!(
        provider.fetch_orchestration_item(LOCK, NO_WAIT, None).await.unwrap().is_none(),
        "the old result is not delivered"
    );
    complete_child(&provider, &token, "new").await;
    let (_, messages) = fetch_instance(&provider).await;
    assert_eq!(messages, [answer("new")]);
}

/// Another incarnation of the parent starts the same child. The runtime answers that the name
/// is taken, and this answer must reach the parent.
#[tokio::test]
async fn the_failure_of_a_colliding_start_reaches_the_parent_that_exists() {
    let world = World::open().await;
    let provider = world.provider_with_reconciler(NEVER).await;
    let token = start_parent_and_child(&provider).await;
    ack(&provider, &token, vec![event("child", 1, String::new())], vec![], vec![]).await.unwrap();
    let now = provider.core.clock.stamp();
    let start = start_child("child", "parent");
    let second_start = crate::plan::message_document(&start, "x:another:1".into(), now, None).unwrap();
    let second_start =
        crate::documents::Message { parent_incarnation: Some("another".into()), ..second_start };
    super::write_message(&provider, &second_start).await;
    let (token, messages) = fetch_instance(&provider).await;
    assert_eq!(messages, [start_child("child", "parent")]);
    ack(&provider, &token, vec![event("child", 2, String::new())], vec![], vec![answer("taken")])
        .await
        .unwrap();
    let (_, messages) = fetch_instance(&provider).await;
    assert_eq!(messages, [answer("taken")]);
}

#[tokio::test]
async fn an_instance_between_two_executions_has_not_ended() {
    let world = World::open().await;
    let provider = world.provider().await;
    let token = fetch_first_turn(&provider, "eternal").await;
    let next = json!({ "ContinueAsNew": {
        "instance": "eternal", "orchestration": "Order", "input": "", "version": "1.0.0"
    } });
    let next: WorkItem = serde_json::from_value(next).unwrap();
    let metadata = duroxide::providers::ExecutionMetadata {
        status: Some("ContinuedAsNew".into()),
        output: Some(String::new()),
        ..super::order_metadata()
    };
    let history = vec![event("eternal", 1, String::new())];
    provider.ack_orchestration_item(&token, 1, history, vec![], vec![next], metadata, vec![]).await.unwrap();

    let deleted = provider.delete_instance_bulk(InstanceFilter::default()).await.unwrap();
    assert_eq!(deleted.instances_deleted, 0);
    let refused = provider.delete_instance("eternal", false).await.unwrap_err();
    assert!(refused.message.contains("still running"), "{refused}");

    let (token, _) = fetch_instance(&provider).await;
    let history = vec![event("eternal", 1, String::new())];
    let metadata = duroxide::providers::ExecutionMetadata {
        status: Some("Completed".into()),
        ..super::order_metadata()
    };
    provider.ack_orchestration_item(&token, 2, history, vec![], vec![], metadata, vec![]).await.unwrap();
    let deleted = provider.delete_instance_bulk(InstanceFilter::default()).await.unwrap();
    assert_eq!((deleted.instances_deleted, deleted.executions_deleted), (1, 2));
}

/// Marking the tree takes longer than the time after which a deletion without progress counts as
/// abandoned. The deletion records its progress, so no reconciler aborts it.
#[tokio::test]
async fn a_large_tree_is_deleted_however_long_it_takes() {
    const CHILDREN: usize = 40;
    const TIMEOUT: Duration = Duration::from_millis(2500);
    let world = World::open().await;
    let provider = world.provider_with_deletion_timeout(TIMEOUT).await;
    let other = world.provider_with_deletion_timeout(TIMEOUT).await;
    let token = fetch_first_turn(&provider, "parent").await;
    let children = (0..CHILDREN).map(|number| start_child(&format!("child-{number}"), "parent")).collect();
    ack(&provider, &token, vec![event("parent", 1, String::new())], vec![], children).await.unwrap();
    let tree = tree_ids(&provider).await;
    assert_eq!(tree.len(), CHILDREN + 1);
    world.inject_fault(r#"{"operation":"create_item","delayMs":600}"#).await;
    let begun = std::time::Instant::now();
    provider.delete_instances_atomic(&tree, true).await.unwrap();
    assert!(begun.elapsed() > TIMEOUT, "the deletion took longer than the timeout: {:?}", begun.elapsed());
    world.remove_faults().await;
    assert!(documents_of_type(&world, "deletion").await.is_empty());
    assert!(tree_ids(&other).await.len() <= 1, "no child is left");
}

/// Retention once read the members of a tree one after the other, twice.
#[tokio::test(start_paused = true)]
async fn retention_reads_the_members_of_a_large_tree_at_the_same_time() {
    const CHILDREN: usize = 80;
    const READ: Duration = Duration::from_millis(100);
    let world = World::open().await;
    let provider = world.provider_with_reconciler(NEVER).await;
    let token = fetch_first_turn(&provider, "parent").await;
    let children = (0..CHILDREN).map(|number| start_child(&format!("child-{number}"), "parent")).collect();
    end(&provider, &token, "parent", children).await;
    for _ in 0..CHILDREN {
        let (item, token, _) = provider.fetch_orchestration_item(LOCK, NO_WAIT, None).await.unwrap().unwrap();
        end(&provider, &token, &item.instance, vec![]).await;
    }
    let root = provider.core.store.state("parent").await.unwrap().expect("the root");
    world.inject_fault(r#"{"operation":"read_item","delayMs":100}"#).await;
    let begun = tokio::time::Instant::now();
    retain::delete_expired_tree(&provider.core, &root).await.unwrap();
    let took = begun.elapsed();
    world.remove_faults().await;
    assert_eq!(provider.list_instances().await.unwrap(), Vec::<String>::new());
    assert!(took < READ * u32::try_from(CHILDREN).unwrap(), "{took:?}");
}

/// Ends an instance, which is the parent or its child, with its first turn.
pub(super) async fn end(provider: &CosmosDBProvider, token: &str, instance: &str, messages: Vec<WorkItem>) {
    let metadata = duroxide::providers::ExecutionMetadata {
        parent_instance_id: Some("parent".to_owned()).filter(|parent| parent != instance),
        status: Some("Completed".into()),
        output: Some(String::new()),
        ..super::order_metadata()
    };
    let history = vec![event(instance, 1, String::new())];
    provider.ack_orchestration_item(token, 1, history, vec![], messages, metadata, vec![]).await.unwrap();
}

/// The parent's turn has scheduled a child, and no query shows the child yet: another process
/// has just delivered its start, and replicas are behind. Then the child is found in the history. The
/// history is not searched for children that were scheduled long ago.
#[tokio::test]
async fn a_child_that_no_query_shows_yet_belongs_to_the_tree() {
    let world = World::open().await;
    let provider = world.provider().await;
    let now_ms = provider.core.clock.now_ms();
    let scheduled = |id: u64, child: &str, timestamp_ms: u64| {
        let (name, instance, input) = ("Child".into(), child.into(), String::new());
        let kind = duroxide::EventKind::SubOrchestrationScheduled { name, instance, input };
        let mut event = Event::with_event_id(id, "parent", 1, None, kind);
        event.timestamp_ms = timestamp_ms;
        event
    };
    let completed = duroxide::EventKind::SubOrchestrationCompleted { result: String::new() };
    let history = vec![
        scheduled(1, "sub::1", now_ms),
        scheduled(2, "old", now_ms - 3_600_000),
        scheduled(3, "answered", now_ms),
        Event::with_event_id(4, "parent", 1, Some(3), completed),
        scheduled(5, "somebody", now_ms),
    ];
    // An instance that is not a child has the id of a scheduled child.
    let token = fetch_first_turn(&provider, "somebody").await;
    ack(&provider, &token, vec![event("somebody", 1, String::new())], vec![], vec![]).await.unwrap();
    let token = fetch_first_turn(&provider, "parent").await;
    ack(&provider, &token, history, vec![], vec![]).await.unwrap();
    let patch = perihelion_client::Patch::new().set("/hasChildren", true).unwrap();
    provider.core.store.container.patch("parent", "i", &patch).await.unwrap();
    let tree = provider.get_instance_tree("parent").await.unwrap().all_ids;
    assert_eq!(tree, ["parent", "parent::sub::1"]);
    let alone = provider.delete_instances_atomic(&["parent".to_owned()], true).await;
    assert!(alone.unwrap_err().message.contains("parent::sub::1"));
    provider.delete_instance("parent", true).await.unwrap();
    assert_eq!(provider.list_instances().await.unwrap(), ["somebody"]);
}
