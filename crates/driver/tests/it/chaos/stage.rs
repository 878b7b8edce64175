//! Three regions in this process, a driver whose requests go through the tap, and a
//! second driver without the tap, to inspect the service.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use perihelion_driver::operation::{Scope, Target, Verb};
use perihelion_driver::options::{ReadConsistency, TopologyOptions};
use perihelion_driver::transport::AnyTransport;
use perihelion_driver::{Container, Credential, Driver, DriverOptions, Operation, OperationOptions};
use perihelion_server::{Clock, Embedded, EmbeddedOptions, RegionNames};
use serde_json::Value;
use tokio::time::Instant;

use super::tap::Tap;
use crate::multi_region::{EAST, NORTH, WEST};
use crate::world::customer;

pub(super) const REGIONS: [&str; 3] = [WEST, EAST, NORTH];
/// The first labels of the regions' host names.
pub(super) const SLUGS: [&str; 3] = ["west-us", "east-us", "north-europe"];

/// Partitions of the documents that workers share; `p0`, `p1`, ...
pub(super) const PARTITIONS: [&str; 8] = ["p0", "p1", "p2", "p3", "p4", "p5", "p6", "p7"];

/// When the virtual wall clock begins.
const EPOCH: Duration = Duration::from_secs(1_700_000_000);

pub(super) struct Stage {
    pub(super) server: Embedded,
    pub(super) tap: Tap,
    pub(super) driver: Driver,
    pub(super) orders: Arc<Container>,
    pub(super) scratch: Arc<Container>,
    /// A driver without the tap, to set up and to inspect the service.
    pub(super) inspector: Driver,
    pub(super) is_multi_write: bool,
}

impl Stage {
    pub(super) async fn new(is_multi_write: bool, ration: Option<u32>) -> Stage {
        let begun = Instant::now();
        let server = Embedded::open(
            EmbeddedOptions::default()
                .with_regions(RegionNames::new(REGIONS).unwrap())
                .with_multi_write(is_multi_write)
                .with_replication_delay(Duration::from_millis(20))
                .with_clock(Clock::from_fn(move || EPOCH + begun.elapsed())),
        )
        .await
        .unwrap();
        let tap = Tap::new(server.transport(), ration);
        let inspector = open(&server, AnyTransport::foreign(server.transport())).await;
        let driver = open(&server, AnyTransport::foreign(tap.clone())).await;
        let (orders, scratch) = (driver.container("shop", "orders"), driver.container("shop", "scratch"));
        let stage = Stage { server, tap, driver, orders, scratch, inspector, is_multi_write };
        stage.create(Target::databases(), r#"{"id":"shop"}"#.to_owned()).await;
        stage.create_container("orders").await;
        stage.create_container("scratch").await;
        stage.create_documents().await;
        stage
    }

    pub(super) async fn create_container(&self, name: &str) {
        let key = r#"{"paths":["/customer"],"kind":"Hash","version":2}"#;
        self.create(Target::containers("shop"), format!(r#"{{"id":"{name}","partitionKey":{key}}}"#)).await;
    }

    pub(super) async fn delete_container(&self, container: &Container) {
        let target = Target::container(container);
        let delete = Operation::new(Verb::Delete, target, Scope::Unpartitioned, Bytes::new());
        self.inspector.execute(&delete, &OperationOptions::default()).await.unwrap();
    }

    async fn create(&self, target: Target, body: String) {
        let create = Operation::new(Verb::Create, target, Scope::Unpartitioned, Bytes::from(body));
        self.inspector.execute(&create, &OperationOptions::default()).await.unwrap();
    }

    /// Creates the documents of the workers, and waits until every region has them.
    async fn create_documents(&self) {
        for partition in PARTITIONS {
            for id in ["upsert", "set", "replace", "count", "swap", "head", "cycle"] {
                let body = format!(r#"{{"id":"{id}","customer":"{partition}","n":0,"by":{{}}}}"#);
                let target = Target::items(&self.orders);
                let create = Operation::new(Verb::Create, target, customer(partition), Bytes::from(body));
                self.inspector.execute(&create, &OperationOptions::default()).await.unwrap();
            }
        }
        self.settle().await;
    }

    /// A management request that may be refused (409).
    pub(super) async fn order(&self, path: &str, body: &str) -> (u16, Value) {
        let response = self.server.manage(Method::POST, path, body).await.unwrap();
        let status = response.status().as_u16();
        assert!(status < 300 || status == 409, "{path} {body}: {response:?}");
        (status, serde_json::from_slice(response.body()).unwrap_or_default())
    }

    pub(super) async fn clear_faults(&self) {
        self.tap.clear();
        assert!(self.server.manage(Method::DELETE, "faults", "").await.unwrap().status().is_success());
    }

    /// Waits until every region has all writes.
    pub(super) async fn settle(&self) {
        self.order("replication/wait", r#"{"timeoutMs":60000}"#).await;
    }

    /// All documents of a partition in one region.
    pub(super) async fn look(&self, region: &str, partition: &str) -> Vec<Value> {
        let others = REGIONS.into_iter().filter(|other| *other != region);
        let options = OperationOptions::default()
            .with_excluded_regions(others)
            .with_read_consistency(ReadConsistency::Eventual);
        let body = Bytes::from_static(br#"{"query":"SELECT * FROM c"}"#);
        let query = Operation::new(Verb::Query, Target::items(&self.orders), customer(partition), body)
            .with_header(perihelion_wire::headers::MAX_ITEM_COUNT, (-1).into());
        let response = self.inspector.execute(&query, &options).await.unwrap();
        assert_eq!(response.continuation(), None, "a partition's documents are one page");
        let mut page: Value = serde_json::from_slice(&response.body).unwrap();
        let Value::Array(mut rows) = page["Documents"].take() else { panic!("a page without documents") };
        rows.sort_by_key(|row| row["id"].as_str().map(str::to_owned));
        rows
    }
}

async fn open(server: &Embedded, transport: AnyTransport) -> Driver {
    let topology = TopologyOptions::default()
        .with_refresh_pause(Duration::from_millis(100))
        .with_unavailable_for(Duration::from_secs(1));
    let options =
        DriverOptions::default().with_preferred_regions([EAST, WEST, NORTH]).with_topology(topology);
    Driver::open(server.endpoint(), Credential::emulator(), transport, options).await.unwrap()
}
