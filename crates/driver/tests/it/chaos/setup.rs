//! The setup of a run: three regions in this process, a driver whose requests go through
//! the fault transport, and a second driver without faults, to inspect the service.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use perihelion_driver::operation::{Target, Verb};
use perihelion_driver::options::{ReadConsistency, TopologyOptions};
use perihelion_driver::transport::AnyTransport;
use perihelion_driver::{Container, Driver, DriverOptions, Operation, OperationOptions};
use perihelion_server::{Clock, EmbeddedOptions};
use perihelion_testkit::regions::{EAST, NORTH, WEST, all_but, three_regions};
use perihelion_testkit::{TestServer, driver};
use serde_json::Value;
use tokio::time::Instant;

use super::fault_transport::FaultTransport;
use crate::world::customer;

/// The partitions of the documents that workers use.
pub(super) const PARTITIONS: [&str; 8] = ["p0", "p1", "p2", "p3", "p4", "p5", "p6", "p7"];

/// The time at which the virtual wall clock begins, since 1970.
const CLOCK_START: Duration = Duration::from_secs(1_700_000_000);

/// Which regions take writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Writers {
    /// One region takes all writes.
    OneRegion,
    /// One region takes the writes of a partition. Partitions move one by one.
    OneRegionPerPartition,
    AllRegions,
}

pub(super) struct Setup {
    server: TestServer,
    pub(super) fault_transport: FaultTransport,
    pub(super) driver: Driver,
    pub(super) orders: Arc<Container>,
    pub(super) scratch: Arc<Container>,
    /// A driver without faults, to create documents and to inspect the service.
    pub(super) inspector: Driver,
    pub(super) is_multi_write: bool,
    /// Whether partitions fail over one by one.
    pub(super) has_partition_failover: bool,
}

impl Setup {
    /// `faults_per_operation_max` limits the faults of each class that one operation gets;
    /// `None` means no limit.
    pub(super) async fn new(writers: Writers, faults_per_operation_max: Option<u32>) -> Setup {
        let is_multi_write = writers == Writers::AllRegions;
        let has_partition_failover = writers == Writers::OneRegionPerPartition;
        let begun = Instant::now();
        let server = TestServer::in_process(
            EmbeddedOptions::default()
                .with_regions(three_regions())
                .with_multi_write(is_multi_write)
                .with_replication_delay(Duration::from_millis(20))
                .with_clock(Clock::from_fn(move || CLOCK_START + begun.elapsed())),
        )
        .await;
        let failover = format!(r#"{{"enabled":{has_partition_failover}}}"#);
        server.manage(Method::POST, "regions/partition-failover", &failover).await;
        let fault_transport = FaultTransport::new(server.embedded().transport(), faults_per_operation_max);
        let inspector = server.driver(options()).await;
        let driver = server.driver_over(AnyTransport::foreign(fault_transport.clone()), options()).await;
        let (orders, scratch) = (driver.container("shop", "orders"), driver.container("shop", "scratch"));
        let setup = Setup {
            server,
            fault_transport,
            driver,
            orders,
            scratch,
            inspector,
            is_multi_write,
            has_partition_failover,
        };
        driver::create_database(&setup.inspector, "shop").await;
        setup.create_container("orders").await;
        setup.create_container("scratch").await;
        setup.create_documents().await;
        setup
    }

    pub(super) async fn create_container(&self, name: &str) {
        driver::create_container(&self.inspector, "shop", name, "/customer").await;
    }

    pub(super) async fn delete_container(&self, container: &Container) {
        driver::delete_container(&self.inspector, container).await;
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
        self.wait_for_replication().await;
    }

    /// Sends a management request. The server may refuse it with 409.
    pub(super) async fn manage(&self, path: &str, body: &str) -> (u16, Value) {
        let (status, response) = self.server.try_manage(Method::POST, path, body).await;
        assert!(status < 300 || status == 409, "{path} {body}: {status} {response}");
        (status, response)
    }

    pub(super) async fn clear_faults(&self) {
        self.fault_transport.clear_rules();
        self.server.clear_faults().await;
    }

    /// Waits until every region has all writes.
    pub(super) async fn wait_for_replication(&self) {
        self.manage("replication/wait", r#"{"timeoutMs":60000}"#).await;
    }

    /// All documents of a partition in one region.
    pub(super) async fn read_partition(&self, region: &str, partition: &str) -> Vec<Value> {
        let options = OperationOptions::default()
            .with_excluded_regions(all_but(region))
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

fn options() -> DriverOptions {
    let topology = TopologyOptions::default()
        .with_refresh_pause(Duration::from_millis(100))
        .with_unavailable_for(Duration::from_secs(1));
    DriverOptions::default().with_preferred_regions([EAST, WEST, NORTH]).with_topology(topology)
}
