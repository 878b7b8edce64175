//! A program written for the published crate that uses all of its public items. It is
//! compiled unchanged with the published crate and with ours, so every name and type has to
//! exist in both.

use std::sync::Arc;
use std::time::Duration;

use duroxide::Client;
use duroxide::providers::{Provider, ProviderError};
use duroxide_cdb::client::{
    BatchOperation, BatchOperationResult, CosmosDBClient, CosmosDBResponse, QueryParameter,
};
use duroxide_cdb::{CosmosDBProvider, CosmosDBProviderConfig, OutboxFaultInjector};
use serde_json::{Value, json};

use super::steps::{Turn, begin_instance, begin_instance_with, fetch, start};
use super::world::{CaseFailure, KEY, Outcome, World, ensure};

/// The value of an environment variable or a default, as the published crate's test helpers
/// read it.
fn variable(name: &str, default: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| default.to_owned())
}

/// Opens a provider in each of the three ways that the published crate has.
async fn open_all(world: &World) -> Result<[CosmosDBProvider; 3], ProviderError> {
    // These two variables are never set, so the defaults apply.
    let key = variable("COSMOS_KEY_THAT_IS_NOT_SET", KEY);
    let database = variable("COSMOS_DATABASE_THAT_IS_NOT_SET", "drop-in");
    let endpoint = world.endpoint();
    let first = CosmosDBProvider::new(&endpoint, &key, &database).await?;
    let second = CosmosDBProvider::new_with_container(&endpoint, &key, &database, "second").await?;
    let third = CosmosDBProvider::new_with_config(CosmosDBProviderConfig {
        endpoint,
        key,
        database,
        container: "third".to_string(),
        reconciler_interval: Duration::from_millis(500),
        reconciler_age_threshold: Duration::from_millis(200),
        ..Default::default()
    })
    .await?;
    Ok([first, second, third])
}

/// All fields of the configuration as text. The function names every field, so that each has
/// to exist.
fn config_text(config: CosmosDBProviderConfig) -> String {
    let CosmosDBProviderConfig {
        endpoint,
        key,
        database,
        container,
        orch_concurrency,
        worker_concurrency,
        reconciler_interval,
        reconciler_age_threshold,
    } = config.clone();
    let times: (Duration, Duration) = (reconciler_interval, reconciler_age_threshold);
    let counts: (u32, u32) = (orch_concurrency, worker_concurrency);
    assert!(!format!("{config:?}").is_empty());
    format!("{endpoint}|{key}|{database}|{container}|{counts:?}|{times:?}")
}

/// Corrupts a history as the published crate's validations do. Returns the number of documents
/// of the history.
async fn corrupt_history(documents: &CosmosDBClient, instance: &str) -> Outcome<usize> {
    let text = "SELECT * FROM c WHERE c.instanceId = @instanceId AND c.type = 'history'";
    let parameters = vec![QueryParameter::new("@instanceId", json!(instance))];
    let named: Vec<(String, Value)> =
        parameters.iter().map(|parameter| (parameter.name.clone(), parameter.value.clone())).collect();
    ensure!(named == [("@instanceId".to_owned(), json!(instance))], "{named:?}");
    let rows: Vec<Value> = documents.query(text, parameters, Some(instance)).await?;
    for row in &rows {
        let mut row = row.clone();
        ensure!(row["eventData"].is_string(), "a history document has no eventData: {row}");
        row["eventData"] = Value::String("{{not valid json".to_owned());
        let id = row["id"].as_str().unwrap_or_default().to_owned();
        let answer: CosmosDBResponse = documents.replace_document(&id, instance, &row, None).await?;
        ensure!(answer.is_success() && answer.etag.is_some(), "{} {}", answer.status, answer.body);
        let stale = documents.replace_document(&id, instance, &row, Some("\"stale\"")).await?;
        ensure!(stale.status == 412 && !stale.is_success(), "{} {}", stale.status, stale.body);
    }
    Ok(rows.len())
}

