//! Distributed transactions: writes to two containers are applied together or not at all, reads
//! come from one snapshot, and all commits with one idempotency token have the same outcome.

use perihelion_client::{Container, ContainerProperties, Error, Patch, TransactionError};
use serde_json::{Value, json};

use crate::account::TestAccount;

fn document(key: &str, id: &str, n: u32) -> Value {
    json!({"id": id, "pk": key, "n": n})
}

pub(crate) async fn scenario(account: &TestAccount) {
    let orders = account.container(ContainerProperties::new("transaction-orders", "/pk")).await;
    let stock = account.container(ContainerProperties::new("transaction-stock", "/pk")).await;
    all_writes_are_applied(account, &orders, &stock).await;
    an_aborted_transaction_changes_no_document(account, &orders, &stock).await;
    reads_show_one_snapshot(account, &orders, &stock).await;
    a_token_has_one_outcome(account, &orders, &stock).await;
}

async fn all_writes_are_applied(account: &TestAccount, orders: &Container, stock: &Container) {
    for (key, id) in [("p", "patched"), ("r", "replaced"), ("d", "deleted")] {
        stock.create(key, &document(key, id, 1)).await.unwrap();
    }
    let etag = stock.read::<Value>("r", "replaced").await.unwrap().etag().unwrap().clone();
    let mut transaction = account.client.write_transaction();
    let patch = Patch::new().increment("/n", 4).unwrap().with_condition("FROM c WHERE c.n = 1");
    transaction
        .create(orders, "c", &document("c", "created", 1))
        .and_then(|transaction| transaction.upsert(orders, "u", &document("u", "upserted", 1)))
        .and_then(|transaction| {
            transaction.replace_if_match(stock, "r", "replaced", &document("r", "replaced", 2), &etag)
        })
        .and_then(|transaction| transaction.patch(stock, "p", "patched", &patch))
        .and_then(|transaction| transaction.delete(stock, "d", "deleted"))
        .unwrap();
    let done = transaction.commit().await.unwrap();
    let statuses: Vec<u16> = (&done).into_iter().map(|result| result.status().code).collect();
    assert_eq!(statuses, [201, 201, 200, 200, 204]);
    assert!(done.charge() > 0.0 && (&done).into_iter().all(|result| result.charge() > 0.0));
    // Plain reads of this client see the writes, and the etags are those of the documents.
    let created = orders.read::<Value>("c", "created").await.unwrap();
    assert_eq!(done.get(0).unwrap().etag(), Some(created.etag().unwrap()));
    assert_eq!(stock.read::<Value>("p", "patched").await.unwrap().value["n"], 5);
    assert_eq!(stock.read::<Value>("r", "replaced").await.unwrap().value["n"], 2);
    assert!(stock.find::<Value>("d", "deleted").await.unwrap().is_none());
}

async fn an_aborted_transaction_changes_no_document(
    account: &TestAccount,
    orders: &Container,
    stock: &Container,
) {
    let mut transaction = account.client.write_transaction();
    let unmet_patch = Patch::new().increment("/n", 1).unwrap().with_condition("FROM c WHERE c.n > 1000");
    transaction
        .create(orders, "a", &document("a", "aborted", 1))
        .and_then(|transaction| transaction.patch(stock, "p", "patched", &unmet_patch))
        .unwrap();
    let error = transaction.commit().await.unwrap_err();
    let TransactionError::Aborted(aborted) = &error else { panic!("{error:?}") };
    let statuses: Vec<u16> = aborted.results().into_iter().map(|result| result.status().code).collect();
    // 453: the create was rolled back, because the patch failed.
    assert_eq!(statuses, [453, 412]);
    assert_eq!(aborted.culprits().map(|(index, _)| index).collect::<Vec<_>>(), [1]);
    let error = Error::from(error);
    assert!(error.is_precondition_failed() && error.operation_index() == Some(1), "{error}");
    assert!(orders.find::<Value>("a", "aborted").await.unwrap().is_none());
    assert_eq!(stock.read::<Value>("p", "patched").await.unwrap().value["n"], 5);
}

async fn reads_show_one_snapshot(account: &TestAccount, orders: &Container, stock: &Container) {
    let mut transaction = account.client.read_transaction();
    transaction.read(orders, "c", "created").and_then(|reads| reads.read(stock, "p", "patched")).unwrap();
    let read = transaction.execute().await.unwrap();
    assert_eq!(read.get(0).unwrap().value::<Value>().unwrap()["n"], 1);
    assert_eq!(read.get(1).unwrap().value::<Value>().unwrap()["n"], 5);
    let (first, second) = (read.get(0).unwrap().etag().unwrap(), read.get(1).unwrap().etag().unwrap());

    let mut some = account.client.read_transaction();
    some.read_if_changed(orders, "c", "created", first)
        .and_then(|reads| reads.read(stock, "p", "patched"))
        .unwrap();
    let some = some.execute().await.unwrap();
    assert!(some.get(0).unwrap().is_unchanged() && !some.get(1).unwrap().is_unchanged());
    let mut all = account.client.read_transaction();
    all.read_if_changed(orders, "c", "created", first)
        .and_then(|reads| reads.read_if_changed(stock, "p", "patched", second))
        .unwrap();
    assert!((&all.execute().await.unwrap()).into_iter().all(|result| result.is_unchanged()));

    let mut missing = account.client.read_transaction();
    missing.read(orders, "c", "created").and_then(|reads| reads.read(stock, "p", "nothing")).unwrap();
    let error = Error::from(missing.execute().await.unwrap_err());
    assert!(error.is_not_found() && error.operation_index() == Some(1), "{error}");
}

async fn a_token_has_one_outcome(account: &TestAccount, orders: &Container, stock: &Container) {
    let mut transaction = account.client.write_transaction();
    transaction
        .create(orders, "t", &document("t", "once", 1))
        .and_then(|transaction| transaction.patch(stock, "p", "patched", &Patch::new().increment("/n", 1)?))
        .unwrap();
    let first = transaction.commit().await.unwrap();
    let second = transaction.commit().await.unwrap();
    assert_eq!(first.get(0).unwrap().etag(), second.get(0).unwrap().etag());
    assert_eq!(first.idempotency_token(), second.idempotency_token());
    assert_eq!(stock.read::<Value>("p", "patched").await.unwrap().value["n"], 6);
}
