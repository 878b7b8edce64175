//! Etags: a write only if the document is unchanged, a read only if it changed.

use perihelion_client::{ContainerProperties, Etag, ItemOptions, Patch};
use serde_json::{Value, json};

use crate::account::TestAccount;

pub(crate) async fn scenario(account: &TestAccount) {
    let container = account.container(ContainerProperties::new("conditions", "/pk")).await;
    let document = |n: u32| json!({"id": "1", "pk": "k", "n": n});
    let first = container.create("k", &document(1)).await.unwrap().etag().unwrap().clone();
    let only_first = ItemOptions::new().with_if_match(&first);
    let second =
        container.replace_with("k", "1", &document(2), &only_first).await.unwrap().etag().unwrap().clone();
    assert_ne!(first, second);

    let refusals = [
        container.replace_with("k", "1", &document(3), &only_first).await,
        container.upsert_with("k", &document(3), &only_first).await,
        container.patch_with("k", "1", &Patch::new().set("/n", 3).unwrap(), &only_first).await,
        container.delete_with("k", "1", &only_first).await,
    ];
    for refused in refusals {
        let error = refused.unwrap_err();
        assert!(error.is_precondition_failed(), "{error}");
        assert!(error.diagnostics().charge() > 0.0);
    }
    assert_eq!(container.read::<Value>("k", "1").await.unwrap().value["n"], 2);

    assert!(container.read_if_changed::<Value>("k", "1", &second).await.unwrap().is_none());
    let changed = container.read_if_changed::<Value>("k", "1", &first).await.unwrap().unwrap();
    assert_eq!(changed.etag().unwrap(), &second);
    let member = Etag::parse(changed.value["_etag"].as_str().unwrap()).unwrap();
    assert_eq!(member, second, "the member `_etag` is not the document's etag");

    let any = ItemOptions::new().with_if_match(&Etag::parse("*").unwrap());
    container.delete_with("k", "1", &any).await.unwrap();
    assert!(container.read_if_changed::<Value>("k", "1", &second).await.unwrap_err().is_not_found());
}
