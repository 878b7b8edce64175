//! Deletions while other processes work on the same instances: they find the deletion half done, read
//! replicas that are behind, deliver messages late, or use the names again.
//!
//! A deletion of several instances has a *coordinator*: a document that lists the instances and, in its
//! member `late`, the messages that were in delivery when the deletion was committed. A *claim* is the part
//! of a fetch that takes an instance; it purges the instance if it finds its tombstone.
//! `interrupt_between_tombstones` leaves a tree whose root `parent` has its tombstone, and whose child
//! `queued` has only the mark of the deletion.

use std::sync::Arc;

use duroxide::providers::{ExecutionMetadata, InstanceFilter, Provider, ProviderAdmin};
use perihelion_client::Patch;

use super::deletions::{
    COMMIT, TREE, complete_child, documents_of_type, end, fetch_turn_of, interrupt_between_tombstones,
    is_deleted, reconciling_provider, run_two_instances, start_child, start_parent_and_child,
    wait_for_cleanup,
};
use super::interleavings::{DELETION_ID, create_deletion};
use super::recorded_process::RecordedProcess;
use super::{LOCK, NEVER, NO_WAIT, World, ack, event, fetch_first_turn, fetch_instance, start};
use crate::CosmosDBProvider;
use crate::documents::{DeletionStage, DocumentType, Outbox, State};
use crate::ops::admin::delete;
use crate::ops::orchestration::deliver;
use crate::ops::repair::{reconcile, retain};

/// The partition key of all deletions.
const DELETIONS_KEY: u64 = 1;

/// Changes the coordinator of the only deletion. Returns the coordinator as it was before.
async fn change_coordinator(world: &World, provider: &CosmosDBProvider, patch: Patch) -> serde_json::Value {
    let before = documents_of_type(world, "deletion").await.remove(0);
    let id = before["id"].as_str().unwrap();
    provider.core.store.container.patch(DELETIONS_KEY, id, &patch).await.unwrap();
    before
}

async fn state_of(provider: &CosmosDBProvider, instance: &str) -> State {
    provider.core.store.state(instance).await.unwrap().expect("its state").value
}

/// Story of a bug: a read from a replica returned the coordinator as it was before the deletion was
/// committed, without the messages in delivery. The claim of the parent then wrote tombstones that do not
/// list these messages, so a late start began a deleted child.
#[tokio::test]
async fn a_claim_that_reads_a_coordinator_from_before_its_commit_writes_no_tombstones() {
    let world = interrupt_between_tombstones().await;
    let other = world.provider_with_reconciler(NEVER).await;
    let old = Patch::new().set("/stage", "Prepared").unwrap().remove("/late").unwrap();
    let committed = change_coordinator(&world, &other, old).await;
    other.enqueue_for_orchestrator(start("parent", String::new()), None).await.unwrap();
    let fetched = other.fetch_orchestration_item(LOCK, NO_WAIT, None).await.unwrap();
    assert!(!is_deleted(&other, "queued").await);
    assert!(fetched.is_none(), "the parent is not purged");
    let new = Patch::new().set("/stage", "Committed").unwrap().set("/late", &committed["late"]).unwrap();
    change_coordinator(&world, &other, new).await;
    wait_for_cleanup(&reconciling_provider(&world).await).await;
    for instance in TREE {
        assert!(is_deleted(&other, instance).await, "{instance}");
    }
}

/// Story of a bug: a cancellation of a child was in delivery while its tree was deleted. It arrived after
/// the tombstone was written, and cancelled the next child of that name. The tombstone listed only starts.
#[tokio::test]
async fn a_cancellation_in_delivery_while_a_tree_is_deleted_does_not_reach_the_next_child() {
    let world = interrupt_between_tombstones().await;
    let outbox = documents_of_type(&world, "outbox").await.remove(0);
    let outbox: Outbox = serde_json::from_value(outbox).unwrap();
    let other = reconciling_provider(&world).await;
    wait_for_cleanup(&other).await;
    deliver::deliver_again(&other.core, outbox).await.unwrap();
    other.enqueue_for_orchestrator(start("parent", String::new()), None).await.unwrap();
    let (token, _) = fetch_turn_of(&other, "parent").await;
    let messages = vec![start_child("queued", "parent")];
    ack(&other, &token, vec![event("parent", 1, String::new())], vec![], messages).await.unwrap();
    let (_, messages) = fetch_turn_of(&other, "queued").await;
    assert_eq!(messages, [start_child("queued", "parent")]);
}

