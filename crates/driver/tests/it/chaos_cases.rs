//! Defects that the chaos test found, each as the shortest case that shows it.

use std::time::Duration;

use http::Method;
use perihelion_driver::operation::Verb;
use perihelion_server::EmbeddedOptions;
use perihelion_testkit::regions::{self, EAST, NORTH, WEST};

use crate::multi_region::prefers_east;
use crate::world::{World, document};

async fn three_regions(is_multi_write: bool, replication_delay: Duration) -> World {
    let server = EmbeddedOptions::default()
        .with_regions(regions::three_regions())
        .with_multi_write(is_multi_write)
        .with_replication_delay(replication_delay);
    World::with(server, prefers_east()).await
}

/// Seed 4, one write region: West refuses everything, and the service moves the write
/// region to North. The defect: a write in progress was retried only in West, and was
/// reported as ambiguous when its retries were spent.
#[tokio::test(start_paused = true)]
async fn a_write_in_progress_follows_the_write_region() {
    let world = three_regions(false, Duration::ZERO).await;
    world.run(&world.write(Verb::Create, "1", "a")).await.unwrap();
    let offline = format!(r#"{{"region":"{WEST}","mode":"refuse"}}"#);
    world.manage(Method::POST, "regions/offline", &offline).await;
    let (driver, upsert) = (world.driver.clone(), world.write(Verb::Upsert, "1", "b"));
    let write = tokio::spawn(async move { driver.execute(&upsert, &Default::default()).await });
    tokio::time::sleep(Duration::from_millis(100)).await;
    world.manage_region("regions/write", NORTH).await;
    let written = write.await.unwrap().unwrap();
    assert_eq!(written.diagnostics.attempts().last().unwrap().region.name(), NORTH);
    assert_eq!(document(&world.run(&world.read("1")).await.unwrap())["stamp"], "b");
}

/// Seed 2, all regions take writes: East takes a write and goes offline for clients before
/// the write is replicated. The defect: a read of that session tried the other regions and
/// failed (404/1002) after a tenth of a second. Replication is rarely that fast.
#[tokio::test(start_paused = true)]
async fn a_read_waits_for_replication_when_the_region_of_its_session_is_offline() {
    let world = three_regions(true, Duration::from_millis(400)).await;
    world.run(&world.write(Verb::Create, "1", "a")).await.unwrap();
    world.manage_region("regions/offline", EAST).await;
    let read = world.run(&world.read("1")).await.unwrap();
    assert_eq!(document(&read)["stamp"], "a");
}

/// Seed 124, all regions take writes: East refuses reads but takes writes. The defect: each
/// attempt of a read asked for all writes up to the start of the attempt. The other regions
/// had these writes a moment later, but by then the next attempt asked for newer writes.
#[tokio::test(start_paused = true)]
async fn a_retried_read_does_not_ask_for_newer_writes() {
    let world = three_regions(true, Duration::from_millis(50)).await;
    world.run(&world.write(Verb::Create, "1", "a")).await.unwrap();
    world.fault(&format!(r#"{{"operation":"read_item","region":"{EAST}","status":503}}"#)).await;
    let (driver, upsert) = (world.driver.clone(), world.write(Verb::Upsert, "2", "busy"));
    let writer = tokio::spawn(async move {
        loop {
            driver.execute(&upsert, &Default::default()).await.unwrap();
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    for _ in 0..5 {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let before = tokio::time::Instant::now();
        assert_eq!(document(&world.run(&world.read("1")).await.unwrap())["stamp"], "a");
        assert!(before.elapsed() <= Duration::from_millis(250), "{:?}", before.elapsed());
    }
    writer.abort();
}
