//! A driver outlives the runtime that it was opened on. These tests need two runtimes, so
//! the clock is real.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use perihelion_driver::operation::Verb;
use perihelion_driver::options::{Hedging, TopologyOptions};
use perihelion_driver::transport::AnyTransport;
use perihelion_driver::{Driver, DriverOptions, OperationOptions, Region};
use perihelion_server::{EmbeddedOptions, InProcess};
use perihelion_testkit::faults;
use perihelion_testkit::regions::{EAST, three_regions};
use perihelion_wire::transport::{Endpoint, Failure, Request, Response, Transport};
use tokio::runtime::Runtime;

use crate::multi_region::prefers_east;
use crate::world::World;

/// A transport on which one endpoint cannot be reached for a while.
struct OneEndpointDown {
    server: InProcess,
    endpoint: Endpoint,
    is_down: Arc<AtomicBool>,
}

impl Transport for OneEndpointDown {
    async fn send(&self, request: Request) -> Result<Response, Failure> {
        if request.endpoint == self.endpoint && self.is_down.load(Ordering::Relaxed) {
            return Err(faults::unreachable());
        }
        self.server.send(request).await
    }
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

/// The region that answers a read.
async fn region_of_read(world: &World, driver: &Driver) -> Region {
    let read = driver.execute(&world.read("1"), &OperationOptions::default()).await.unwrap();
    read.diagnostics.attempts().last().unwrap().region.clone()
}

/// A region is marked unavailable, and the runtime of the background task, which would probe
/// the region, shuts down. An operation on another runtime starts the task again.
#[test]
fn a_region_comes_back_after_the_runtime_of_the_background_task_is_gone() {
    let (main, other) = (runtime(), runtime());
    let options = EmbeddedOptions::default().with_regions(three_regions());
    let world = main.block_on(World::with(options, prefers_east()));
    main.block_on(world.run(&world.write(Verb::Create, "1", "a"))).unwrap();
    main.block_on(world.wait_for_replication());
    let endpoint = main.block_on(endpoint_of_east(&world));

    let is_down = Arc::new(AtomicBool::new(false));
    let transport = OneEndpointDown {
        server: world.server.embedded().transport(),
        endpoint,
        is_down: Arc::clone(&is_down),
    };
    let options = DriverOptions::default()
        .with_preferred_regions([EAST])
        .with_operation(OperationOptions::default().with_hedging(Hedging::Off))
        .with_topology(TopologyOptions::default().with_unavailable_for(Duration::from_millis(100)));
    let driver = other.block_on(world.server.driver_over(AnyTransport::foreign(transport), options));
    assert_eq!(other.block_on(region_of_read(&world, &driver)).name(), EAST);
    is_down.store(true, Ordering::Relaxed);
    assert_ne!(other.block_on(region_of_read(&world, &driver)).name(), EAST);

    other.shutdown_timeout(Duration::from_secs(10));
    is_down.store(false, Ordering::Relaxed);
    let before = Instant::now();
    main.block_on(async {
        while region_of_read(&world, &driver).await.name() != EAST {
            assert!(before.elapsed() < Duration::from_secs(30), "the region stays unavailable");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
}

/// The endpoint of the region East, as the driver's diagnostics name it.
async fn endpoint_of_east(world: &World) -> Endpoint {
    let read = world.run(&world.read("1")).await.unwrap();
    let attempt = read.diagnostics.attempts().last().unwrap();
    assert_eq!(attempt.region.name(), EAST);
    attempt.endpoint.clone()
}
