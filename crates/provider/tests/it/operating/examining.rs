//! The findings of `CosmosDBProvider::examine`: the same objections as when a provider is opened,
//! and settings that make a provider more expensive than necessary.

use duroxide_cdb::{Check, CheckResult, CosmosDBProvider, container_properties};
use perihelion_client::{Client, ContainerProperties, IndexingPolicy};
use perihelion_server::{EmbeddedOptions, RegionNames};
use perihelion_testkit::TestServer;

/// The result, and the finding with the advice, of one subject.
fn found(checks: &[Check], subject: &str) -> (CheckResult, String) {
    let check = checks.iter().find(|check| check.subject == subject);
    let check = check.unwrap_or_else(|| panic!("nothing about {subject}: {checks:?}"));
    (check.result, format!("{} -> {}", check.finding, check.advice.as_deref().unwrap_or("no advice")))
}

async fn examine(client: &Client, container: &str) -> Vec<Check> {
    CosmosDBProvider::examine(client, "shop", container).await
}

async fn create(client: &Client, properties: &ContainerProperties) {
    let database = client.create_database_if_missing("shop").await.unwrap();
    database.create_container(properties).await.unwrap();
}

#[tokio::test]
async fn examine_finds_no_problem_in_a_container_of_a_provider() {
    let server = TestServer::in_process(EmbeddedOptions::default()).await;
    let client = server.client().await;
    let builder = CosmosDBProvider::builder().with_client(client.clone());
    builder.with_database("shop").with_container("workflows").open().await.unwrap().close().await;
    let checks = examine(&client, "workflows").await;
    assert!(checks.iter().all(|check| check.result == CheckResult::Ok), "{checks:?}");
    let subjects: Vec<&str> = checks.iter().map(|check| check.subject).collect();
    let expected = [
        "write regions",
        "container",
        "partition key",
        "time to live",
        "indexing policy",
        "throughput",
        "layout version",
        "distributed transactions",
    ];
    assert_eq!(subjects, expected);
}

#[tokio::test]
async fn a_missing_container_is_a_warning_and_is_not_created() {
    let server = TestServer::in_process(EmbeddedOptions::default()).await;
    let client = server.client().await;
    for _ in 0..2 {
        let (result, text) = found(&examine(&client, "nowhere").await, "container");
        assert_eq!(result, CheckResult::Warning, "{text}");
        assert!(text.contains("shop/nowhere does not exist"), "{text}");
    }
}

#[tokio::test]
async fn every_objection_of_opening_is_a_problem_with_advice() {
    let server = TestServer::in_process(EmbeddedOptions::default()).await;
    let client = server.client().await;
    let good = container_properties;
    let expiring = good("expiring").with_ttl(std::time::Duration::from_secs(60));
    let unindexed = good("unindexed").with_indexing_policy(IndexingPolicy::only(["/type/?"]));
    for (properties, subject, word) in [
        (ContainerProperties::new("foreign", "/customer"), "partition key", "/customer"),
        (expiring, "time to live", "60 seconds"),
        (unindexed, "indexing policy", "/visibleAt"),
    ] {
        create(&client, &properties).await;
        let (result, text) = found(&examine(&client, &properties.id).await, subject);
        assert_eq!(result, CheckResult::Problem, "{text}");
        assert!(text.contains(word) && !text.ends_with("no advice"), "{text}");
        let builder = CosmosDBProvider::builder().with_client(client.clone());
        let opened = builder.with_database("shop").with_container(&properties.id).open().await;
        assert!(opened.is_err(), "{subject}");
    }
}

#[tokio::test]
async fn a_foreign_indexing_policy_and_no_time_to_live_are_warnings() {
    let server = TestServer::in_process(EmbeddedOptions::default()).await;
    let client = server.client().await;
    create(&client, &ContainerProperties::new("plain", "/instanceId")).await;
    let few = IndexingPolicy::only(["/visibleAt/?", "/enq/?", "/madeAt/?"]);
    create(&client, &container_properties("few").with_indexing_policy(few)).await;
    for (container, subject, word) in [
        ("plain", "indexing policy", "every path"),
        ("plain", "time to live", "off"),
        ("few", "indexing policy", "/status"),
    ] {
        let (result, text) = found(&examine(&client, container).await, subject);
        assert_eq!(result, CheckResult::Warning, "{text}");
        assert!(text.contains(word), "{text}");
    }
}

#[tokio::test]
async fn an_account_with_several_write_regions_is_a_problem() {
    let regions = RegionNames::parse("West US,East US").unwrap();
    let options = EmbeddedOptions::default().with_regions(regions).with_multi_write(true);
    let server = TestServer::in_process(options).await;
    let (result, text) = found(&examine(&server.client().await, "workflows").await, "write regions");
    assert_eq!(result, CheckResult::Problem);
    assert!(text.contains("enableMultipleWriteLocations"), "{text}");
}
