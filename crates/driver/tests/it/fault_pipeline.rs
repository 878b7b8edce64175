//! Injected faults through the whole pipeline, over real sockets: a throttled request waits and
//! is repeated, a request to an unavailable region goes to another one, lost answers are
//! resolved, and a region that cannot be reached is avoided.

use std::sync::Arc;
use std::time::Duration;

use perihelion_driver::diagnostics::{Outcome, Resolution};
use perihelion_driver::fault_injection::{FaultHandle, FaultInjector};
use perihelion_driver::operation::{Idempotency, Target, Verb, Witness};
use perihelion_driver::options::Hedging;
use perihelion_driver::transport::{HttpOptions, HttpTransport};
use perihelion_driver::{Container, Driver, DriverOptions, Error, Operation, OperationOptions, Response};
use perihelion_server::{AccountOptions, RegionNames, ServerOptions};
use perihelion_testkit::regions::{EAST, WEST};
use perihelion_testkit::wait::wait_until;
use perihelion_testkit::{TestServer, driver};
use tokio::time::Instant;

use crate::world::ada;

/// An account of two regions. East takes the writes and is preferred.
struct Scene {
    server: TestServer,
    faults: FaultInjector,
    driver: Driver,
    orders: Arc<Container>,
}

impl Scene {
    async fn new() -> Scene {
        let account =
            AccountOptions { regions: RegionNames::new([EAST, WEST]).unwrap(), ..AccountOptions::default() };
        let options = ServerOptions { account, management: true, ..ServerOptions::default() };
        let server = TestServer::on_socket(options).await;
        let faults = FaultInjector::with_seed(1);
        let http = HttpOptions::default()
            .with_read_hang_limit(Duration::from_millis(400))
            .with_ping_timeout(Duration::from_millis(400))
            .with_fault_injection(&faults);
        let unhedged = OperationOptions::default().with_hedging(Hedging::Off);
        let options = DriverOptions::default().with_preferred_regions([EAST, WEST]).with_operation(unhedged);
        let client = server.driver_over(HttpTransport::new(http).unwrap().into(), options).await;
        driver::create_database(&client, "shop").await;
        driver::create_container(&client, "shop", "orders", "/customer").await;
        let orders = client.container("shop", "orders");
        let scene = Scene { server, faults, driver: client, orders };
        scene.run(&scene.write(Verb::Create, "1")).await.unwrap();
        scene.server.wait_for_replication().await;
        scene
    }

    fn inject(&self, rule: &str) -> FaultHandle {
        self.faults.add_json(rule).unwrap().remove(0)
    }

    fn read(&self) -> Operation {
        Operation::new(Verb::Read, Target::item(&self.orders, "1"), ada(), Default::default())
    }

