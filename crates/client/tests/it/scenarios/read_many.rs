//! Reading many documents: in the order of the caller, with few requests, across a
//! split.

use perihelion_client::{ContainerProperties, ErrorKind, PartitionKey};
use serde::Deserialize;
use serde_json::json;

use crate::account::TestAccount;

#[derive(Debug, Clone, PartialEq, Deserialize)]
struct Document {
    id: String,
    n: u32,
}

pub(crate) async fn scenario(account: &TestAccount) {
    documents_come_in_the_order_of_the_caller(account).await;
    documents_with_the_same_id_are_distinguished_by_key(account).await;
    a_split_does_not_change_the_result(account).await;
}

async fn documents_come_in_the_order_of_the_caller(account: &TestAccount) {
    let container = account.container(ContainerProperties::new("many", "/pk")).await;
    let key = |n: u32| format!("key-{}", n % 16);
    for n in 0..64 {
        container.create(key(n), &json!({"id": format!("id-{n}"), "pk": key(n), "n": n})).await.unwrap();
    }
    let requested: Vec<u32> = (0..80).rev().collect();
    let found = container
        .read_many::<Document>(requested.iter().map(|n| (key(*n), format!("id-{n}"))))
        .await
        .unwrap();
    assert_eq!(found.items.len(), 80);
    for (n, item) in requested.iter().zip(&found.items) {
        assert_eq!(item.as_ref().map(|document| document.n), (*n < 64).then_some(*n));
    }
    let partitions = container.feed_ranges().await.unwrap().len();
    assert!(found.requests() <= partitions, "{} requests, {partitions} partitions", found.requests());
    assert!(found.charge() > 0.0);

    let one = container.read_many::<Document>([("key-3", "id-3")]).await.unwrap();
    assert_eq!((one.items[0].as_ref().unwrap().n, one.requests()), (3, 1));
    let none = container.read_many::<Document>([("key-3", "absent")]).await.unwrap();
    assert!(none.items[0].is_none() && none.charge() > 0.0);
    let nothing = container.read_many::<Document>(Vec::<(&str, &str)>::new()).await.unwrap();
    assert_eq!((nothing.items.len(), nothing.requests()), (0, 0));
    let elsewhere = container.read_many::<Document>([("key-3", "id-4"), ("key-4", "id-3")]).await.unwrap();
    assert_eq!(elsewhere.items, [None, None], "a document was found under the wrong partition key");
}

async fn documents_with_the_same_id_are_distinguished_by_key(account: &TestAccount) {
    let container = account.container(ContainerProperties::new("odd", "/a/b")).await;
    let keys: [(PartitionKey, serde_json::Value); 7] = [
        ("x".into(), json!({"b": "x"})),
        (7.into(), json!({"b": 7})),
        // No double is equal to this integer.
        (9_007_199_254_740_993_i64.into(), json!({"b": 9_007_199_254_740_993_i64})),
        (true.into(), json!({"b": true})),
        (().into(), json!({"b": null})),
        (PartitionKey::undefined(), json!({})),
        ("it's \"odd\" ☃".into(), json!({"b": "it's \"odd\" ☃"})),
    ];
    for (n, (key, member)) in keys.iter().enumerate() {
        for id in ["same", "other"] {
            container.create(key, &json!({"id": id, "n": n, "a": member})).await.unwrap();
        }
    }
    let requested = keys.iter().flat_map(|(key, _)| [(key, "same"), (key, "other"), (key, "same")]);
    let found = container.read_many::<Document>(requested).await.unwrap();
    for (index, item) in found.items.iter().enumerate() {
        let (n, id) = (index as u32 / 3, if index % 3 == 1 { "other" } else { "same" });
        assert_eq!(item.as_ref(), Some(&Document { id: id.to_owned(), n }), "item {index}");
    }

    let levels = account.container(ContainerProperties::new("odd-levels", ["/t", "/u"])).await;
    for u in 0..4 {
        levels.create(("t", u), &json!({"id": "1", "t": "t", "u": u, "n": u})).await.unwrap();
    }
    let found = levels.read_many::<Document>((0..4).map(|u| (("t", u), "1"))).await.unwrap();
    let numbers: Vec<Option<u32>> = found.items.iter().map(|item| item.as_ref().map(|item| item.n)).collect();
    assert_eq!(numbers, [Some(0), Some(1), Some(2), Some(3)]);
    let prefix = levels.read_many::<Document>([("t", "1"), ("t", "2")]).await.unwrap_err();
    assert_eq!(prefix.kind(), ErrorKind::Input);
}

async fn a_split_does_not_change_the_result(account: &TestAccount) {
    let container = account.database.container("many");
    // Most of these documents do not exist. One call may refresh the list of partitions only a
    // few times, and the partition that is split refuses more requests than that. So the
    // requests that were sent with the same list must share one refresh.
    let requested = || (0..4000).map(|n| (format!("key-{}", n % 16), format!("id-{n}")));
    let before = container.read_many::<Document>(requested()).await.unwrap();
    if !account.split(&container).await {
        return;
    }
    let after = container.read_many::<Document>(requested()).await.unwrap();
    assert_eq!(before.items, after.items);
    assert_eq!(after.items.iter().filter(|item| item.is_some()).count(), 64);
}
