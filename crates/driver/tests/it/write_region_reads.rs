//! Reads that need a write of their session, while the write region cannot be asked. Another
//! region may have the write.

use perihelion_driver::operation::Verb;
use perihelion_driver::{OperationOptions, Region};
use perihelion_server::EmbeddedOptions;
use perihelion_testkit::regions::{self, EAST, NORTH, WEST};

use crate::multi_region::prefers_east;
use crate::world::{World, document};

/// Writes go to West, reads to East. East does not have the document `1` yet; North has it.
async fn east_is_behind() -> World {
    let server = EmbeddedOptions::default().with_regions(regions::three_regions());
    let world = World::with(server, prefers_east()).await;
    world.run(&world.write(Verb::Create, "0", "a")).await.unwrap();
    world.wait_for_replication().await;
    world.manage_region("replication/cut", EAST).await;
    world.run(&world.write(Verb::Create, "1", "a")).await.unwrap();
    let north_only = OperationOptions::default().with_excluded_regions([WEST, EAST]);
    world.driver.execute(&world.read("1"), &north_only).await.expect("North has the document");
    world
}

/// The defect: North was asked to answer only if it is the write region, and refused (403/3).
#[tokio::test(start_paused = true)]
async fn with_the_write_region_excluded_a_read_finds_another_region_that_has_the_write() {
    let world = east_is_behind().await;
    let options = OperationOptions::default().with_excluded_regions([WEST]);
    let read = world.driver.execute(&world.read("1"), &options).await.unwrap();
    assert_eq!(document(&read)["stamp"], "a");
    assert_eq!(read.diagnostics.regions(), [EAST, NORTH].map(Region::new).iter().collect::<Vec<_>>());
}

/// The read of document `0` fails and opens the breaker of the write region. So the next read does
/// not spend its failovers in that region.
#[tokio::test(start_paused = true)]
async fn with_the_write_region_down_a_read_finds_another_region_that_has_the_write() {
    let world = east_is_behind().await;
    world.fault(&format!(r#"{{"operation":"read_item","region":"{WEST}","status":503}}"#)).await;
    let west_only = OperationOptions::default().with_excluded_regions([EAST, NORTH]);
    world.driver.execute(&world.read("0"), &west_only).await.unwrap_err();
    let read = world.driver.execute(&world.read("1"), &OperationOptions::default()).await.unwrap();
    assert_eq!(document(&read)["stamp"], "a");
    assert_eq!(read.diagnostics.regions(), [EAST, NORTH].map(Region::new).iter().collect::<Vec<_>>());
}