/// Story of a bug: the instances of a deletion are purged in groups. After a failure in one group, the
/// purges of later groups were not tried, in any round of the reconciler.
#[tokio::test(start_paused = true)]
async fn an_instance_that_cannot_be_purged_delays_no_other() {
    let world = World::open().await;
    let provider = world.provider_with_reconciler(NEVER).await;
    let set: Vec<String> = (0..=delete::PARALLEL_MAX).map(|number| format!("i{number}")).collect();
    for name in &set {
        let token = fetch_first_turn(&provider, name).await;
        ack(&provider, &token, vec![event(name, 1, String::new())], vec![], vec![]).await.unwrap();
    }
    let now = provider.core.clock.stamp();
    // The service refuses a message whose id contains a slash.
    let message = crate::plan::message_document(&start("b", String::new()), "x:no/body:1".into(), now, None);
    let outbox = Outbox {
        visible_at: now,
        id: "o:1:0".to_owned(),
        instance_id: set[0].clone(),
        document_type: DocumentType::Outbox,
        made_at: now,
        messages: vec![message.unwrap()],
        staging_id: None,
    };
    provider.core.store.container.create(set[0].as_str(), &outbox).await.unwrap();
    provider.delete_instances_atomic(&set, true).await.unwrap();
    for name in &set {
        let state = state_of(&provider, name).await;
        assert_eq!((state.is_deleted(), state.purge.is_some()), (true, *name == set[0]), "{name}");
    }
    assert_eq!(documents_of_type(&world, "deletion").await.len(), 1, "the coordinator stays");
}

/// Story of a bug: a claim purged all instances of the deletion, however many.
#[tokio::test]
async fn a_claim_purges_only_the_deleted_instance_that_it_has_found() {
    let world = interrupt_between_tombstones().await;
    let other = world.provider_with_reconciler(NEVER).await;
    start_parent_again(&other).await;
    for child in ["late", "queued"] {
        let state = state_of(&other, child).await;
        assert!(state.is_deleted() && state.purge.is_some(), "{child}");
    }
    assert_eq!(documents_of_type(&world, "deletion").await.len(), 1, "the deletion is not finished");
    wait_for_cleanup(&reconciling_provider(&world).await).await;
    for instance in TREE {
        assert_eq!(is_deleted(&other, instance).await, instance != "parent", "{instance}");
    }
}

/// Starts the deleted parent again, and runs its first turn.
async fn start_parent_again(provider: &CosmosDBProvider) {
    provider.enqueue_for_orchestrator(start("parent", String::new()), None).await.unwrap();
    let (token, _) = fetch_turn_of(provider, "parent").await;
    ack(provider, &token, vec![event("parent", 1, String::new())], vec![], vec![]).await.unwrap();
}

/// A coordinator has up to 2 MB. Story of a bug: the reconciler read the
/// coordinator again for every tombstone that it left alone.
#[tokio::test]
async fn the_reconciler_does_not_read_the_coordinator_of_each_tombstone() {
    let world = interrupt_between_tombstones().await;
    let process = RecordedProcess::new(&world);
    let other = process.provider(&world).await;
    start_parent_again(&other).await;
    // Only the tombstones are due.
    let later = Patch::new().set("/madeAt", crate::documents::stamp::STAMP_MAX).unwrap();
    let coordinator = change_coordinator(&world, &other, later).await;
    let due = Patch::new().set("/madeAt", 1).unwrap();
    for child in ["late", "queued"] {
        other.core.store.container.patch(child, "i", &due).await.unwrap();
    }
    process.forget_requests();
    assert_eq!(reconcile::run_pass(&other.core).await, (2, 0, 2), "both tombstones are left");
    let id = coordinator["id"].as_str().unwrap();
    assert_eq!(process.point_reads(id.rsplit(':').next().unwrap()), 0);
}

