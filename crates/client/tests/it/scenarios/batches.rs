//! Batches: all operations are applied or none, and an error has the index of the
//! refused operation.

use perihelion_client::{Batch, Container, ContainerProperties, Patch};
use serde_json::{Value, json};

use crate::account::TestAccount;

fn document(id: &str, n: u32) -> Value {
    json!({"id": id, "pk": "k", "n": n})
}

pub(crate) async fn scenario(account: &TestAccount) {
    let container = account.container(ContainerProperties::new("batches", "/pk")).await;
    all_operations_are_applied(&container).await;
    a_refused_batch_changes_no_document(&container).await;
    a_batch_of_the_largest_size_is_accepted(&container).await;
}

async fn all_operations_are_applied(container: &Container) {
    for (id, n) in [("replaced", 1), ("patched", 1), ("deleted", 1), ("read", 5)] {
        container.create("k", &document(id, n)).await.unwrap();
    }
    let etag = container.read::<Value>("k", "replaced").await.unwrap().etag().unwrap().clone();
    let mut batch = Batch::new("k");
    batch
        .create(&document("created", 1))
        .and_then(|batch| batch.upsert(&document("upserted", 1)))
        .and_then(|batch| batch.replace_if_match("replaced", &document("replaced", 2), &etag))
        .and_then(|batch| batch.patch("patched", &Patch::new().increment("/n", 4)?))
        .and_then(|batch| batch.delete("deleted"))
        .and_then(|batch| batch.read("read"))
        .unwrap();
    let results = container.batch(batch).await.unwrap();
    let statuses: Vec<u16> = results.into_iter().map(|result| result.status().code).collect();
    assert_eq!(statuses, [201, 201, 200, 200, 204, 200]);
    assert!(results.charge() > 0.0);
    assert!(results.into_iter().all(|result| result.charge() > 0.0));
    assert_eq!(results.get(5).unwrap().value::<Value>().unwrap()["n"], 5);
    assert_eq!(results.get(3).unwrap().value::<Value>().unwrap()["n"], 5);
    let replaced = container.read::<Value>("k", "replaced").await.unwrap();
    assert_eq!(results.get(2).unwrap().etag(), Some(replaced.etag().unwrap()));
    assert_eq!(replaced.value["n"], 2);
    assert!(container.find::<Value>("k", "deleted").await.unwrap().is_none());
}

async fn a_refused_batch_changes_no_document(container: &Container) {
    let before = container.read::<Value>("k", "replaced").await.unwrap();
    let stale = container.read::<Value>("k", "patched").await.unwrap().etag().unwrap().clone();
    container.upsert("k", &document("patched", 9)).await.unwrap();

    let mut batch = Batch::new("k");
    batch
        .replace("replaced", &document("replaced", 77))
        .and_then(|batch| batch.create(&document("never", 1)))
        .and_then(|batch| batch.delete_if_match("patched", &stale))
        .and_then(|batch| batch.create(&document("neither", 1)))
        .unwrap();
    let error = container.batch(batch).await.unwrap_err();
    assert!(error.is_precondition_failed(), "{error}");
    assert_eq!(error.operation_index(), Some(2));
    assert!(error.to_string().contains("delete `patched`"), "{error}");

    for absent in ["never", "neither"] {
        assert!(container.find::<Value>("k", absent).await.unwrap().is_none(), "{absent}");
    }
    let after = container.read::<Value>("k", "replaced").await.unwrap();
    assert_eq!(after.etag().unwrap(), before.etag().unwrap());

    let mut conflict = Batch::new("k");
    conflict.create(&document("fresh", 1)).and_then(|batch| batch.create(&document("replaced", 1))).unwrap();
    let error = container.batch(conflict).await.unwrap_err();
    assert!(error.is_conflict());
    assert_eq!(error.operation_index(), Some(1));

    let mut wrong_key = Batch::new("k");
    wrong_key.create(&json!({"id": "wrong-key", "pk": "another"})).unwrap();
    let error = container.batch(wrong_key).await.unwrap_err();
    assert_eq!((error.status().unwrap().code, error.operation_index()), (400, Some(0)));
    assert!(container.batch(Batch::new("k")).await.is_err(), "an empty batch was accepted");
}

async fn a_batch_of_the_largest_size_is_accepted(container: &Container) {
    let mut batch = Batch::new("many");
    for n in 0..Batch::OPERATIONS_MAX {
        batch.create(&json!({"id": n.to_string(), "pk": "many"})).unwrap();
    }
    let results = container.batch(batch).await.unwrap();
    assert_eq!(results.results().len(), 100);
    assert!(container.find::<Value>("many", "99").await.unwrap().is_some());
}
