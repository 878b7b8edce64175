//! Writes whose responses are lost. The client must report correctly whether a write was
//! applied once, was refused, or is ambiguous.

use perihelion_client::diagnostics::Resolution;
use perihelion_client::{Batch, Container, ItemOptions, Patch};
use serde_json::{Value, json};

use crate::world::World;

const PARTITION_KEY: &str = r#"{"paths":["/pk"],"kind":"Hash","version":2}"#;

/// Makes the server apply the next `count` operations of this kind and drop their
/// responses.
async fn drop_responses(world: &World, operation: &str, count: u32) {
    world.fault(&format!(r#"{{"operation":"{operation}","count":{count},"drop":"after"}}"#)).await;
}

/// A container with the document `0`, whose member `n` is 0.
async fn world() -> (World, Container) {
    let world = World::new(2).await;
    let container = world.container("c", PARTITION_KEY).await;
    container.create("k", &json!({"id": "0", "pk": "k", "n": 0})).await.unwrap();
    (world, container)
}

fn document(id: &str, token: &str) -> Value {
    json!({"id": id, "pk": "k", "token": token})
}

/// The member `n` of document `0`.
async fn number(container: &Container) -> Value {
    container.read::<Value>("k", "0").await.unwrap().value["n"].clone()
}

#[tokio::test]
async fn idempotent_writes_are_repeated() {
    let (world, container) = world().await;
    drop_responses(&world, "upsert_item", 1).await;
    let written = container.upsert("k", &document("1", "a")).await.unwrap();
    assert_eq!(written.receipt().diagnostics().attempts().count(), 2);
    drop_responses(&world, "patch_item", 1).await;
    container.patch("k", "0", &Patch::new().set("/n", 5).unwrap()).await.unwrap();
    assert_eq!(number(&container).await, 5);
    drop_responses(&world, "batch", 1).await;
    let mut batch = Batch::new("k");
    batch.upsert(&document("2", "b")).and_then(|batch| batch.read("2")).unwrap();
    assert_eq!(container.batch(batch).await.unwrap().results().len(), 2);
}

#[tokio::test]
async fn an_increment_is_never_applied_twice() {
    let (world, container) = world().await;
    drop_responses(&world, "patch_item", 1).await;
    let lost = container.patch("k", "0", &Patch::new().increment("/n", 1).unwrap()).await.unwrap_err();
    assert!(lost.is_ambiguous(), "{lost}");
    assert_eq!(number(&container).await, 1, "the increment was not applied exactly once");
    drop_responses(&world, "batch", 1).await;
    let mut batch = Batch::new("k");
    batch.patch("0", &Patch::new().increment("/n", 1).unwrap()).unwrap();
    assert!(container.batch(batch).await.unwrap_err().is_ambiguous());
    assert_eq!(number(&container).await, 2);
}

#[tokio::test]
async fn a_create_without_a_witness_is_ambiguous_and_not_a_conflict() {
    let (world, container) = world().await;
    drop_responses(&world, "create_item", 1).await;
    let lost = container.create("k", &document("1", "a")).await.unwrap_err();
    assert!(lost.is_ambiguous() && !lost.is_conflict(), "{lost}");
    assert!(container.find::<Value>("k", "1").await.unwrap().is_some());
}

#[tokio::test]
async fn a_witness_shows_that_a_write_was_applied() {
    let (world, container) = world().await;
    drop_responses(&world, "create_item", 1).await;
    let witness = |id: &str, token: &str| ItemOptions::new().with_witness(id, "/token", token);
    let written = container.create_with("k", &document("1", "a"), &witness("1", "a")).await.unwrap();
    assert_eq!(written.receipt().diagnostics().resolution(), Some(Resolution::Witnessed));
    let read = container.read::<Value>("k", "1").await.unwrap();
    assert_eq!(read.etag().unwrap(), written.etag().unwrap());

    drop_responses(&world, "replace_item", 1).await;
    let unchanged = witness("1", "b").with_if_match(read.etag().unwrap());
    let written = container.replace_with("k", "1", &document("1", "b"), &unchanged).await.unwrap();
    assert_eq!(written.receipt().diagnostics().resolution(), Some(Resolution::Witnessed));

    drop_responses(&world, "batch", 1).await;
    let mut batch = Batch::new("k").with_witness("2", "/token", "c");
    batch
        .create(&document("2", "c"))
        .and_then(|batch| batch.patch("0", &Patch::new().increment("/n", 1)?))
        .unwrap();
    let results = container.batch(batch).await.unwrap();
    assert_eq!(results.receipt().diagnostics().resolution(), Some(Resolution::Witnessed));
    assert!(results.results().is_empty(), "there are results although the response was lost");
    assert_eq!(number(&container).await, 1);
}

#[tokio::test]
async fn a_write_whose_witness_is_not_found_is_reported_as_refused() {
    let (world, container) = world().await;
    container.create("k", &document("1", "theirs")).await.unwrap();
    // The first attempt does not arrive. The second attempt finds the other writer's
    // document.
    world.fault(r#"{"operation":"create_item","count":1,"drop":"before"}"#).await;
    let options = ItemOptions::new().with_witness("1", "/token", "ours");
    let refused = container.create_with("k", &document("1", "ours"), &options).await.unwrap_err();
    assert!(refused.is_conflict() && !refused.is_ambiguous(), "{refused}");

    let mut batch = Batch::new("k").with_witness("1", "/token", "ours");
    batch.create(&document("1", "ours")).unwrap();
    world.fault(r#"{"operation":"batch","count":1,"drop":"before"}"#).await;
    let refused = container.batch(batch).await.unwrap_err();
    assert!(refused.is_conflict(), "{refused}");
    assert_eq!(refused.operation_index(), Some(0));
}

#[tokio::test]
async fn a_repeated_deletion_that_finds_no_document_is_a_success() {
    let (world, container) = world().await;
    drop_responses(&world, "delete_item", 1).await;
    let deleted = container.delete("k", "0").await.unwrap();
    assert_eq!(deleted.receipt().diagnostics().resolution(), Some(Resolution::AlreadyGone));
    assert_eq!(deleted.receipt().status().code, 204);
}

#[tokio::test]
async fn throttled_operations_wait_and_are_retried() {
    let (world, container) = world().await;
    let throttled =
        r#"{"operation":"any","container":"c","count":3,"status":429,"subStatus":3200,"retryAfterMs":1}"#;
    world.fault(throttled).await;
    let read = container.read::<Value>("k", "0").await.unwrap();
    let throttles: u32 = read.receipt().diagnostics().attempts().map(|attempt| attempt.throttled).sum();
    assert_eq!(throttles, 3);
}
