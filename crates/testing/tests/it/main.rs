//! Tests as an application would write them, with its client and its workflows.

use std::sync::Arc;
use std::time::Duration;

use duroxide::runtime::registry::ActivityRegistry;
use duroxide::runtime::{OrchestrationStatus, Runtime};
use duroxide::{ActivityContext, Client, OrchestrationContext, OrchestrationRegistry};
use duroxide_cdb::{CosmosDBProvider, ListOptions};
use http::Method;
use perihelion_client::ContainerProperties;
use perihelion_testing::{AccountOptions, ServerOptions, TestServer, server};
use serde_json::{Value, json};

async fn orders(server: &TestServer) -> perihelion_client::Container {
    let client = perihelion_client::Client::connect(&server.connection_string()).await.unwrap();
    let shop = client.create_database_if_missing("shop").await.unwrap();
    shop.create_container_if_missing(&ContainerProperties::new("orders", "/customer")).await.unwrap()
}

#[tokio::test]
async fn every_test_has_a_server_of_its_own() {
    let (one, other) = (server().await, server().await);
    assert_ne!(one.endpoint(), other.endpoint());
    orders(&one).await.create("ada", &json!({"id": "1", "customer": "ada"})).await.unwrap();
    let found = orders(&other).await.find::<Value>("ada", "1").await.unwrap();
    assert!(found.is_none());
}

#[tokio::test]
async fn the_client_retries_a_request_that_meets_a_fault() {
    let server = server().await;
    let orders = orders(&server).await;
    server.fault(r#"{"operation":"create_item","count":2,"status":429,"retryAfterMs":1}"#).await;
    orders.create("ada", &json!({"id": "1", "customer": "ada"})).await.unwrap();
    let faults: Value = serde_json::from_str(&server.manage(Method::GET, "faults", "").await).unwrap();
    assert_eq!(faults["faults"][0]["hits"], 2);
}

#[tokio::test]
async fn the_port_is_closed_when_the_server_is_dropped() {
    let server = server().await;
    let address = server.endpoint().trim_start_matches("http://").trim_end_matches('/').to_owned();
    drop(tokio::net::TcpStream::connect(&address).await.unwrap());
    drop(server);
    assert!(tokio::net::TcpStream::connect(&address).await.is_err());
}

#[tokio::test]
async fn data_on_disk_is_there_after_a_restart() {
    let directory = std::env::temp_dir().join(format!("perihelion-testing-{}", std::process::id()));
    let account = AccountOptions { data: Some(directory.clone()), ..Default::default() };
    let options = ServerOptions { account, ..Default::default() };
    let first = TestServer::start(options.clone()).await;
    orders(&first).await.create("ada", &json!({"id": "1", "customer": "ada"})).await.unwrap();
    first.stop().await;
    let second = TestServer::start(options).await;
    assert!(orders(&second).await.find::<Value>("ada", "1").await.unwrap().is_some());
    second.stop().await;
    std::fs::remove_dir_all(directory).unwrap();
}

/// Starts a worker with the workflow of an application: the activity charges for the order, then the
/// workflow waits for the event with the address.
async fn start_worker(store: &Arc<CosmosDBProvider>) -> Arc<Runtime> {
    let charge = |_: ActivityContext, order: String| async move { Ok(format!("{order} paid")) };
    let activities = ActivityRegistry::builder().register("charge", charge).build();
    let order = |context: OrchestrationContext, order: String| async move {
        let paid = context.schedule_activity("charge", order).await?;
        context.set_custom_status("waits for the address");
        let address = context.schedule_wait("address").await;
        Ok(format!("{paid}, sent to {address}"))
    };
    let orchestrations = OrchestrationRegistry::builder().register("order", order).build();
    Runtime::start_with_store(store.clone(), activities, orchestrations).await
}

async fn open(server: &TestServer) -> Arc<CosmosDBProvider> {
    let builder = CosmosDBProvider::builder().with_connection_string(&server.connection_string());
    Arc::new(builder.open().await.unwrap())
}

#[tokio::test]
async fn a_workflow_survives_the_end_of_its_worker() {
    let server = server().await;
    let store = open(&server).await;
    let worker = start_worker(&store).await;
    Client::new(store.clone()).start_orchestration("order-1", "order", "lamp").await.unwrap();
    let is_waiting = async || {
        let found = store.list(&ListOptions::new().with_id("order-1")).await.unwrap();
        found.instances.first().is_some_and(|order| order.custom_status.is_some())
    };
    while !is_waiting().await {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    worker.shutdown(Some(0)).await;

    let store = open(&server).await;
    let _worker = start_worker(&store).await;
    let client = Client::new(store);
    client.raise_event("order-1", "address", "Oslo").await.unwrap();
    let status = client.wait_for_orchestration("order-1", Duration::from_secs(30)).await.unwrap();
    assert!(
        matches!(&status, OrchestrationStatus::Completed { output, .. } if output == "lamp paid, sent to Oslo"),
        "{status:?}"
    );
}