    fn write(&self, verb: Verb, id: &str) -> Operation {
        let body = format!(r#"{{"id":"{id}","customer":"ada","stamp":"{id}"}}"#);
        Operation::new(verb, Target::items(&self.orders), ada(), body.into())
    }

    async fn run(&self, operation: &Operation) -> Result<Response, Error> {
        self.driver.execute(operation, &OperationOptions::default()).await
    }

    async fn end(self) {
        // The background task may be reading the account.
        let limit = Duration::from_secs(10);
        wait_until("the driver is idle", limit, async || self.driver.statistics().is_idle()).await;
        self.server.stop().await;
    }
}

fn regions(response: &Response) -> Vec<String> {
    response.diagnostics.attempts().map(|attempt| attempt.region.name().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_an_injected_429_the_request_is_repeated_in_the_same_region() {
    let scene = Scene::new().await;
    let rule = r#"{"operation":"read_item","status":429,"subStatus":3200,"retryAfterMs":50,"count":3}"#;
    let (throttled, began) = (scene.inject(rule), Instant::now());
    let read = scene.run(&scene.read()).await.unwrap();
    assert!(began.elapsed() >= Duration::from_millis(150), "{:?}", began.elapsed());
    assert_eq!((throttled.hits(), regions(&read)), (3, vec![EAST.to_owned()]));
    assert_eq!(read.diagnostics.attempts().next().unwrap().throttled, 3);
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_injected_503_of_one_region_or_range_makes_reads_fail_over() {
    let scene = Scene::new().await;
    let unavailable = scene.inject(r#"{"operation":"read_item","region":"eastus","status":503}"#);
    let read = scene.run(&scene.read()).await.unwrap();
    assert_eq!((unavailable.hits(), regions(&read)), (1, vec![EAST.to_owned(), WEST.to_owned()]));
    assert!(matches!(
        read.diagnostics.attempts().next().unwrap().outcome,
        Outcome::Answered(status) if status.code == 503
    ));
    scene.faults.clear();
    // The transport knows the range of the document, although no header of the request names it.
    let ranges = scene.driver.metadata(&scene.orders).await.unwrap();
    assert_eq!(&*ranges.ranges.only().unwrap().id, "0");
    let other_range = scene.inject(r#"{"operation":"read_item","range":"7","status":503}"#);
    let same_range = scene.inject(r#"{"operation":"read_item","range":"0","status":503,"count":1}"#);
    scene.run(&scene.read()).await.unwrap();
    assert_eq!((other_range.hits(), same_range.hits()), (0, 1));
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_injected_connection_error_is_retried_where_that_is_safe() {
    let scene = Scene::new().await;
    // A read goes to another connection to the same region, within its attempt.
    let dropped = scene.inject(r#"{"operation":"read_item","drop":"after","count":1}"#);
    let read = scene.run(&scene.read()).await.unwrap();
    assert_eq!((dropped.hits(), regions(&read)), (1, vec![EAST.to_owned()]));
    // A lost create is resolved by its witness.
    let witness = Witness { id: "2".to_owned(), pointer: "/stamp".to_owned(), value: "2".into() };
    let lost = scene.inject(r#"{"operation":"create_item","drop":"after","count":1}"#);
    let created = scene.run(&scene.write(Verb::Create, "2").with_witness(witness)).await.unwrap();
    assert_eq!(created.diagnostics.resolution(), Some(Resolution::Witnessed));
    assert_eq!(lost.hits(), 1);
    // A write that may not be repeated is ambiguous. The driver cannot know that it was not sent.
    scene.inject(r#"{"operation":"upsert_item","drop":"before","count":1}"#);
    let once = scene.write(Verb::Upsert, "3").with_idempotency(Idempotency::NotIdempotent);
    assert!(scene.run(&once).await.unwrap_err().is_ambiguous());
    // An idempotent write is repeated.
    scene.inject(r#"{"operation":"upsert_item","garbage":"before","count":1}"#);
    scene.run(&scene.write(Verb::Upsert, "3")).await.unwrap();
    // A silent connection is noticed within the read-hang limit.
    let (silent, began) =
        (scene.inject(r#"{"operation":"read_item","silence":"before","count":1}"#), Instant::now());
    scene.run(&scene.read()).await.unwrap();
    assert_eq!(silent.hits(), 1);
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_region_without_connections_is_avoided_and_used_again() {
    let scene = Scene::new().await;
    let refused = scene.inject(r#"{"connect":"refuse","region":"East US"}"#);
    let dropped = scene.inject(r#"{"region":"East US","drop":"before"}"#);
    let read = scene.run(&scene.read()).await.unwrap();
    assert_eq!(regions(&read).last().unwrap(), WEST);
    assert!(dropped.hits() >= 1 && refused.hits() >= 1);
    let error = scene.run(&scene.write(Verb::Create, "2")).await.unwrap_err();
    assert!(error.status().is_none() || error.is_ambiguous(), "the write region is down: {error}");
    scene.faults.clear();
    scene.run(&scene.write(Verb::Upsert, "2")).await.unwrap();
    scene.end().await;
}
