//! Outages, each under constant load. A test passes if the load sees no lost write, no
//! read that goes back in time, and no failed operation.

use std::time::Duration;

use bytes::Bytes;
use http::Method;
use perihelion_driver::operation::{Target, Verb};
use perihelion_driver::{Operation, Region};
use perihelion_testkit::driver::{create_container, delete_container};
use perihelion_testkit::regions::{EAST, NORTH, WEST};

use super::MultiRegion;
use super::load::{self, Load};

/// The number of writes and of reads between two events of a test.
const OPERATIONS_BETWEEN_EVENTS: u64 = 150;

/// Takes a region offline. In the mode `drop` it closes connections, in the mode `refuse`
/// it answers every request with an error.
async fn take_offline(regions: &MultiRegion, region: &str, mode: &str) {
    let body = format!(r#"{{"region":"{region}","mode":"{mode}"}}"#);
    regions.manage(Method::POST, "regions/offline", &body).await;
}

#[tokio::test]
async fn a_read_region_that_goes_offline_fails_no_operation() {
    for mode in ["drop", "refuse"] {
        let regions = MultiRegion::new().await;
        let load = Load::start(&regions);
        load.continue_for(OPERATIONS_BETWEEN_EVENTS).await;
        take_offline(&regions, EAST, mode).await;
        load.continue_for(OPERATIONS_BETWEEN_EVENTS).await;
        regions.manage_region("regions/online", EAST).await;
        load.continue_for(OPERATIONS_BETWEEN_EVENTS).await;
        load.finish(&regions).await;
        assert_returns_to(&regions, EAST).await;
        regions.stop().await;
    }
}

/// Waits until the driver uses this region again by itself.
async fn assert_returns_to(regions: &MultiRegion, region: &str) {
    let returned = async {
        loop {
            let read = Operation::new(
                Verb::Read,
                Target::item(&regions.orders, "0"),
                crate::world::customer("c0"),
                Bytes::new(),
            );
            let response = regions.run(&read).await;
            if response.diagnostics.attempts().last().unwrap().region == Region::new(region) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), returned).await.expect("the region is used again");
}

/// Waits until the driver knows this many ranges. The driver reads the ranges again when an
/// answer names a new range, but at most every half second. So it may learn of the last
/// split after the load has ended.
async fn assert_knows_ranges(regions: &MultiRegion, ranges: usize) {
    let known = async {
        while regions.driver.metadata(&regions.orders).await.unwrap().ranges.len() != ranges {
            for key in 0..load::KEYS {
                regions.run(&load::read(&regions.orders, key)).await;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), known).await.expect("the driver knows the new ranges");
}

#[tokio::test]
async fn a_short_outage_of_the_write_region_fails_no_operation() {
    let regions = MultiRegion::new().await;
    let load = Load::start(&regions);
    load.continue_for(OPERATIONS_BETWEEN_EVENTS).await;
    take_offline(&regions, WEST, "drop").await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    regions.manage_region("regions/online", WEST).await;
    load.continue_for(OPERATIONS_BETWEEN_EVENTS).await;
    load.finish(&regions).await;
    regions.stop().await;
}

#[tokio::test]
async fn an_outage_of_one_of_several_write_regions_fails_no_operation() {
    let regions = MultiRegion::with_multi_write().await;
    let load = Load::start(&regions);
    load.continue_for(OPERATIONS_BETWEEN_EVENTS).await;
    take_offline(&regions, EAST, "drop").await;
    load.continue_for(OPERATIONS_BETWEEN_EVENTS).await;
    regions.manage_region("regions/online", EAST).await;
    load.continue_for(OPERATIONS_BETWEEN_EVENTS).await;
    load.finish(&regions).await;
    regions.stop().await;
}

#[tokio::test]
async fn a_move_of_the_write_region_fails_no_operation() {
    let regions = MultiRegion::new().await;
    let load = Load::start(&regions);
    load.continue_for(OPERATIONS_BETWEEN_EVENTS).await;
    for region in [EAST, NORTH, WEST] {
        regions.manage_region("regions/write", region).await;
        load.continue_for(OPERATIONS_BETWEEN_EVENTS).await;
        assert_eq!(regions.driver.account().write_regions, [Region::new(region)]);
    }
    load.finish(&regions).await;
    regions.stop().await;
}

#[tokio::test]
async fn a_slow_region_fails_no_operation() {
    let regions = MultiRegion::new().await;
    let load = Load::start(&regions);
    load.continue_for(OPERATIONS_BETWEEN_EVENTS).await;
    regions.fault(&format!(r#"{{"operation":"any","region":"{EAST}","delayMs":300}}"#)).await;
    load.continue_for(OPERATIONS_BETWEEN_EVENTS).await;
    regions.clear_faults().await;
    load.continue_for(OPERATIONS_BETWEEN_EVENTS).await;
    load.finish(&regions).await;
    regions.stop().await;
}

#[tokio::test]
async fn a_region_without_replication_fails_no_operation() {
    let regions = MultiRegion::new().await;
    let load = Load::start(&regions);
    load.continue_for(OPERATIONS_BETWEEN_EVENTS).await;
    regions.manage_region("replication/cut", EAST).await;
    load.continue_for(OPERATIONS_BETWEEN_EVENTS).await;
    regions.manage_region("replication/heal", EAST).await;
    load.continue_for(OPERATIONS_BETWEEN_EVENTS).await;
    load.finish(&regions).await;
    regions.stop().await;
}

#[tokio::test]
async fn splits_of_partitions_fail_no_operation() {
    let regions = MultiRegion::new().await;
    let load = Load::start(&regions);
    for range in ["0", "1", "2"] {
        load.continue_for(OPERATIONS_BETWEEN_EVENTS).await;
        regions.split("shop", "orders", Some(range)).await;
    }
    load.continue_for(OPERATIONS_BETWEEN_EVENTS).await;
    load.finish(&regions).await;
    assert_knows_ranges(&regions, 4).await;
    regions.stop().await;
}

#[tokio::test]
async fn a_container_that_is_created_again_fails_no_operation() {
    let regions = MultiRegion::new().await;
    let other = regions.other_driver().await;
    let load = Load::start(&regions);
    for _ in 0..2 {
        load.continue_for(OPERATIONS_BETWEEN_EVENTS).await;
        load.next_epoch();
        delete_container(&other, &regions.orders).await;
        create_container(&regions.driver, "shop", "orders", "/customer").await;
        load.next_epoch();
    }
    load.continue_for(OPERATIONS_BETWEEN_EVENTS).await;
    load.finish(&regions).await;
    regions.stop().await;
}
