//! Operations that a transaction refuses before it sends a request, and errors of its runs.

use perihelion_wire::transport::{Failure, FailureKind, Request, Response, Sent, Transport};
use serde_json::json;

use super::*;
use crate::{Client, Patch};
use perihelion_server::{Embedded, EmbeddedOptions, InProcess};

/// A client of an account in this process.
async fn client() -> (Embedded, Client) {
    let embedded = Embedded::open(EmbeddedOptions::default()).await.unwrap();
    let client = Client::over(&embedded.endpoint(), embedded.transport()).await.unwrap();
    (embedded, client)
}

#[tokio::test]
async fn bad_operations_are_refused_when_they_are_added() {
    let (embedded, client) = client().await;
    let container = client.database("shop").container("orders");
    let mut transaction = client.write_transaction();
    let etag = Etag::parse("\"1\"").unwrap();
    for refused in [
        transaction.create(&container, "a", &json!({"pk": "a"})).err(),
        transaction.upsert(&container, "a", &json!({"id": 7})).err(),
        transaction.upsert_if_match(&container, "a", &json!([]), &etag).err(),
        transaction.replace(&container, "a", "1", &json!({"id": "2"})).err(),
        transaction.delete(&container, "a", "").err(),
        transaction.patch(&container, "a", "1", &Patch::new()).err(),
    ] {
        let error = refused.expect("the operation is refused");
        assert_eq!(error.kind(), crate::ErrorKind::Input, "{error}");
    }
    assert!(transaction.is_empty());
    let empty = transaction.commit().await.unwrap_err();
    assert!(empty.to_string().contains("at least one operation"), "{empty}");
    embedded.close().await;
}

#[tokio::test]
async fn a_hundred_and_first_operation_is_refused_unless_the_limits_are_off() {
    let (embedded, client) = client().await;
    let container = client.database("shop").container("orders");
    let mut transaction = client.write_transaction();
    for n in 0..DistributedWriteTransaction::OPERATIONS_MAX {
        transaction.delete(&container, "a", &n.to_string()).unwrap();
    }
    let error = transaction.delete(&container, "a", "one more").unwrap_err();
    assert!(error.message().contains("at most 100"), "{error}");
    assert_eq!(transaction.len(), 100);
    let mut transaction = transaction.with_limits(false);
    transaction.delete(&container, "a", "one more").unwrap();
    assert_eq!(transaction.len(), 101);
    embedded.close().await;
}

/// Loses the answers to all patches.
struct Lossy(InProcess);

impl Transport for Lossy {
    async fn send(&self, request: Request) -> Result<Response, Failure> {
        let is_patch = request.method == "PATCH";
        let answer = self.0.send(request).await;
        if is_patch {
            Err(Failure::new(FailureKind::Closed, Sent::Yes, "the answer was lost"))
        } else {
            answer
        }
    }
}

/// The ambiguous error comes from a patch outside of a transaction, so it has no idempotency token:
/// the token of the transaction is used.
#[tokio::test(start_paused = true)]
async fn an_ambiguous_error_makes_the_outcome_unknown() {
    let embedded = Embedded::open(EmbeddedOptions::default()).await.unwrap();
    let client = Client::over(&embedded.endpoint(), Lossy(embedded.transport())).await.unwrap();
    let database = client.create_database_if_missing("shop").await.unwrap();
    let container = database
        .create_container_if_missing(&crate::ContainerProperties::new("orders", "/pk"))
        .await
        .unwrap();
    let patch = Patch::new().increment("/n", 1).unwrap();
    let error = container.patch("a", "1", &patch).await.map(drop).unwrap_err();
    assert!(error.is_ambiguous() && error.diagnostics().idempotency_token().is_none(), "{error}");
    let first = client.write_transaction().idempotency_token();
    let TransactionError::OutcomeUnknown(unknown) = TransactionError::of_run(error, first) else {
        panic!("the outcome is unknown")
    };
    assert_eq!(unknown.idempotency_token(), first);
    let refused = TransactionError::of_run(Error::input("no"), first);
    assert!(matches!(refused, TransactionError::Failed(_)), "{refused:?}");
    embedded.close().await;
}
