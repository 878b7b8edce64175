//! Reading the account, for the first time and later: when the account's own address does
//! not answer, when a region hangs, and when the caller is cancelled.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use perihelion_driver::operation::Verb;
use perihelion_driver::options::TopologyOptions;
use perihelion_driver::transport::AnyTransport;
use perihelion_driver::{Credential, Driver, DriverOptions, Error, ErrorKind, OperationOptions};
use perihelion_server::{EmbeddedOptions, RegionNames};
use perihelion_testkit::regions::{NORTH, WEST, three_regions};
use perihelion_testkit::{TestServer, faults};
use perihelion_wire::transport::{DynTransport, Endpoint, Failure, Request, Response, Transport};
use tokio::time::Instant;

use crate::multi_region::prefers_east;
use crate::world::World;

/// A transport on which only one of the account's host names answers. The server answers
/// for this host.
struct OneAnsweringHost {
    server: TestServer,
    host: &'static str,
    /// The answer of [`FOREIGN_HOST`].
    other_account: Result<Response, Failure>,
}

impl Transport for OneAnsweringHost {
    async fn send(&self, mut request: Request) -> Result<Response, Failure> {
        let host = request.endpoint.host();
        if host == FOREIGN_HOST {
            return self.other_account.clone();
        }
        if host.ends_with(".azure.com") && host != self.host {
            return Err(faults::unreachable());
        }
        // A host outside `azure.com` is the server's own.
        if host != self.host {
            return self.server.embedded().transport().send_boxed(request).await;
        }
        request.endpoint = self.server.endpoint();
        let response = self.server.embedded().transport().send_boxed(request).await?;
        // The account document names the server's own endpoint. Here it names this host instead.
        let body = String::from_utf8(response.body().to_vec()).unwrap();
        let server_endpoint = self.server.endpoint().to_string();
        let body = body.replace(server_endpoint.trim_end_matches('/'), &format!("https://{}:443", self.host));
        Ok(response.map(|_| body.into()))
    }
}

/// The host name that the driver guesses for its first preferred region, North Europe. It belongs to
/// another account.
const FOREIGN_HOST: &str = "shop-northeurope.documents.azure.com";

/// Opens an account. Of its hosts, only this one answers.
async fn open_with_answering_host(
    host: &'static str,
    other_account: Result<Response, Failure>,
) -> Result<Driver, perihelion_driver::Error> {
    let options = EmbeddedOptions::default().with_regions(RegionNames::parse(WEST).unwrap());
    let server = TestServer::in_process(options).await;
    let account = Endpoint::parse("https://shop.documents.azure.com:443/").unwrap();
    let options = DriverOptions::default().with_preferred_regions([NORTH, WEST]);
    let transport = AnyTransport::foreign(OneAnsweringHost { server, host, other_account });
    Driver::open(account, Credential::emulator(), transport, options).await
}

#[tokio::test(start_paused = true)]
async fn an_account_is_read_from_a_preferred_region_when_its_own_address_fails() {
    let no_other_account = || Err(faults::unreachable());
    let driver =
        open_with_answering_host("shop-westus.documents.azure.com", no_other_account()).await.unwrap();
    assert_eq!(driver.account().read_regions[0].name(), WEST);
    let error = open_with_answering_host("no.such.host", no_other_account()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Transport);
    let attempt = error.diagnostics().attempts().next().unwrap();
    assert_eq!(
        attempt.endpoint.host(),
        "shop.documents.azure.com",
        "the error is that of the configured endpoint"
    );
}

