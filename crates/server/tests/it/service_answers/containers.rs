//! Containers: the progress of the index, the statistics of partitions, and which parts of a
//! definition the server keeps.

use perihelion_model::json::Value;
use perihelion_testkit::http_client::HttpRequest;

use crate::world::{PLAIN_CONTAINER, World, json};

#[tokio::test]
async fn a_container_reports_the_progress_of_its_index() {
    for mode in ["consistent", "none"] {
        let world = World::new(&format!(
            r#"{{"id":"c","partitionKey":{{"paths":["/pk"],"kind":"Hash"}},"indexingPolicy":{{"indexingMode":"{mode}"}}}}"#
        ))
        .await;
        let read = world.send(HttpRequest::new("GET", "/dbs/d/colls/c")).await;
        let progress = read.header("x-ms-documentdb-collection-index-transformation-progress");
        assert_eq!(progress, Some("100"));
        world.stop().await;
    }
}

#[tokio::test]
async fn partition_statistics_are_in_the_body_on_request() {
    let world = World::new(PLAIN_CONTAINER).await;
    world.create(r#"["a"]"#, r#"{"id":"1","pk":"a"}"#).await;
    let read = || HttpRequest::new("GET", "/dbs/d/colls/c");
    assert!(world.send(read()).await.json().unwrap().get("statistics").is_none());
    let asked = world.send(read().header("x-ms-documentdb-populatepartitionstatistics", "True")).await;
    let body = asked.json().unwrap();
    let statistics = body.get("statistics").and_then(Value::as_array).unwrap();
    assert_eq!(statistics.len(), 1);
    assert_eq!(statistics[0].get("documentCount").and_then(Value::as_i64), Some(1));
    world.stop().await;
}

#[tokio::test]
async fn the_version_of_a_key_is_kept_and_legacy_indexes_are_dropped() {
    let world = World::new(PLAIN_CONTAINER).await;
    let body = r#"{"id":"v","partitionKey":{"paths":["/pk"],"kind":"Hash","version":1},"indexingPolicy":
        {"includedPaths":[{"path":"/*","indexes":[{"kind":"Range","dataType":"String","precision":-1}]}],
        "excludedPaths":[{"path":"/x/*","indexes":[]}]}}"#;
    let created = world.send(HttpRequest::new("POST", "/dbs/d/colls").json(&json(body))).await;
    assert_eq!(created.status, 201, "{}", created.text());
    for answer in [created, world.send(HttpRequest::new("GET", "/dbs/d/colls/v")).await] {
        let body = answer.json().unwrap();
        let key = body.get("partitionKey").unwrap();
        assert_eq!(key.get("version").and_then(Value::as_i64), Some(1));
        assert!(!answer.text().contains("\"indexes\""), "{}", answer.text());
    }
    world.stop().await;
}
