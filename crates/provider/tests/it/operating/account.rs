//! Accounts and containers that a provider refuses, and its error texts.

use std::time::Duration;

use duroxide_cdb::CosmosDBProvider;
use perihelion_client::{ContainerProperties, IndexingPolicy, TimeToLive};
use perihelion_server::{EmbeddedOptions, RegionNames};
use perihelion_testkit::TestServer;

/// Two write regions may both accept a commit under the same etag.
#[tokio::test]
async fn a_multi_write_account_is_refused_with_the_reason() {
    let regions = RegionNames::parse("West US,East US").unwrap();
    for is_multi_write in [false, true] {
        let options =
            EmbeddedOptions::default().with_regions(regions.clone()).with_multi_write(is_multi_write);
        let server = TestServer::in_process(options).await;
        let opened = CosmosDBProvider::builder().with_client(server.client().await).open().await;
        match (is_multi_write, opened) {
            (false, Ok(provider)) => provider.close().await,
            (true, Err(error)) => {
                assert!(!error.is_retryable(), "{error}");
                for word in ["West US", "East US", "etag", "enableMultipleWriteLocations"] {
                    assert!(error.message.contains(word), "{error}");
                }
            }
            (_, opened) => panic!("{is_multi_write}: {opened:?}"),
        }
        server.stop().await;
    }
}

/// Tombstones and retention need documents that expire. A default time to live would
/// remove waiting workflows.
#[tokio::test]
async fn time_to_live_is_switched_on_and_a_default_expiry_is_refused() {
    let server = TestServer::in_process(EmbeddedOptions::default()).await;
    let client = server.client().await;
    let database = client.create_database_if_missing("shop").await.unwrap();
    let off = ContainerProperties::new("off", "/instanceId");
    let hour = ContainerProperties::new("hour", "/instanceId").with_ttl(Duration::from_secs(3600));
    let open = |name: &str| {
        let builder = CosmosDBProvider::builder().with_client(client.clone());
        builder.with_database("shop").with_container(name).open()
    };

    let container = database.create_container(&off).await.unwrap();
    assert_eq!(container.properties().await.unwrap().ttl, None);
    open("off").await.unwrap();
    assert_eq!(container.properties().await.unwrap().ttl, Some(TimeToLive::PerItem));

    database.create_container(&hour).await.unwrap();
    let error = open("hour").await.unwrap_err();
    assert!(error.message.contains("3600 seconds") && !error.is_retryable(), "{error}");

    // Without the right to switch time to live on, the provider still runs. Its first two
    // requests on the container are reads, which the first rule only delays. The second rule
    // refuses the third request, which switches time to live on.
    database.create_container(&ContainerProperties::new("locked", "/instanceId")).await.unwrap();
    let forbidden = r#"{"operation":"container","container":"locked","status":403,"count":1}"#;
    let open = open("locked");
    let reads_first = r#"{"operation":"container","container":"locked","delayMs":1,"count":2}"#;
    for rule in [reads_first, forbidden] {
        server.fault(rule).await;
    }
    open.await.unwrap();
    let locked = client.database("shop").container("locked");
    assert_eq!(locked.properties().await.unwrap().ttl, None);
}

/// A container with another partition key belongs to another program. Without the indexes
/// the service refuses every fetch.
#[tokio::test]
async fn a_foreign_container_is_refused_with_the_reason() {
    let server = TestServer::in_process(EmbeddedOptions::default()).await;
    let client = server.client().await;
    let database = client.create_database_if_missing("shop").await.unwrap();
    let ours =
        |name: &str, policy| ContainerProperties::new(name, "/instanceId").with_indexing_policy(policy);
    for (properties, words) in [
        (ContainerProperties::new("orders", "/customer"), ["/customer", "/instanceId"]),
        (ours("nothing", IndexingPolicy::none()), ["/enq", "docs/provider.md"]),
        (
            ours("some", IndexingPolicy::only(["/type/?", "/enq/?"])),
            ["/visibleAt and /madeAt,", "by default"],
        ),
    ] {
        database.create_container(&properties).await.unwrap();
        let builder = CosmosDBProvider::builder().with_client(client.clone());
        let opened = builder.with_database("shop").with_container(&properties.id).open().await;
        let error = opened.expect_err("the container is refused");
        assert!(error.message.contains(&format!("shop/{}", properties.id)), "{error}");
        assert!(words.iter().all(|word| error.message.contains(word)) && !error.is_retryable(), "{error}");
    }
    server.stop().await;
}

/// An Entra ID identity may read and write documents but not create containers.
#[tokio::test]
async fn without_the_right_to_create_the_container_the_error_says_what_to_do() {
    let server = TestServer::in_process(EmbeddedOptions::default()).await;
    let client = server.client().await;
    let forbidden = r#"{"operation":"database","status":403,"count":1}"#;
    server.fault(forbidden).await;
    let error = CosmosDBProvider::builder().with_client(client).open().await.unwrap_err();
    for word in ["duroxide/duroxide", "403", "/instanceId", "time to live -1"] {
        assert!(error.message.contains(word), "{error}");
    }
    assert!(!error.is_retryable(), "{error}");
    server.stop().await;
}
