//! A server of three regions over real sockets, a driver, and outages under constant
//! load. In every test: no acknowledged write is lost, no read of the session goes
//! back in time, and no operation fails if a retry of the driver could have succeeded.

mod load;
mod outages;

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use perihelion_driver::options::TopologyOptions;
use perihelion_driver::{Container, Driver, DriverOptions, Operation, OperationOptions, Response};
use perihelion_server::{AccountOptions, ServerOptions};
use perihelion_testkit::regions::{EAST, NORTH, WEST, all_but, three_regions};
use perihelion_testkit::{TestServer, driver};

/// Three regions, a driver, and the container `orders`. A `MultiRegion` dereferences to
/// its server, which has methods for faults and outages.
pub(crate) struct MultiRegion {
    server: TestServer,
    pub(crate) driver: Driver,
    pub(crate) orders: Arc<Container>,
}

impl Deref for MultiRegion {
    type Target = TestServer;

    fn deref(&self) -> &TestServer {
        &self.server
    }
}

/// Options of a driver that prefers East, while West takes the writes.
pub(crate) fn prefers_east() -> DriverOptions {
    let topology = TopologyOptions::default()
        .with_refresh_pause(Duration::from_millis(100))
        .with_unavailable_for(Duration::from_millis(400));
    DriverOptions::default().with_preferred_regions([EAST, WEST, NORTH]).with_topology(topology)
}

impl MultiRegion {
    pub(crate) async fn new() -> MultiRegion {
        MultiRegion::with(false).await
    }

    /// All regions take writes.
    pub(crate) async fn with_multi_write() -> MultiRegion {
        MultiRegion::with(true).await
    }

    async fn with(is_multi_write: bool) -> MultiRegion {
        let server = TestServer::on_socket(ServerOptions {
            management: true,
            account: AccountOptions {
                regions: three_regions(),
                multi_write: is_multi_write,
                replication_delay: Duration::from_millis(20),
                ..AccountOptions::default()
            },
            ..ServerOptions::default()
        })
        .await;
        let driver = server.driver(prefers_east()).await;
        let orders = driver.container("shop", "orders");
        driver::create_database(&driver, "shop").await;
        driver::create_container(&driver, "shop", "orders", "/customer").await;
        MultiRegion { server, driver, orders }
    }

    /// A driver that shares nothing with the first one, as in another process.
    pub(crate) async fn other_driver(&self) -> Driver {
        self.server.driver(prefers_east()).await
    }

    pub(crate) async fn run(&self, operation: &Operation) -> Response {
        self.driver.execute(operation, &OperationOptions::default()).await.unwrap()
    }

    /// Runs an operation in one region only.
    pub(crate) async fn run_in(&self, region: &str, operation: &Operation) -> Response {
        let options = OperationOptions::default().with_excluded_regions(all_but(region));
        self.driver.execute(operation, &options).await.unwrap()
    }

    pub(crate) async fn stop(self) {
        drop(self.driver);
        self.server.stop().await;
    }
}
