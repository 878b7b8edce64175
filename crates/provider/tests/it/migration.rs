//! Containers of the published crate (`duroxide-cdb` 0.1.10): a provider refuses to open
//! them, the migration copies them, and every workflow in them completes. The container of
//! the tests was recorded with the published crate: see `interop/migration`.

mod finish;
mod fixture;
mod moving;
mod workflows;

use duroxide_cdb::CosmosDBProvider;
use perihelion_client::{Client, Container};
use perihelion_testkit::provider::{Account, AccountKind};
use serde_json::{Value, json};

use fixture::{DATABASE, Fixture};

/// The name of the recorded container.
const OLD: &str = "old";

/// The kinds of account for the two tests that run on both: the refusal and the
/// migration of the complete recorded container.
const ACCOUNTS: [AccountKind; 2] = [AccountKind::Embedded, AccountKind::WireWithFourPartitions];

/// An account with the recorded container, and that container.
async fn account_with_old_container(kind: AccountKind, fixture: &Fixture) -> (Account, Client, Container) {
    let account = Account::open(kind).await;
    let client = account.client().await;
    let old = fixture.restore(&client, OLD, |_| true).await;
    (account, client, old)
}

/// The error of opening a container; `None` if it opens.
async fn opening_error(client: &Client, container: &str) -> Option<String> {
    let builder = CosmosDBProvider::builder()
        .with_client(client.clone())
        .with_database(DATABASE)
        .with_container(container);
    match builder.open().await {
        Ok(provider) => {
            provider.close().await;
            None
        }
        Err(error) => {
            assert!(!error.is_retryable(), "{error}");
            Some(error.to_string())
        }
    }
}

/// All documents of a container, ordered by `_rid`.
async fn documents(container: &Container) -> Vec<Value> {
    let mut documents: Vec<Value> = container.query("SELECT * FROM c").collect().await.unwrap();
    documents.sort_by_key(|document| document["_rid"].to_string());
    documents
}

#[tokio::test]
async fn a_container_of_the_published_crate_is_refused_and_the_error_names_migrate() {
    let fixture = Fixture::read();
    for kind in ACCOUNTS {
        let (account, client, old) = account_with_old_container(kind, &fixture).await;
        let before = documents(&old).await;
        let why = opening_error(&client, OLD).await.expect("a refusal");
        assert!(why.contains("perihelion migrate --from shop/old --to shop/"), "{why}");
        assert_eq!(documents(&old).await, before, "{kind:?}: something was written");
        drop((client, old));
        account.stop().await;
    }
}

/// To recognise such a container, its indexing policy alone is enough, and so are the documents
/// of one type that only the published crate writes.
#[tokio::test]
async fn a_container_of_the_published_crate_is_recognised_by_index_or_documents() {
    let fixture = Fixture::read();
    let account = Account::open(AccountKind::Embedded).await;
    let client = account.client().await;
    let no_document = |_: &Value| false;
    fixture.restore(&client, "empty", no_document).await;
    fixture.restore(&client, "queued", |document| document["instanceId"] == "queued-1").await;
    for document_type in ["instance", "outbox_intent", "kv", "kv_delta"] {
        let name = document_type.replace('_', "-");
        fixture.restore_with_policy(&client, &name, None, |document| document["type"] == document_type).await;
        assert!(opening_error(&client, &name).await.is_some(), "{document_type}");
    }
    for name in ["empty", "queued"] {
        assert!(opening_error(&client, name).await.is_some(), "{name}");
    }
    fixture.restore_with_policy(&client, "plain", None, no_document).await;
    assert_eq!(opening_error(&client, "plain").await, None, "an empty container opens");
    assert_eq!(opening_error(&client, "new").await, None);
    assert_eq!(opening_error(&client, "new").await, None, "a container of this crate opens");
    drop(client);
    account.stop().await;
}

#[tokio::test]
async fn the_target_of_a_migration_is_refused_until_it_is_complete() {
    let account = Account::open(AccountKind::Embedded).await;
    let client = account.client().await;
    assert_eq!(opening_error(&client, "new").await, None);
    let container = client.database(DATABASE).container("new");
    let mut marker = json!({ "id": "migration", "instanceId": 0, "type": "migration", "status": "copying",
        "source": "shop/old" });
    container.create(0, &marker).await.unwrap();
    let why = opening_error(&client, "new").await.expect("a refusal");
    assert!(why.contains("is not finished") && why.contains("--to shop/new"), "{why}");
    marker["status"] = "done".into();
    container.replace(0, "migration", &marker).await.unwrap();
    assert_eq!(opening_error(&client, "new").await, None);
    drop((client, container));
    account.stop().await;
}
