//! Ambiguous writes with several regions: which reads prove that a write was applied,
//! which prove that it was not, and which prove nothing.

use std::time::Duration;

use perihelion_driver::diagnostics::Resolution;
use perihelion_driver::operation::{Verb, Witness};
use perihelion_driver::options::{Hedging, ReadConsistency};
use perihelion_driver::transport::AnyTransport;
use perihelion_driver::{DriverOptions, Operation, OperationOptions, Region};
use perihelion_server::{EmbeddedOptions, InProcess};
use perihelion_testkit::regions::{self, EAST, NORTH, WEST};
use perihelion_wire::transport::{Failure, Request, Response, Transport};

use crate::multi_region::prefers_east;
use crate::world::World;

/// Writes go to West, reads to East.
async fn three_regions(options: DriverOptions) -> World {
    let regions = regions::three_regions();
    World::with(EmbeddedOptions::default().with_regions(regions), options).await
}

/// A create whose first answer will be lost. Replication between all three regions is cut.
async fn lost_create(world: &World) -> Operation {
    world.run(&world.write(Verb::Create, "0", "a")).await.unwrap();
    world.wait_for_replication().await;
    for region in [EAST, NORTH] {
        world.manage_region("replication/cut", region).await;
    }
    world.fault(r#"{"operation":"create_item","count":1,"drop":"after"}"#).await;
    let witness = Witness { id: "1".to_owned(), pointer: "/stamp".to_owned(), value: "mine".into() };
    world.write(Verb::Create, "1", "mine").with_witness(witness)
}

/// West has applied the create, and refuses to read the witness. East answers that the witness does
/// not exist, which proves nothing, because East may be behind. So the result stays ambiguous.
#[tokio::test(start_paused = true)]
async fn a_region_that_may_be_behind_proves_nothing() {
    let world = three_regions(prefers_east()).await;
    let create = lost_create(&world).await;
    world.fault(&format!(r#"{{"operation":"read_item","region":"{WEST}","status":503}}"#)).await;
    let options = OperationOptions::default().with_read_consistency(ReadConsistency::Eventual);
    let error = world.driver.execute(&create, &options).await.unwrap_err();
    assert!(error.is_ambiguous(), "the write was applied: {error:?}");
    let regions = error.diagnostics().regions();
    assert!(
        regions.iter().any(|region| region.name() == EAST),
        "the read of the witness is in the diagnostics: {regions:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_witness_is_read_in_an_excluded_write_region_too() {
    let world = three_regions(prefers_east()).await;
    let create = lost_create(&world).await;
    let options = OperationOptions::default().with_excluded_regions([WEST]);
    let created = world.driver.execute(&create, &options).await.unwrap();
    assert!(created.diagnostics.resolution().is_some());
    let starts: Vec<_> = created.diagnostics.attempts().map(|attempt| attempt.started_after).collect();
    assert_eq!(starts.len(), 2, "the witness is read before the create is sent again: {starts:?}");
    assert!(
        starts.is_sorted() && !starts[1].is_zero(),
        "all attempts count from the start of the operation: {starts:?}"
    );
}

/// All regions take writes, and the options leave only East. The defect: the witness was
/// read in West, which is preferred but excluded, and did not have the document yet. So the
/// 409 of the retry was reported as a refusal, although the first attempt was applied.
#[tokio::test(start_paused = true)]
async fn a_witness_is_not_read_in_a_region_that_the_write_could_not_go_to() {
    let server = EmbeddedOptions::default().with_regions(regions::three_regions()).with_multi_write(true);
    let prefers_west = DriverOptions::default().with_preferred_regions([WEST, EAST, NORTH]);
    let world = World::with(server, prefers_west).await;
    let create = lost_create(&world).await;
    let options = OperationOptions::default().with_excluded_regions([WEST, NORTH]);
    let created = world.driver.execute(&create, &options).await.unwrap();
    assert_eq!(created.diagnostics.resolution(), Some(Resolution::Witnessed));
    assert_eq!(created.diagnostics.regions(), [&Region::new(EAST)]);
}

/// A transport to an account whose reads have eventual consistency, unless the options ask for more.
struct EventualAccount(InProcess);

impl Transport for EventualAccount {
    async fn send(&self, request: Request) -> Result<Response, Failure> {
        let is_account = request.target.path() == "/";
        let (head, mut body) = self.0.send(request).await?.into_parts();
        if is_account {
            let text = String::from_utf8(body.to_vec()).unwrap();
            assert!(text.contains(r#""Session""#), "{text}");
            body = text.replace(r#""Session""#, r#""Eventual""#).into();
        }
        Ok(Response::from_parts(head, body))
    }
}

/// The answer to a create is lost, its repeat is refused, and a replica does not find the witness.
/// With eventual consistency the replica may be behind, so the refusal does not mean that the create
/// was not applied.
#[tokio::test(start_paused = true)]
async fn a_replica_that_may_be_behind_proves_nothing() {
    for is_eventual in [true, false] {
        let world = World::new().await;
        let server = world.server.embedded().transport();
        let transport = match is_eventual {
            true => AnyTransport::foreign(EventualAccount(server)),
            false => AnyTransport::foreign(server),
        };
        let driver = world.server.driver_over(transport, DriverOptions::default()).await;
        let witness = Witness { id: "1".to_owned(), pointer: "/stamp".to_owned(), value: "mine".into() };
        let create = world.write(Verb::Create, "1", "mine").with_witness(witness);
        world.fault(r#"{"operation":"create_item","count":1,"drop":"after"}"#).await;
        world.fault(r#"{"operation":"read_item","status":404}"#).await;
        let error = driver.execute(&create, &OperationOptions::default()).await.unwrap_err();
        assert_eq!((error.is_ambiguous(), error.is_conflict()), (is_eventual, !is_eventual), "{error:?}");
    }
}

/// Both legs of a hedged delete arrive, and the second one finds nothing to delete.
/// The operation has still succeeded.
#[tokio::test(start_paused = true)]
async fn a_hedged_delete_is_not_refused_because_its_other_leg_succeeded() {
    let regions = regions::three_regions();
    let server = EmbeddedOptions::default().with_regions(regions).with_multi_write(true);
    let world = World::with(server, prefers_east()).await;
    world.run(&world.write(Verb::Create, "1", "a")).await.unwrap();
    world.wait_for_replication().await;
    // The first leg is applied and its answer lost before the second leg is served.
    let rule =
        format!(r#"{{"operation":"delete_item","region":"{EAST}","count":1,"delayMs":50,"drop":"after"}}"#);
    world.fault(&rule).await;
    world.fault(r#"{"operation":"delete_item","delayMs":100}"#).await;
    let threshold = Hedging::Fixed(Duration::from_millis(20));
    let options = OperationOptions::default().with_hedging(threshold).with_hedged_writes(true);
    let deleted = world.driver.execute(&world.delete("1"), &options).await.unwrap();
    assert_eq!(deleted.diagnostics.resolution(), Some(Resolution::AlreadyGone));
    let absent = world.driver.execute(&world.delete("1"), &options).await.unwrap_err();
    assert!(absent.is_not_found(), "404 from both legs is returned: {absent:?}");
}
