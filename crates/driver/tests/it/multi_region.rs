//! A server of three regions over real sockets, a driver, and outages under constant
//! load. In every test: no acknowledged write is lost, no read of the session goes
//! back in time, and no operation fails that the driver should retry.

mod load;
mod outages;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{HeaderMap, Method};
use perihelion_driver::operation::{Scope, Target, Verb};
use perihelion_driver::options::TopologyOptions;
use perihelion_driver::transport::{HttpOptions, HttpTransport};
use perihelion_driver::{
    Container, Credential, Driver, DriverOptions, Operation, OperationOptions, Response,
};
use perihelion_server::{AccountOptions, RegionNames, Server, ServerOptions};
use perihelion_wire::transport::{Endpoint, Request, Transport};

pub(crate) const WEST: &str = "West US";
pub(crate) const EAST: &str = "East US";
pub(crate) const NORTH: &str = "North Europe";

/// Everything is on this machine: a request that takes longer hangs.
const MANAGE_TIMEOUT: Duration = Duration::from_secs(30);

/// Three regions, a driver, and the container `orders`.
pub(crate) struct MultiRegion {
    server: Server,
    transport: HttpTransport,
    pub(crate) driver: Driver,
    pub(crate) orders: Arc<Container>,
}

/// The driver prefers East, while West takes the writes.
pub(crate) fn prefers_east() -> DriverOptions {
    let topology = TopologyOptions::default()
        .with_refresh_pause(Duration::from_millis(100))
        .with_unavailable_for(Duration::from_millis(400));
    DriverOptions::default().with_preferred_regions([EAST, WEST, NORTH]).with_topology(topology)
}

impl MultiRegion {
    pub(crate) async fn new() -> MultiRegion {
        MultiRegion::with(false, prefers_east()).await
    }

    /// All regions take writes.
    pub(crate) async fn of_writers() -> MultiRegion {
        MultiRegion::with(true, prefers_east()).await
    }

    pub(crate) async fn with(multi_write: bool, options: DriverOptions) -> MultiRegion {
        let server = Server::start(ServerOptions {
            port: 0,
            management: true,
            account: AccountOptions {
                regions: RegionNames::new([WEST, EAST, NORTH]).unwrap(),
                multi_write,
                replication_delay: Duration::from_millis(20),
                ..AccountOptions::default()
            },
            ..ServerOptions::default()
        })
        .await
        .unwrap();
        let transport = HttpTransport::new(HttpOptions::default()).unwrap();
        let driver = connect(&server, options).await;
        let orders = driver.container("shop", "orders");
        let regions = MultiRegion { server, transport, driver, orders };
        regions.create(Target::databases(), r#"{"id":"shop"}"#).await;
        regions.create_container().await;
        regions
    }

    /// A driver that shares nothing with the first one, as in another process.
    pub(crate) async fn stranger(&self) -> Driver {
        connect(&self.server, prefers_east()).await
    }

    pub(crate) async fn create_container(&self) {
        let body = r#"{"id":"orders","partitionKey":{"paths":["/customer"],"kind":"Hash","version":2}}"#;
        self.create(Target::containers("shop"), body).await;
    }

    async fn create(&self, target: Target, body: &'static str) {
        let body = Bytes::from_static(body.as_bytes());
        let create = Operation::new(Verb::Create, target, Scope::Unpartitioned, body);
        self.run(&create).await;
    }

    pub(crate) async fn run(&self, operation: &Operation) -> Response {
        self.driver.execute(operation, &OperationOptions::default()).await.unwrap()
    }

    /// Runs an operation in one region only.
    pub(crate) async fn run_in(&self, region: &str, operation: &Operation) -> Response {
        let others = [WEST, EAST, NORTH].into_iter().filter(|other| *other != region);
        let options = OperationOptions::default().with_excluded_regions(others);
        self.driver.execute(operation, &options).await.unwrap()
    }

    /// A management request that must be granted.
    pub(crate) async fn order(&self, path: &str, body: &str) -> serde_json::Value {
        let request = Request {
            endpoint: endpoint(&self.server),
            method: if body == "GET" { Method::GET } else { Method::POST },
            target: PathAndQuery::from_maybe_shared(format!("/_perihelion/{path}")).unwrap(),
            headers: HeaderMap::new(),
            body: if body == "GET" { Bytes::new() } else { Bytes::copy_from_slice(body.as_bytes()) },
            deadline: (tokio::time::Instant::now() + MANAGE_TIMEOUT).into_std(),
        };
        let response = self.transport.send(request).await.unwrap();
        assert!(response.status().is_success(), "{path} {body}: {response:?}");
        serde_json::from_slice(response.body()).unwrap_or_default()
    }

    pub(crate) async fn order_region(&self, path: &str, region: &str) {
        self.order(path, &format!(r#"{{"region":"{region}"}}"#)).await;
    }

    pub(crate) async fn fault(&self, rule: &str) {
        self.order("faults", rule).await;
    }

    pub(crate) async fn clear_faults(&self) {
        let request = Request {
            endpoint: endpoint(&self.server),
            method: Method::DELETE,
            target: PathAndQuery::from_static("/_perihelion/faults"),
            headers: HeaderMap::new(),
            body: Bytes::new(),
            deadline: (tokio::time::Instant::now() + MANAGE_TIMEOUT).into_std(),
        };
        assert!(self.transport.send(request).await.unwrap().status().is_success());
    }

    /// Returns when every region has what the others had.
    pub(crate) async fn settle(&self) {
        self.order("replication/wait", "{}").await;
    }

    pub(crate) async fn stop(self) {
        drop(self.driver);
        drop(self.transport);
        self.server.drain(Duration::from_secs(5)).await;
    }
}

fn endpoint(server: &Server) -> Endpoint {
    Endpoint::parse(&format!("http://{}", server.local_addr())).unwrap()
}

async fn connect(server: &Server, options: DriverOptions) -> Driver {
    let transport = HttpTransport::new(HttpOptions::default()).unwrap();
    Driver::open(endpoint(server), Credential::emulator(), transport, options).await.unwrap()
}