/// Names of accounts may contain hyphens, so the host name that the driver guesses for a region
/// may belong to another account. That account refuses the key, or it answers and lists its own
/// endpoints.
#[tokio::test(start_paused = true)]
async fn another_account_with_a_guessed_host_name_is_not_used() {
    let region =
        |host: &str| format!(r#"[{{"name":"{NORTH}","databaseAccountEndpoint":"https://{host}:443/"}}]"#);
    let locations = region("shop-northeurope-northeurope.documents.azure.com");
    let document = format!(
        r#"{{"id":"shop-northeurope","readableLocations":{locations},"writableLocations":{locations}}}"#
    );
    for (status, body) in [(401, "{}".to_owned()), (200, document)] {
        let answer = http::Response::builder().status(status).body(body.into()).unwrap();
        let driver = open_with_answering_host("shop-westus.documents.azure.com", Ok(answer)).await.unwrap();
        let regions = &driver.account().read_regions;
        assert_eq!(regions.iter().map(|region| region.name()).collect::<Vec<_>>(), [WEST], "{status}");
    }
}

/// The write region refuses a write, and reads of the account hang in this region. The
/// account's own address leads to the same region, so the driver must read the account
/// from another region.
#[tokio::test(start_paused = true)]
async fn the_account_is_not_read_from_a_suspect_region_first() {
    let regions = three_regions();
    let options = prefers_east().with_topology(TopologyOptions::default());
    let world = World::with(EmbeddedOptions::default().with_regions(regions), options).await;
    world.run(&world.write(Verb::Create, "1", "a")).await.unwrap();
    tokio::time::advance(Duration::from_secs(10)).await;
    world.fault(&format!(r#"{{"operation":"read_account","region":"{WEST}","delayMs":30000}}"#)).await;
    world.fault(r#"{"operation":"upsert_item","count":1,"status":403,"subStatus":3}"#).await;
    let before = Instant::now();
    world.run(&world.write(Verb::Upsert, "1", "b")).await.unwrap();
    assert!(before.elapsed() < Duration::from_secs(5), "{:?}", before.elapsed());
}

/// The task of a write is cancelled while it reads the account. The next write reads the account
/// again.
#[tokio::test(start_paused = true)]
async fn a_cancelled_refresh_does_not_count_as_done() {
    let regions = three_regions();
    let world = World::with(EmbeddedOptions::default().with_regions(regions), prefers_east()).await;
    world.run(&world.write(Verb::Create, "1", "a")).await.unwrap();
    tokio::time::advance(Duration::from_secs(10)).await;
    world.fault(r#"{"operation":"read_account","count":1,"delayMs":3000}"#).await;
    world.fault(r#"{"operation":"upsert_item","count":2,"status":403,"subStatus":3}"#).await;
    let reads_before = world.requests("read_account").await;
    let (driver, write) = (world.driver.clone(), world.write(Verb::Upsert, "1", "b"));
    let cancelled =
        tokio::spawn(async move { driver.execute(&write, &OperationOptions::default()).await.map(drop) });
    tokio::time::sleep(Duration::from_millis(10)).await;
    cancelled.abort();
    assert!(cancelled.await.unwrap_err().is_cancelled());
    world.run(&world.write(Verb::Upsert, "1", "c")).await.unwrap();
    assert_eq!(world.requests("read_account").await - reads_before, 2);
}

/// A transport whose first requests fail, as requests to a restarting gateway do.
struct FailsAtFirst {
    server: TestServer,
    failures_left: AtomicU32,
    failure: fn() -> Result<Response, Failure>,
}

impl Transport for FailsAtFirst {
    async fn send(&self, request: Request) -> Result<Response, Failure> {
        let take = |left: u32| left.checked_sub(1);
        match self.failures_left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take) {
            Ok(_) => (self.failure)(),
            Err(_) => self.server.embedded().transport().send_boxed(request).await,
        }
    }
}

async fn open_after(failures: u32, failure: fn() -> Result<Response, Failure>) -> Result<Driver, Error> {
    let server = TestServer::in_process(EmbeddedOptions::default()).await;
    let endpoint = server.endpoint();
    let transport = FailsAtFirst { server, failures_left: AtomicU32::new(failures), failure };
    let transport = AnyTransport::foreign(transport);
    Driver::open(endpoint, Credential::emulator(), transport, DriverOptions::default()).await
}

/// The driver retries the first read of the account three times.
#[tokio::test(start_paused = true)]
async fn opening_a_driver_retries_the_read_of_the_account() {
    for failure in [|| Err(faults::unreachable()), || Ok(faults::refusal(503, 0, None))] {
        open_after(3, failure).await.unwrap();
        open_after(4, failure).await.unwrap_err();
    }
    let before = Instant::now();
    let refused = open_after(1, || Ok(faults::refusal(403, 0, None))).await.unwrap_err();
    assert_eq!(
        (refused.status().unwrap().code, before.elapsed()),
        (403, Duration::ZERO),
        "a refusal is final"
    );
}

/// A transport that never answers, not even with a failure at the deadline.
struct NeverAnswers;

impl Transport for NeverAnswers {
    async fn send(&self, _request: Request) -> Result<Response, Failure> {
        std::future::pending().await
    }
}

#[tokio::test(start_paused = true)]
async fn an_operation_ends_even_if_its_transport_ignores_the_deadline() {
    let account = Endpoint::parse("https://shop.example").unwrap();
    let options = OperationOptions::default().with_timeout(Duration::from_secs(1));
    let options = DriverOptions::default().with_operation(options);
    let transport = AnyTransport::foreign(NeverAnswers);
    let opening = Driver::open(account, Credential::emulator(), transport, options);
    let error = tokio::time::timeout(Duration::from_secs(60), opening)
        .await
        .expect("the operation ends")
        .unwrap_err();
    assert!(error.message().contains("deadline"), "{error}");
}

/// The future of a caller contains the future of its operation, and futures are moved. So
/// large futures cost stack space and copies.
#[tokio::test(start_paused = true)]
async fn the_future_of_an_operation_is_small() {
    let world = World::new().await;
    let (read, options) = (world.read("1"), OperationOptions::default());
    let size = std::mem::size_of_val(&world.driver.execute(&read, &options));
    assert!(size <= 7 * 1024, "{size} bytes");
}

/// A write whose result is final does not wait for the account, which takes 3 s to read. The
/// account is read in the background.
#[tokio::test(start_paused = true)]
async fn a_final_result_does_not_wait_for_the_account() {
    let world = World::with(EmbeddedOptions::default().with_regions(three_regions()), prefers_east()).await;
    world.run(&world.write(Verb::Create, "1", "a")).await.unwrap();
    world.fault(r#"{"operation":"upsert_item","status":503}"#).await;
    world.fault(r#"{"operation":"read_account","delayMs":3000}"#).await;
    let (before, reads_before) = (Instant::now(), world.requests("read_account").await);
    let options = OperationOptions::default().with_failovers_max(0);
    let upsert = world.write(Verb::Upsert, "1", "b");
    let error = world.driver.execute(&upsert, &options).await.unwrap_err();
    assert!(error.is_ambiguous(), "{error:?}");
    assert!(before.elapsed() < Duration::from_millis(100), "waited for {:?}", before.elapsed());
    let effects = &error.diagnostics().attempts().next().unwrap().effects;
    assert!(effects.contains(&"refresh_account"), "{effects:?}");
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(world.requests("read_account").await, reads_before + 1, "the account is read once");
}
