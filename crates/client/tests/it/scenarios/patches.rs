//! Partial updates: each operation, their order, conditions, refusals.

use perihelion_client::{ContainerProperties, Patch};
use serde_json::{Value, json};

use crate::account::TestAccount;

pub(crate) async fn scenario(account: &TestAccount) {
    let container = account.container(ContainerProperties::new("patches", "/pk")).await;
    let document = json!({"id": "1", "pk": "k", "n": 1, "f": 0.5, "list": [1, 2], "old": "x", "gone": true});
    let created = container.create("k", &document).await.unwrap();

    let patch = Patch::new()
        .set("/n", 7)
        .and_then(|patch| patch.increment("/n", 3))
        .and_then(|patch| patch.increment("/f", 0.25))
        .and_then(|patch| patch.increment("/counter", 1))
        .and_then(|patch| patch.add("/list/-", 3))
        .and_then(|patch| patch.add("/list/0", 0))
        .and_then(|patch| patch.replace("/list/1", "one"))
        .and_then(|patch| patch.move_to("/old", "/new"))
        .and_then(|patch| patch.remove("/gone"))
        .and_then(|patch| patch.set("/nested", json!({"a": [null]})))
        .unwrap();
    let patched = container.patch("k", "1", &patch).await.unwrap();
    assert!(patched.charge() > 0.0);
    assert_ne!(patched.etag().unwrap(), created.etag().unwrap());
    let value = patched.into_item::<Value>().unwrap().into_value();
    assert_eq!(value["n"], 10);
    assert_eq!(value["f"], 0.75);
    assert_eq!(value["counter"], 1);
    assert_eq!(value["list"], json!([0, "one", 2, 3]));
    assert_eq!(value["new"], "x");
    assert!(value.get("old").is_none() && value.get("gone").is_none());
    assert_eq!(value["nested"], json!({"a": [null]}));

    let increment_if = |condition: &str| Patch::new().increment("/n", 1).unwrap().with_condition(condition);
    let refused = container.patch("k", "1", &increment_if("FROM c WHERE c.n > 10")).await.unwrap_err();
    assert!(refused.is_precondition_failed(), "{refused}");
    let applied = container.patch("k", "1", &increment_if("FROM c WHERE c.n = 10")).await.unwrap();
    assert_eq!(applied.into_item::<Value>().unwrap().value["n"], 11);

    let impossible = Patch::new().set("/n", 99).and_then(|patch| patch.remove("/absent")).unwrap();
    assert_eq!(container.patch("k", "1", &impossible).await.unwrap_err().status().unwrap().code, 400);
    assert_eq!(
        container.read::<Value>("k", "1").await.unwrap().value["n"],
        11,
        "a refused patch was applied in part"
    );
    let set = Patch::new().set("/n", 1).unwrap();
    assert!(container.patch("k", "absent", &set).await.unwrap_err().is_not_found());
}
