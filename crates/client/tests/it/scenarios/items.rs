//! One document: create, read, replace, upsert and delete, with every kind of key
//! and every kind of failure.

use perihelion_client::{ContainerProperties, ErrorKind, ItemOptions, PartitionKey};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::account::TestAccount;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Order {
    id: String,
    customer: String,
    total: f64,
}

fn order(id: &str, total: f64) -> Order {
    Order { id: id.to_owned(), customer: "ada".to_owned(), total }
}

pub(crate) async fn scenario(account: &TestAccount) {
    a_document_is_created_changed_and_deleted(account).await;
    keys_and_ids_of_all_kinds_are_read_back(account).await;
    a_hierarchical_key_has_several_values(account).await;
    an_error_tells_its_kind(account).await;
    another_client_reads_what_a_session_token_covers(account).await;
}

async fn a_document_is_created_changed_and_deleted(account: &TestAccount) {
    let orders = account.container(ContainerProperties::new("orders", "/customer")).await;
    let created = orders.create("ada", &order("1", 1.5)).await.unwrap();
    assert!(created.is_new());
    assert!(created.charge() > 0.0, "{created:?}");
    assert!(created.receipt().session_token().is_some());

    let read = orders.read::<Order>("ada", "1").await.unwrap();
    assert_eq!(read.value, order("1", 1.5));
    assert_eq!(read.etag().unwrap(), created.etag().unwrap());
    assert!(read.charge() > 0.0);
    assert_eq!(read.receipt().diagnostics().attempts().count(), 1);

    let replaced = orders.replace("ada", "1", &order("1", 2.5)).await.unwrap();
    assert!(!replaced.is_new());
    assert_ne!(replaced.etag().unwrap(), created.etag().unwrap());
    assert_eq!(replaced.into_item::<Order>().unwrap().value.total, 2.5);

    let upserted = orders.upsert("ada", &order("1", 3.5)).await.unwrap();
    assert_eq!((upserted.is_new(), upserted.receipt().status().code), (false, 200));
    assert!(orders.upsert("ada", &order("2", 4.5)).await.unwrap().is_new());

    let no_content = ItemOptions::new().with_content_on_write(false);
    let written = orders.upsert_with("ada", &order("1", 5.5), &no_content).await.unwrap();
    assert!(written.body().is_empty() && written.etag().is_ok());
    assert!(written.into_item::<Order>().is_err());

    assert_eq!(orders.find::<Order>("ada", "1").await.unwrap().unwrap().into_value().total, 5.5);
    let deleted = orders.delete("ada", "1").await.unwrap();
    assert_eq!(deleted.receipt().status().code, 204);
    assert!(orders.find::<Order>("ada", "1").await.unwrap().is_none());
    assert!(orders.read::<Order>("ada", "1").await.unwrap_err().is_not_found());
    assert!(orders.delete("ada", "1").await.unwrap_err().is_not_found());
}

async fn keys_and_ids_of_all_kinds_are_read_back(account: &TestAccount) {
    let container = account.container(ContainerProperties::new("keys", "/pk")).await;
    let keys: [(PartitionKey, Option<Value>); 8] = [
        ("text".into(), Some(json!("text"))),
        ("Zoë \"☃\" 𝄞\n".into(), Some(json!("Zoë \"☃\" 𝄞\n"))),
        ("".into(), Some(json!(""))),
        (7.into(), Some(json!(7))),
        ((-0.5).into(), Some(json!(-0.5))),
        (true.into(), Some(json!(true))),
        (().into(), Some(Value::Null)),
        (PartitionKey::undefined(), None),
    ];
    for (key, member) in &keys {
        let mut document = json!({"id": "same id"});
        if let Some(member) = member {
            document["pk"] = member.clone();
        }
        container.create(key, &document).await.unwrap_or_else(|error| panic!("{key:?}: {error}"));
        let read = container.read::<Value>(key, "same id").await.unwrap();
        assert_eq!(read.value.get("pk"), member.as_ref());
    }
    for id in ["with space", "per%cent", "ünï", "a+b", "x:y@z", "semi;colon,comma"] {
        container
            .create("ids", &json!({"id": id, "pk": "ids"}))
            .await
            .unwrap_or_else(|error| panic!("{id}: {error}"));
        assert_eq!(container.read::<Value>("ids", id).await.unwrap().value["id"], id);
        container.delete("ids", id).await.unwrap_or_else(|error| panic!("{id}: {error}"));
    }
}

async fn a_hierarchical_key_has_several_values(account: &TestAccount) {
    let container = account.container(ContainerProperties::new("levels", ["/tenant", "/user"])).await;
    container.create(("eu", 7), &json!({"id": "1", "tenant": "eu", "user": 7})).await.unwrap();
    assert_eq!(container.read::<Value>(("eu", 7), "1").await.unwrap().value["user"], 7);
    assert!(container.find::<Value>(("eu", 8), "1").await.unwrap().is_none());
}

async fn an_error_tells_its_kind(account: &TestAccount) {
    let orders = account.database.container("orders");
    let conflict = orders.create("ada", &order("2", 0.0)).await.unwrap_err();
    assert!(conflict.is_conflict() && !conflict.is_not_found());
    assert_eq!(conflict.kind(), ErrorKind::Service);
    assert!(conflict.diagnostics().charge() > 0.0, "{conflict:?}");

    let mismatch = orders.create("bob", &order("3", 0.0)).await.unwrap_err();
    assert_eq!(mismatch.status(), Some(perihelion_driver::status::PARTITION_KEY_MISMATCH));

    let unreadable = orders.read::<Vec<u8>>("ada", "2").await.unwrap_err();
    assert_eq!(unreadable.kind(), ErrorKind::Answer);
    assert!(unreadable.message().contains("document `2`"), "{unreadable}");

    // The keys of this map are not texts, so it cannot be written as JSON.
    let unwritable: std::collections::HashMap<Vec<u8>, u8> = [(vec![1], 1)].into();
    assert_eq!(orders.create("ada", &unwritable).await.unwrap_err().kind(), ErrorKind::Input);
    assert_eq!(orders.read::<Order>("ada", "").await.unwrap_err().kind(), ErrorKind::Input);

    let nowhere = account.database.container("no such container");
    assert!(nowhere.read::<Order>("ada", "1").await.unwrap_err().is_not_found());
}

async fn another_client_reads_what_a_session_token_covers(account: &TestAccount) {
    let written = account.database.container("orders").upsert("ada", &order("9", 9.0)).await.unwrap();
    let token = written.receipt().session_token().unwrap();
    let other = account.another_client().await;
    let orders = other.database(account.database.name()).container("orders");
    let options = ItemOptions::new().with_session_token(token);
    let read = orders.read_with::<Order>("ada", "9", &options).await.unwrap();
    assert_eq!(read.etag().unwrap(), written.etag().unwrap());
}
