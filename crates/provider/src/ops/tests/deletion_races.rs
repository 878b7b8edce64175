//! Deletions while other processes work on the same instances: they find the deletion half done, read
//! replicas that are behind, deliver messages late, or use the names again.

use duroxide::providers::Provider;
use perihelion_client::Patch;

use super::deletions::{
    TREE, documents_of_type, interrupt_between_tombstones, is_deleted, reconciling_provider, wait_for_cleanup,
};
use super::{LOCK, NEVER, NO_WAIT, World, start};
use crate::CosmosDBProvider;

/// The partition key of all deletions.
const DELETIONS_KEY: u64 = 1;

/// Changes the coordinator of the only deletion. Returns the coordinator as it was before.
async fn change_coordinator(world: &World, provider: &CosmosDBProvider, patch: Patch) -> serde_json::Value {
    let before = documents_of_type(world, "deletion").await.remove(0);
    let id = before["id"].as_str().unwrap();
    provider.core.store.container.patch(DELETIONS_KEY, id, &patch).await.unwrap();
    before
}

/// Story of a bug: a replica answered the coordinator as it was before the commit, without the starts in
/// delivery. The claim wrote tombstones that do not list these starts, so a late start began a deleted
/// child.
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
