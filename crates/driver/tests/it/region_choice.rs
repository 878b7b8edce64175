//! Which regions and endpoints a driver uses: with the application's region, without endpoint
//! discovery, and with backup endpoints.

use std::sync::{Arc, Mutex};

use perihelion_driver::operation::Verb;
use perihelion_driver::transport::AnyTransport;
use perihelion_driver::{Credential, Driver, DriverOptions, Error, OperationOptions};
use perihelion_server::EmbeddedOptions;
use perihelion_testkit::regions::{EAST, NORTH, WEST, three_regions};
use perihelion_testkit::{TestServer, faults};
use perihelion_wire::transport::{DynTransport, Endpoint, Failure, Request, Response, Transport};

use crate::world::World;

/// A transport that records the endpoint of every request.
struct RecordingEndpoints {
    inner: AnyTransport,
    endpoints: Arc<Mutex<Vec<Endpoint>>>,
}

impl Transport for RecordingEndpoints {
    async fn send(&self, request: Request) -> Result<Response, Failure> {
        self.endpoints.lock().unwrap().push(request.endpoint.clone());
        self.inner.send(request).await
    }
}

async fn world() -> World {
    World::with(EmbeddedOptions::default().with_regions(three_regions()), DriverOptions::default()).await
}

#[tokio::test(start_paused = true)]
async fn regions_are_ordered_by_their_distance_from_the_application() {
    let world = world().await;
    for (application, expected) in [
        ("UK South", [NORTH, EAST, WEST]),
        ("West US 2", [WEST, EAST, NORTH]),
        ("Canada Central", [EAST, WEST, NORTH]),
    ] {
        let options = DriverOptions::default().with_application_region(application);
        let account = world.other_driver(options).await.account();
        let names: Vec<&str> = account.read_regions.iter().map(|region| region.name()).collect();
        assert_eq!(names, expected, "{application}");
    }
}

#[tokio::test(start_paused = true)]
async fn without_discovery_all_requests_go_to_the_accounts_own_endpoint() {
    let world = world().await;
    let endpoints = Arc::default();
    let transport = RecordingEndpoints { inner: world.server.transport(), endpoints: Arc::clone(&endpoints) };
    let options = DriverOptions::default().with_endpoint_discovery(false);
    let driver = world.server.driver_over(AnyTransport::foreign(transport), options).await;
    let default_options = OperationOptions::default();
    driver.execute(&world.write(Verb::Create, "1", "a"), &default_options).await.unwrap();
    driver.execute(&world.read("1"), &default_options).await.unwrap();
    assert_eq!(driver.account().read_regions.len(), 1);
    let endpoints = endpoints.lock().unwrap();
    // At least the account, the container, its ranges, and the two operations.
    assert!(endpoints.len() >= 5, "{endpoints:?}");
    for endpoint in endpoints.iter() {
        assert_eq!(*endpoint, world.server.endpoint());
    }
}

/// A transport on which `backup.example` leads to the server, and `account.example`, the
/// account's own address, does not answer.
struct OnlyBackupAnswers {
    server: TestServer,
}

impl Transport for OnlyBackupAnswers {
    async fn send(&self, mut request: Request) -> Result<Response, Failure> {
        match request.endpoint.host() {
            "account.example" => return Err(faults::unreachable()),
            "backup.example" => request.endpoint = self.server.endpoint(),
            _ => {}
        }
        self.server.embedded().transport().send_boxed(request).await
    }
}

#[tokio::test(start_paused = true)]
async fn a_backup_endpoint_is_asked_when_the_accounts_own_endpoint_is_down() {
    async fn open(backups: &[&str]) -> Result<Driver, Error> {
        let server = TestServer::in_process(EmbeddedOptions::default()).await;
        let endpoint = |host: &str| Endpoint::parse(&format!("https://{host}")).unwrap();
        let options =
            DriverOptions::default().with_backup_endpoints(backups.iter().map(|host| endpoint(host)));
        let transport = AnyTransport::foreign(OnlyBackupAnswers { server });
        Driver::open(endpoint("account.example"), Credential::emulator(), transport, options).await
    }
    assert!(open(&[]).await.is_err());
    let driver = open(&["account.example", "backup.example"]).await.unwrap();
    assert_eq!(driver.account().read_regions.len(), 1);
}
