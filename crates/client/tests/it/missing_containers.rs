//! Operations on documents of a container that does not exist. A missing container must not
//! look like a missing document.

use perihelion_client::{Error, Status};
use perihelion_driver::status;
use serde_json::{Value, json};

use crate::world::World;

const PARTITION_KEY: &str = r#"{"paths":["/pk"],"kind":"Hash","version":2}"#;

#[track_caller]
fn assert_container_missing(error: &Error, name: &str) {
    assert!(error.is_container_not_found() && error.is_not_found(), "{error:?}");
    assert_eq!(error.status(), Some(status::OWNER_RESOURCE_NOT_FOUND));
    assert!(error.message().contains(name), "{error}");
}

#[tokio::test]
async fn a_document_of_a_misspelt_container_is_an_error_and_not_none() {
    let world = World::new(2).await;
    let orders = world.container("orders", PARTITION_KEY).await;
    assert!(orders.find::<Value>("k", "1").await.unwrap().is_none(), "there is no such document");
    let missing = orders.read::<Value>("k", "1").await.unwrap_err();
    assert_eq!((missing.status(), missing.is_container_not_found()), (Some(Status::new(404, 0)), false));

    let misspelt = world.client.database("shop").container("ordres");
    assert_container_missing(&misspelt.find::<Value>("k", "1").await.unwrap_err(), "ordres");
    assert_container_missing(&misspelt.read_many::<Value>([("k", "1")]).await.unwrap_err(), "ordres");
    assert_container_missing(
        &misspelt.create("k", &json!({"id": "1", "pk": "k"})).await.unwrap_err(),
        "ordres",
    );
    let misspelt = world.client.database("shpo").container("orders");
    assert_container_missing(&misspelt.find::<Value>("k", "1").await.unwrap_err(), "shpo");
}

/// The client knows the container's metadata. Another client deletes the container, and the
/// service then answers reads of its documents with 404 and no sub-status.
#[tokio::test]
async fn a_document_of_a_container_that_another_client_has_deleted_is_an_error() {
    let world = World::new(2).await;
    let orders = world.container("orders", PARTITION_KEY).await;
    orders.create("k", &json!({"id": "1", "pk": "k"})).await.unwrap();
    assert!(orders.find::<Value>("k", "1").await.unwrap().is_some());
    assert!(orders.find::<Value>("k", "2").await.unwrap().is_none());

    let other = world.server().client().await;
    other.database("shop").container("orders").delete_container().await.unwrap();
    assert_container_missing(&orders.find::<Value>("k", "1").await.unwrap_err(), "orders");
    assert_container_missing(&orders.delete("k", "1").await.unwrap_err(), "orders");
    assert_container_missing(&orders.read_many::<Value>([("k", "1")]).await.unwrap_err(), "orders");

    world.container("orders", PARTITION_KEY).await;
    assert!(orders.find::<Value>("k", "1").await.unwrap().is_none(), "the new container is empty");
}
