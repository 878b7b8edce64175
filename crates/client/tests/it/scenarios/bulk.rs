//! Bulk: operations on many partition keys in few requests. Each operation has its own result.

use perihelion_client::{BulkOperation, BulkOptions, BulkResult, Container, ContainerProperties, Patch};
use serde_json::{Value, json};

use crate::account::TestAccount;

const DOCUMENTS: u64 = 400;

fn key(n: u64) -> String {
    format!("key-{}", n % 20)
}

fn document(n: u64, value: u64) -> Value {
    json!({"id": n.to_string(), "pk": key(n), "value": value})
}

pub(crate) async fn scenario(account: &TestAccount) {
    let container = account.container(ContainerProperties::new("bulk", "/pk")).await;
    results_have_the_order_of_the_input(&container).await;
    each_operation_has_its_own_result(&container).await;
    a_whole_hierarchical_key_is_needed(account).await;
}

async fn collect(mut bulk: perihelion_client::Bulk<'_>) -> Vec<BulkResult> {
    let mut results = Vec::new();
    while let Some(result) = bulk.next().await {
        results.push(result);
    }
    results
}

async fn results_have_the_order_of_the_input(container: &Container) {
    let operations = (0..DOCUMENTS).map(|n| BulkOperation::create(key(n), &document(n, 1)));
    let mut bulk = container.bulk(operations);
    let mut count = 0;
    while let Some(result) = bulk.next().await {
        assert_eq!(result.index(), count);
        let created = result.outcome().unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(created.status().code, 201);
        assert!(result.charge() > 0.0 && result.etag().is_some(), "{result:?}");
        assert!(created.body().is_empty(), "the result has a document that was not asked for");
        count += 1;
    }
    assert_eq!(count, DOCUMENTS);
    let totals = bulk.totals();
    assert_eq!((totals.operations, totals.failed_operations), (DOCUMENTS, 0));
    assert!(totals.charge > DOCUMENTS as f64, "{totals:?}");
    assert!(totals.requests < DOCUMENTS / 10, "{} requests for {DOCUMENTS} operations", totals.requests);

    let reads =
        collect(container.bulk((0..DOCUMENTS).map(|n| BulkOperation::read(key(n), &n.to_string())))).await;
    for (n, read) in (0..).zip(&reads) {
        let found: Value = read.value().unwrap();
        assert_eq!((found["id"].as_str(), found["value"].as_u64()), (Some(n.to_string().as_str()), Some(1)));
    }
    assert_eq!(reads.len() as u64, DOCUMENTS);
}

async fn each_operation_has_its_own_result(container: &Container) {
    let etag_of_0 = container.read::<Value>(key(0), "0").await.unwrap().etag().unwrap().clone();
    container.upsert(key(1), &document(1, 7)).await.unwrap();
    let etag_of_1 = container.read::<Value>(key(1), "1").await.unwrap().etag().unwrap().clone();
    let patch = Patch::new().increment("/value", 4).unwrap();
    // The keys of this map are not texts, so it cannot be written as JSON.
    let unwritable: std::collections::HashMap<Vec<u8>, u8> = [(vec![1], 1)].into();
    let operations = vec![
        BulkOperation::create(key(2), &document(2, 1)),
        BulkOperation::replace(key(0), "0", &document(0, 5)).map(|replace| replace.with_if_match(&etag_of_0)),
        // The etag of another document.
        BulkOperation::replace(key(1), "1", &document(1, 5)).map(|replace| replace.with_if_match(&etag_of_0)),
        BulkOperation::delete(key(1), "1").map(|delete| delete.with_if_match(&etag_of_1)),
        BulkOperation::delete(key(3), "no such document"),
        BulkOperation::create(key(3), &unwritable),
        BulkOperation::patch(key(4), "4", &patch),
        // The document has another partition key than the operation.
        BulkOperation::upsert("another key", &document(5, 1)),
        BulkOperation::upsert(key(5), &document(5, 8)),
        BulkOperation::delete(key(6), "6"),
    ];
    let options = BulkOptions::new().with_content_on_write(true);
    let results = collect(container.bulk_with(operations, options)).await;
    let statuses: Vec<Option<u16>> =
        results.iter().map(|result| result.status().map(|status| status.code)).collect();
    // An operation that was not sent has no status, written as 0 here.
    let expected = [409, 200, 412, 204, 404, 0, 200, 400, 200, 204].map(|code| (code != 0).then_some(code));
    assert_eq!(statuses, expected);
    let error = |index: usize| results[index].error().unwrap();
    assert!(error(0).is_conflict() && !error(0).is_ambiguous());
    assert!(error(2).is_precondition_failed() && error(4).is_not_found());
    assert!(error(4).to_string().contains("delete `no such document`"), "{}", error(4));
    assert!(error(5).cause().is_some_and(|cause| cause.message().contains("JSON")), "{}", error(5));
    assert_eq!(results[6].value::<Value>().unwrap()["value"], 5);
    let stored = container.read::<Value>(key(0), "0").await.unwrap();
    assert_eq!(results[1].etag(), Some(stored.etag().unwrap()));
    assert_eq!(stored.value["value"], 5);
    assert!(container.find::<Value>(key(1), "1").await.unwrap().is_none());
    assert!(container.find::<Value>(key(6), "6").await.unwrap().is_none());
}

async fn a_whole_hierarchical_key_is_needed(account: &TestAccount) {
    let properties = ContainerProperties::new("bulk-levels", ["/tenant", "/user"]);
    let container = account.container(properties).await;
    let document = json!({"id": "1", "tenant": "t", "user": "u"});
    let operations =
        vec![BulkOperation::create("t", &document), BulkOperation::create(("t", "u"), &document)];
    let results = collect(container.bulk(operations)).await;
    assert!(results[0].error().unwrap().to_string().contains("whole partition key"), "{:?}", results[0]);
    assert!(results[1].is_success(), "{:?}", results[1]);
}