/// The root has ended and was selected. Before it is deleted by retention, somebody deletes it and starts it
/// again. In an earlier version the deletion by retention purged the new start.
#[tokio::test]
async fn retention_spares_a_root_that_was_deleted_and_started_again() {
    let world = World::open().await;
    let provider = world.provider_with_reconciler(NEVER).await;
    let token = fetch_first_turn(&provider, "parent").await;
    end(&provider, &token, "parent", vec![]).await;
    let root = provider.core.store.state("parent").await.unwrap().unwrap();
    delete_and_start_again(&provider).await;
    retain::delete_expired_tree(&provider.core, &root).await.unwrap();
    assert_eq!(fetch_instance(&provider).await.1, [start("parent", String::new())]);
}

/// Deletes the instance `parent`, and starts it again. Its start is queued.
async fn delete_and_start_again(provider: &CosmosDBProvider) {
    provider.delete_instance("parent", false).await.unwrap();
    provider.enqueue_for_orchestrator(start("parent", String::new()), None).await.unwrap();
}

#[tokio::test]
async fn a_bulk_deletion_spares_a_root_that_was_deleted_and_started_again() {
    let (world, process, provider) = RecordedProcess::open().await;
    let token = fetch_first_turn(&provider, "parent").await;
    end(&provider, &token, "parent", vec![]).await;
    let other = world.provider_with_reconciler(NEVER).await;
    let again = other.clone();
    process.before_answer_to("c.completedAt", async move { delete_and_start_again(&again).await });
    let deleted = provider.delete_instance_bulk(InstanceFilter::default()).await.unwrap();
    assert_eq!(deleted.instances_deleted, 0);
    assert_eq!(fetch_instance(&other).await.1, [start("parent", String::new())]);
}

/// A bulk deletion commits, writes the tombstone of the root, and cannot write that of the child. Its second
/// attempt finds the root deleted. It must not succeed before the child has its tombstone, too: a new start
/// of the child would be lost.
#[tokio::test]
async fn a_bulk_deletion_that_is_tried_again_writes_the_tombstones_that_are_missing() {
    let (world, process, provider) = RecordedProcess::open().await;
    let token = start_parent_and_child(&provider).await;
    complete_child(&provider, &token, "old").await;
    let (token, _) = fetch_turn_of(&provider, "parent").await;
    let metadata = ExecutionMetadata { status: Some("Completed".into()), ..super::order_metadata() };
    let history = vec![event("parent", 2, String::new())];
    provider.ack_orchestration_item(&token, 1, history, vec![], vec![], metadata, vec![]).await.unwrap();
    let world = Arc::new(world);
    let faulty = Arc::clone(&world);
    process.before_answer_to(COMMIT, async move {
        faulty.inject_fault(r#"{"operation":"replace_item","status":403,"count":1}"#).await;
    });
    provider.delete_instance_bulk(InstanceFilter::default()).await.unwrap();
    assert!(is_deleted(&provider, "parent").await && is_deleted(&provider, "child").await);
}

/// The parent continues as new and starts its child again while retention deletes the ended child.
#[tokio::test]
async fn retention_spares_a_child_that_was_deleted_and_started_again() {
    let (world, process, provider) = RecordedProcess::open().await;
    let token = start_parent_and_child(&provider).await;
    complete_child(&provider, &token, "old").await;
    let other = world.provider_with_reconciler(NEVER).await;
    let again = other.clone();
    process.before_answer_to("c.completedAt", async move {
        delete::run(&again.core, &["child".to_owned()], false.into()).await.unwrap();
        again.enqueue_for_orchestrator(start_child("child", "parent"), None).await.unwrap();
    });
    retain::delete_children_ended_before(&provider.core, "parent", u64::MAX).await.unwrap();
    assert_eq!(fetch_turn_of(&other, "child").await.1, [start_child("child", "parent")]);
}

/// Story of a bug: a replica answered the state of an instance as it was before the deletion marked it. That
/// counted as a deletion that was finished before, so one instance of a deleted tree was left.
#[tokio::test]
async fn an_instance_whose_mark_a_replica_does_not_show_yet_is_deleted() {
    let (world, process, provider) = RecordedProcess::open().await;
    run_two_instances(&provider).await;
    process.answer_reads_as_now(&provider, "a").await;
    let other = world.provider_with_reconciler(NEVER).await;
    create_deletion(&other, DeletionStage::Committed, &["a", "b"]).await;
    delete::resolve_mark(&provider.core, "b", DELETION_ID).await.unwrap();
    for instance in ["a", "b"] {
        assert!(is_deleted(&other, instance).await, "{instance}");
    }
}
