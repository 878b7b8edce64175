//! Accounts and containers that a provider refuses, and its error texts.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use duroxide::providers::{Provider, ProviderError, TagFilter};
use duroxide_cdb::CosmosDBProvider;
use perihelion_client::{Client, ContainerProperties, IndexingPolicy, TimeToLive, Transport};
use perihelion_server::{EmbeddedOptions, InProcess, RegionNames};
use perihelion_testkit::TestServer;
use perihelion_wire::transport::{Failure, Request, Response};

use super::{LOCK, POLL_ONCE, start};

/// The time between two reads of the account by the driver, plus a minute.
const ACCOUNT_READ_WITHIN: Duration = Duration::from_secs(360);

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

/// A transport that replaces a text in the document of the account, as somebody who changes the
/// account does.
#[derive(Clone)]
struct EditedAccount {
    transport: InProcess,
    edit: Arc<Mutex<Option<(&'static str, &'static str)>>>,
}

impl EditedAccount {
    fn new(server: &TestServer) -> Self {
        EditedAccount { transport: server.embedded().transport(), edit: Arc::default() }
    }

    fn replace(&self, from: &'static str, to: &'static str) {
        *self.edit.lock().unwrap() = Some((from, to));
    }

    async fn open(&self, server: &TestServer) -> Result<CosmosDBProvider, ProviderError> {
        let client = Client::over(&server.endpoint(), self.clone()).await.unwrap();
        CosmosDBProvider::builder().with_client(client).open().await
    }
}

impl Transport for EditedAccount {
    async fn send(&self, request: Request) -> Result<Response, Failure> {
        let is_account = request.target.path() == "/";
        let answer = self.transport.send(request).await?;
        let edit = self.edit.lock().unwrap().filter(|_| is_account);
        let Some((from, to)) = edit else { return Ok(answer) };
        let text = String::from_utf8_lossy(answer.body()).into_owned();
        assert!(text.contains(from), "{text}");
        Ok(answer.map(|_| text.replace(from, to).into()))
    }
}

/// With a weaker consistency than Session a process may not see its own turns and messages.
#[tokio::test]
async fn an_account_of_weak_consistency_is_refused_with_the_reason() {
    let server = TestServer::in_process(EmbeddedOptions::default()).await;
    for (level, is_opened) in [
        ("Strong", true),
        ("BoundedStaleness", true),
        ("Session", true),
        ("ConsistentPrefix", false),
        ("Eventual", false),
    ] {
        let account = EditedAccount::new(&server);
        account.replace("Session", level);
        match account.open(&server).await {
            Ok(provider) if is_opened => provider.close().await,
            Err(error) if !is_opened => {
                assert!(error.message.contains("weaker than Session") && !error.is_retryable(), "{error}");
            }
            opened => panic!("{level}: {opened:?}"),
        }
    }
    server.stop().await;
}

/// Multiple write locations are turned on while a provider runs. It takes no more work.
#[tokio::test(start_paused = true)]
async fn a_provider_takes_no_work_when_its_account_has_become_multi_write() {
    let server = TestServer::in_process(EmbeddedOptions::default()).await;
    let account = EditedAccount::new(&server);
    let provider = account.open(&server).await.unwrap();
    provider.enqueue_for_orchestrator(start("order", None), None).await.unwrap();
    account.replace(r#""enableMultipleWriteLocations":false"#, r#""enableMultipleWriteLocations":true"#);
    tokio::time::sleep(ACCOUNT_READ_WITHIN).await;
    let fetched = provider.fetch_orchestration_item(LOCK, POLL_ONCE, None).await;
    let error = fetched.expect_err("the instance is not fetched");
    assert!(error.message.contains("enableMultipleWriteLocations") && !error.is_retryable(), "{error}");
    let fetched = provider.fetch_work_item(LOCK, POLL_ONCE, None, &TagFilter::default()).await;
    assert!(fetched.is_err(), "{fetched:?}");

    // This edit changes nothing, so the driver reads the account as it was before.
    account.replace(r#""enableMultipleWriteLocations":false"#, r#""enableMultipleWriteLocations":false"#);
    tokio::time::sleep(ACCOUNT_READ_WITHIN).await;
    let fetched = provider.fetch_orchestration_item(LOCK, POLL_ONCE, None).await.unwrap();
    assert_eq!(fetched.expect("the account is as before").0.instance, "order");
    server.stop().await;
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
