//! A runtime that is run only during calls: a current-thread runtime makes no progress between two
//! calls of `block_on`. Work that takes longer than one call goes on in the next call. The clock is
//! tokio's and paused; it advances between the calls.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Waker};
use std::time::Duration;

use perihelion_driver::operation::Verb;
use perihelion_driver::options::{Hedging, TopologyOptions};
use perihelion_driver::transport::AnyTransport;
use perihelion_driver::{DriverOptions, OperationOptions};
use perihelion_server::{EmbeddedOptions, InProcess};
use perihelion_testkit::faults;
use perihelion_testkit::regions::{EAST, three_regions};
use perihelion_wire::transport::{Endpoint, Failure, Request, Response, Transport};
use tokio::runtime::Runtime;

use crate::multi_region::prefers_east;
use crate::world::World;

/// How long a call takes.
const CALL: Duration = Duration::from_millis(10);

/// How long the slow endpoint takes to answer: longer than a call, so that the answer comes during a
/// later call.
const SLOW_ANSWER: Duration = Duration::from_millis(50);

/// The time between two calls. It is so long that every task is late when a call begins.
const BETWEEN_CALLS: Duration = Duration::from_secs(6);

/// A transport on which one endpoint cannot be reached for a while, and is slow afterwards.
struct OneEndpointSlow {
    server: InProcess,
    endpoint: Endpoint,
    is_down: Arc<AtomicBool>,
}

impl Transport for OneEndpointSlow {
    async fn send(&self, request: Request) -> Result<Response, Failure> {
        let is_slow = request.endpoint == self.endpoint;
        if is_slow && self.is_down.load(Ordering::Relaxed) {
            return Err(faults::unreachable());
        }
        let answer = self.server.send(request).await;
        tokio::time::sleep(if is_slow { SLOW_ANSWER } else { CALL }).await;
        answer
    }
}

/// Lets time pass while the runtime is not run.
fn pass_time_without_running(runtime: &Runtime, time: Duration) {
    let _entered = runtime.enter();
    let mut advance = pin!(tokio::time::advance(time));
    // The clock advances at the first poll.
    let _ = advance.as_mut().poll(&mut Context::from_waker(Waker::noop()));
}

#[test]
fn a_region_comes_back_though_its_probe_takes_longer_than_a_call() {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let options = EmbeddedOptions::default().with_regions(three_regions());
    let world = runtime.block_on(World::with(options, prefers_east()));
    let endpoint = runtime.block_on(async {
        world.run(&world.write(Verb::Create, "1", "a")).await.unwrap();
        world.wait_for_replication().await;
        let read = world.run(&world.read("1")).await.unwrap();
        read.diagnostics.attempts().last().unwrap().endpoint.clone()
    });
    let is_down = Arc::new(AtomicBool::new(false));
    let transport = OneEndpointSlow {
        server: world.server.embedded().transport(),
        endpoint,
        is_down: Arc::clone(&is_down),
    };
    let options = DriverOptions::default()
        .with_preferred_regions([EAST])
        .with_operation(OperationOptions::default().with_hedging(Hedging::Off))
        .with_topology(TopologyOptions::default().with_unavailable_for(Duration::from_millis(100)));
    let driver = runtime.block_on(world.server.driver_over(AnyTransport::foreign(transport), options));
    let region = || {
        let read = runtime.block_on(driver.execute(&world.read("1"), &OperationOptions::default())).unwrap();
        read.diagnostics.attempts().last().unwrap().region.clone()
    };
    assert_eq!(region().name(), EAST);
    is_down.store(true, Ordering::Relaxed);
    assert_ne!(region().name(), EAST);
    is_down.store(false, Ordering::Relaxed);
    let mut regions = Vec::new();
    for _ in 0..5 {
        pass_time_without_running(&runtime, BETWEEN_CALLS);
        regions.push(region());
    }
    assert_eq!(regions.last().unwrap().name(), EAST, "{regions:?}");
}