/// Uses every method of the document client, on a container of its own.
async fn use_every_method(documents: &CosmosDBClient) -> Outcome {
    documents.ensure_database().await?;
    documents.ensure_container(None).await?;
    documents.ensure_container(Some(json!({ "indexingMode": "consistent" }))).await?;
    let document = |id: &str, total: u32| json!({ "id": id, "instanceId": "a", "total": total });
    let created = documents.create_document("a", &document("1", 1)).await?;
    ensure!(created.status == 201 && created.body.contains("total"), "{} {}", created.status, created.body);
    ensure!(documents.create_document("a", &document("1", 1)).await?.status == 409, "created twice");
    ensure!(documents.upsert_document("a", &document("2", 2)).await?.status == 201, "not created");
    let etag = documents.upsert_document("a", &document("2", 3)).await?.etag;
    ensure!(documents.read_document("2", "a").await?.etag == etag, "the etag differs");
    let operations = vec![
        BatchOperation::Create { body: document("3", 4) },
        BatchOperation::Upsert { body: document("3", 5) },
        BatchOperation::Replace { id: "2".to_owned(), body: document("2", 6), if_match: etag.clone() },
        BatchOperation::Read { id: "2".to_owned() },
        BatchOperation::Delete { id: "1".to_owned() },
    ];
    let kind = &operations[2].to_json()["operationType"];
    ensure!(*kind == "Replace", "the operation is called {kind}");
    let done: Vec<BatchOperationResult> = documents.transactional_batch("a", operations).await?;
    let codes: Vec<u16> = done.iter().map(|result| result.status_code).collect();
    ensure!(codes == [201, 200, 200, 200, 204], "{codes:?}");
    ensure!(
        done[3].resource_body.as_deref().is_some_and(|body| body.contains("\"total\":6")),
        "{:?}",
        done[3]
    );
    let stale = BatchOperation::Replace { id: "2".to_owned(), body: document("2", 7), if_match: etag };
    let refused = documents.transactional_batch("a", vec![stale]).await;
    ensure!(refused.as_ref().is_err_and(ProviderError::is_retryable), "{refused:?}");
    ensure!(documents.delete_document("1", "a").await?.status == 404, "a deleted document was found");
    ensure!(documents.delete_document("3", "a").await?.status == 204, "the document was not found");
    documents.delete_container().await?;
    documents.delete_container().await?;
    Ok(())
}

/// Compiles only if the types at these module paths are the types at the crate's root.
fn same_types(
    provider: duroxide_cdb::provider::CosmosDBProvider,
    config: duroxide_cdb::provider::CosmosDBProviderConfig,
    injector: duroxide_cdb::outbox::OutboxFaultInjector,
) -> (CosmosDBProvider, CosmosDBProviderConfig, OutboxFaultInjector) {
    (provider, config, injector)
}

/// This case passes with both crates, because a drop-in replacement behaves like the original.
pub(crate) async fn the_published_surface_works(world: World) -> Outcome {
    let default = CosmosDBProviderConfig::default();
    ensure!(config_text(default) == "||duroxide|duroxide|(1, 1)|(2s, 2s)", "the defaults differ");
    let refused: Result<CosmosDBClient, String> = CosmosDBClient::new("http://localhost", "%", "d", "c");
    ensure!(refused.is_err(), "a key that is not base64 was taken");
    let [first, second, mut third] = open_all(&world).await?;
    ensure!(first.name() == "duroxide-cdb", "the provider's name is {}", first.name());
    let (first, _, injector) = same_types(first, world.config(), OutboxFaultInjector::fail_next(1));
    third.set_outbox_fault_injector(injector);
    let turn = Turn { messages: vec![start("child")], ..Turn::of("parent", 1) };
    begin_instance_with(&third, "parent", turn).await?;
    let child = fetch(&third).await?;
    ensure!(child.item.instance == "child", "{} came first", child.item.instance);

    let store: Arc<dyn Provider> = Arc::new(second.clone());
    begin_instance(&*store, "order").await?;
    let status = Client::new(Arc::clone(&store)).get_orchestration_status("order").await;
    ensure!(status.is_ok(), "{:?}", status.err());
    let documents = CosmosDBClient::new(&world.endpoint(), KEY, "drop-in", "second").map_err(CaseFailure)?;
    ensure!((documents.database(), documents.container()) == ("drop-in", "second"), "the names differ");
    ensure!(documents.endpoint() == world.endpoint(), "the endpoint differs");
    ensure!(corrupt_history(&documents, "order").await? > 0, "there is no history");
    ensure!(store.read("order").await.is_err(), "a corrupted history was read");
    let documents =
        CosmosDBClient::new(&world.endpoint(), KEY, "documents", "of-its-own").map_err(CaseFailure)?;
    use_every_method(&documents).await?;
    for provider in [first, second, third] {
        provider.cleanup().await?;
    }
    Ok(())
}
