//! A program written for the published crate, using all of it that programs
//! use. It is compiled against that crate and against ours, unchanged: what it
//! names must exist on both sides with types that fit.

use std::sync::Arc;
use std::time::Duration;

use duroxide::Client;
use duroxide::providers::{Provider, ProviderError};
use duroxide_cdb::client::{CosmosDBClient, CosmosDBResponse, QueryParameter};
use duroxide_cdb::{CosmosDBProvider, CosmosDBProviderConfig, OutboxFaultInjector};
use serde_json::{Value, json};

use super::steps::{Turn, begin, begin_with, start, take};
use super::world::{Broken, KEY, Outcome, World, ensure};

/// What the published crate's test helpers read, with their defaults.
fn variable(name: &str, default: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| default.to_owned())
}

/// Opens a provider in each of the three ways.
async fn opened(world: &World) -> Result<[CosmosDBProvider; 3], ProviderError> {
    let key = variable("COSMOS_KEY_OF_NOBODY", KEY);
    let database = variable("COSMOS_DATABASE_OF_NOBODY", "drop-in");
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

/// Every field, by name.
fn described(config: CosmosDBProviderConfig) -> String {
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

/// Spoils a history the way the published crate's validations do.
async fn spoil(documents: &CosmosDBClient, instance: &str) -> Outcome<usize> {
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

/// Compiled on both sides and run on both: a drop-in behaves alike.
pub(crate) async fn the_published_surface_works(world: World) -> Outcome {
    let default = CosmosDBProviderConfig::default();
    ensure!(described(default) == "||duroxide|duroxide|(1, 1)|(2s, 2s)", "other defaults");
    let refused: Result<CosmosDBClient, String> = CosmosDBClient::new("http://localhost", "%", "d", "c");
    ensure!(refused.is_err(), "a key that is not base64 was taken");
    let [first, second, mut third] = opened(&world).await?;
    ensure!(first.name() == "duroxide-cdb", "its name is {}", first.name());
    third.set_outbox_fault_injector(OutboxFaultInjector::fail_next(1));
    let turn = Turn { messages: vec![start("child")], ..Turn::of("parent", 1) };
    begin_with(&third, "parent", turn).await?;
    let child = take(&third).await?;
    ensure!(child.item.instance == "child", "{} came first", child.item.instance);

    let store: Arc<dyn Provider> = Arc::new(second.clone());
    begin(&*store, "order").await?;
    let status = Client::new(Arc::clone(&store)).get_orchestration_status("order").await;
    ensure!(status.is_ok(), "{:?}", status.err());
    let documents = CosmosDBClient::new(&world.endpoint(), KEY, "drop-in", "second").map_err(Broken)?;
    ensure!((documents.database(), documents.container()) == ("drop-in", "second"), "other names");
    ensure!(documents.endpoint() == world.endpoint(), "another endpoint");
    ensure!(spoil(&documents, "order").await? > 0, "there is no history");
    ensure!(store.read("order").await.is_err(), "a spoilt history was read");
    for provider in [first, second, third] {
        provider.cleanup().await?;
    }
    Ok(())
}
