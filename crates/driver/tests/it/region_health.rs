//! Which failures of one operation make other operations avoid a region. A request that
//! fails in every region, or that had too little time, does not count against a region.

use std::time::Duration;

use perihelion_driver::OperationOptions;
use perihelion_driver::operation::Verb;
use perihelion_driver::options::Hedging;
use perihelion_driver::transport::AnyTransport;
use perihelion_server::EmbeddedOptions;
use perihelion_testkit::regions::{self, EAST, NORTH, WEST};
use perihelion_wire::transport::{Failure, FailureKind, Incident, Request, Response, Sent, Transport};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::multi_region::prefers_east;
use crate::world::World;

/// Three regions that all have the document `1`; East is preferred.
async fn three_regions() -> World {
    let regions = regions::three_regions();
    let world = World::with(EmbeddedOptions::default().with_regions(regions), prefers_east()).await;
    world.run(&world.write(Verb::Create, "1", "a")).await.unwrap();
    world.wait_for_replication().await;
    world
}

fn unhedged() -> OperationOptions {
    OperationOptions::default().with_hedging(Hedging::Off)
}

/// The region that a read goes to now.
async fn region_of_a_read(world: &World) -> String {
    let response = world.driver.execute(&world.read("1"), &unhedged()).await.unwrap();
    response.diagnostics.attempts().next().unwrap().region.to_string()
}

/// The status 500 may be the fault of the service or of the request. If every region
/// answers with it, the request is at fault, and the regions stay in use.
#[tokio::test(start_paused = true)]
async fn a_request_that_fails_in_every_region_counts_against_no_region() {
    let world = three_regions().await;
    assert_eq!(region_of_a_read(&world).await, EAST);
    world.fault(r#"{"operation":"read_item","status":500}"#).await;
    // With two regions, the four attempts go to East, West, East and West.
    let two_regions = unhedged().with_excluded_regions([NORTH]);
    for _ in 0..3 {
        let error = world.driver.execute(&world.read("1"), &two_regions).await.unwrap_err();
        assert_eq!(error.status().unwrap().code, 500);
    }
    world.clear_faults().await;
    assert_eq!(region_of_a_read(&world).await, EAST);
}

#[tokio::test(start_paused = true)]
async fn a_region_that_fails_alone_is_avoided() {
    let world = three_regions().await;
    world.fault(&format!(r#"{{"operation":"read_item","region":"{EAST}","status":500}}"#)).await;
    for _ in 0..2 {
        assert_eq!(region_of_a_read(&world).await, EAST);
    }
    assert_eq!(region_of_a_read(&world).await, WEST, "West answered both reads, so the breaker is open");
}

#[tokio::test(start_paused = true)]
async fn a_timeout_that_is_too_short_does_not_count_against_a_region() {
    let world = three_regions().await;
    world.fault(r#"{"operation":"read_item","delayMs":100}"#).await;
    assert_eq!(region_of_a_read(&world).await, EAST);
    let impatient = unhedged().with_timeout(Duration::from_millis(20));
    for _ in 0..3 {
        assert!(world.driver.execute(&world.read("1"), &impatient).await.unwrap_err().is_timeout());
    }
    assert_eq!(region_of_a_read(&world).await, EAST);
}

#[tokio::test(start_paused = true)]
async fn a_region_that_does_not_answer_is_avoided() {
    let world = three_regions().await;
    world.fault(&format!(r#"{{"operation":"read_item","region":"{EAST}","delayMs":30000}}"#)).await;
    for _ in 0..2 {
        assert_eq!(region_of_a_read(&world).await, EAST);
    }
    assert_eq!(region_of_a_read(&world).await, WEST);
}

/// A transport on which all requests to one region fail while `incident` is set. The failures are
/// parts of that incident.
struct FailingRegion {
    inner: AnyTransport,
    host_label: &'static str,
    incident: watch::Receiver<Option<Incident>>,
}

impl Transport for FailingRegion {
    async fn send(&self, request: Request) -> Result<Response, Failure> {
        let incident = *self.incident.borrow();
        match incident {
            Some(incident) if request.endpoint.host().contains(self.host_label) => {
                let failure = Failure::new(FailureKind::Closed, Sent::Unknown, "the connection ended");
                Err(failure.with_incident(incident))
            }
            Some(_) | None => self.inner.send(request).await,
        }
    }
}

/// A connection with eight reads of one partition ends. For the circuit breaker this is one
/// failure, so the region stays in use. Two connections that end without a success between them
/// open the breaker.
#[tokio::test(start_paused = true)]
async fn the_end_of_a_connection_is_one_failure_for_the_circuit_breaker() {
    let world = three_regions().await;
    let (switch, incident) = watch::channel(None);
    let transport = FailingRegion { inner: world.transport(), host_label: "east-us", incident };
    let client = world.driver_over(AnyTransport::foreign(transport), prefers_east()).await;
    let first_region = async || {
        let response = client.execute(&world.read("1"), &unhedged()).await.unwrap();
        response.diagnostics.attempts().next().unwrap().region.to_string()
    };
    let end_a_connection = async || {
        switch.send_replace(Some(Incident::next()));
        let reads: JoinSet<_> = (0..8)
            .map(|_| {
                let (client, operation) = (client.clone(), world.read("1"));
                async move { client.execute(&operation, &unhedged()).await.unwrap() }
            })
            .collect();
        for response in reads.join_all().await {
            assert_eq!(response.diagnostics.attempts().last().unwrap().region.name(), WEST);
        }
        switch.send_replace(None);
    };
    assert_eq!(first_region().await, EAST);
    end_a_connection().await;
    assert_eq!(first_region().await, EAST, "one failure, and then a success");
    end_a_connection().await;
    end_a_connection().await;
    assert_eq!(first_region().await, WEST, "two failures in a row");
}
