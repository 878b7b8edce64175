//! A world of three regions, and a driver that prefers East. A test takes East down for a while. The
//! world and the driver can belong to two runtimes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

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
    /// How long an answer takes from this endpoint, and from another endpoint.
    answer_times: [Duration; 2],
}

impl Transport for OneEndpointDown {
    async fn send(&self, request: Request) -> Result<Response, Failure> {
        let [of_endpoint, of_others] = self.answer_times;
        let is_endpoint = request.endpoint == self.endpoint;
        if is_endpoint && self.is_down.load(Ordering::Relaxed) {
            return Err(faults::unreachable());
        }
        let answer = self.server.send(request).await;
        let time = if is_endpoint { of_endpoint } else { of_others };
        if !time.is_zero() {
            tokio::time::sleep(time).await;
        }
        answer
    }
}

/// A world with the document `1`, and a driver that reads it in East while East is up.
pub(crate) struct Outage {
    world: World,
    driver: Driver,
    is_down: Arc<AtomicBool>,
}

impl Outage {
    /// `main` runs the world, and `other` opens the driver. East is up. `answer_times` is how long an
    /// answer takes from East, and from another region.
    pub(crate) fn new(main: &Runtime, other: &Runtime, answer_times: [Duration; 2]) -> Outage {
        let options = EmbeddedOptions::default().with_regions(three_regions());
        let world = main.block_on(World::with(options, prefers_east()));
        main.block_on(world.run(&world.write(Verb::Create, "1", "a"))).unwrap();
        main.block_on(world.wait_for_replication());
        let is_down = Arc::new(AtomicBool::new(false));
        let transport = OneEndpointDown {
            server: world.server.embedded().transport(),
            endpoint: main.block_on(endpoint_of_east(&world)),
            is_down: Arc::clone(&is_down),
            answer_times,
        };
        let topology = TopologyOptions::default().with_unavailable_for(Duration::from_millis(100));
        let options = DriverOptions::default()
            .with_preferred_regions([EAST])
            .with_operation(OperationOptions::default().with_hedging(Hedging::Off))
            .with_topology(topology);
        let driver = other.block_on(world.server.driver_over(AnyTransport::foreign(transport), options));
        Outage { world, driver, is_down }
    }

    /// Takes East down, or up again.
    pub(crate) fn set_down(&self, is_down: bool) {
        self.is_down.store(is_down, Ordering::Relaxed);
    }

    /// The region that answers a read of the driver.
    pub(crate) async fn region_of_read(&self) -> Region {
        let read = self.driver.execute(&self.world.read("1"), &OperationOptions::default()).await.unwrap();
        read.diagnostics.attempts().last().unwrap().region.clone()
    }
}

/// The endpoint of the region East, as the driver's diagnostics name it.
async fn endpoint_of_east(world: &World) -> Endpoint {
    let read = world.run(&world.read("1")).await.unwrap();
    let attempt = read.diagnostics.attempts().last().unwrap();
    assert_eq!(attempt.region.name(), EAST);
    attempt.endpoint.clone()
}
