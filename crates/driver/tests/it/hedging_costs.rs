//! The costs of hedging: how many hedges are sent, whether they count against a region, and
//! which request units are reported.

use std::time::Duration;

use bytes::Bytes;
use perihelion_driver::diagnostics::Context;
use perihelion_driver::operation::{Target, Verb};
use perihelion_driver::options::Hedging;
use perihelion_driver::{DriverOptions, Operation, OperationOptions, Response};
use perihelion_server::EmbeddedOptions;
use perihelion_testkit::regions::{EAST, WEST, three_regions};

use crate::multi_region::prefers_east;
use crate::world::{World, ada};

/// Three regions that all have the document `1`; East is preferred.
async fn with_an_order(options: DriverOptions) -> World {
    let world = World::with(EmbeddedOptions::default().with_regions(three_regions()), options).await;
    world.run(&world.write(Verb::Create, "1", "a")).await.unwrap();
    world.wait_for_replication().await;
    world
}

fn hedged() -> OperationOptions {
    OperationOptions::default().with_hedging(Hedging::Fixed(Duration::from_millis(20)))
}

async fn read(world: &World, options: &OperationOptions) -> Response {
    world.driver.execute(&world.read("1"), options).await.unwrap()
}

fn hedge_count(response: &Response) -> usize {
    response.diagnostics.attempts().filter(|attempt| attempt.context == Context::Hedge).count()
}

/// The defect: point reads of 5 ms set the threshold, and every query of 800 ms was sent twice.
#[tokio::test(start_paused = true)]
async fn fast_point_reads_do_not_cause_hedges_of_slow_queries() {
    let world = with_an_order(prefers_east()).await;
    world.fault(r#"{"operation":"read_item","delayMs":5}"#).await;
    world.fault(r#"{"operation":"query","delayMs":800}"#).await;
    let body = Bytes::from_static(br#"{"query":"SELECT * FROM c"}"#);
    let query = Operation::new(Verb::Query, Target::items(&world.orders), ada(), body);
    let mut hedges = 0;
    for _ in 0..12 {
        // There are so few queries that they do not change the P99 of all operations.
        for _ in 0..200 {
            read(&world, &OperationOptions::default()).await;
        }
        let response = world.run(&query).await.unwrap();
        assert!(response.diagnostics.elapsed() >= Duration::from_millis(800), "{}", response.diagnostics);
        hedges += hedge_count(&response);
    }
    assert_eq!(hedges, 0, "12 queries of 800 ms");
}

/// A region with many requests under way becomes slow. Only two of them may be hedged.
#[tokio::test(start_paused = true)]
async fn concurrent_hedges_have_a_budget() {
    let world = with_an_order(prefers_east().with_hedges_max(2)).await;
    world.fault(&format!(r#"{{"operation":"read_item","region":"{EAST}","delayMs":300}}"#)).await;
    world.fault(&format!(r#"{{"operation":"read_item","region":"{WEST}","delayMs":100}}"#)).await;
    let reads: Vec<_> = (0..10)
        .map(|_| {
            let (driver, read) = (world.driver.clone(), world.read("1"));
            tokio::spawn(async move { hedge_count(&driver.execute(&read, &hedged()).await.unwrap()) })
        })
        .collect();
    let mut hedges = 0;
    for read in reads {
        hedges += read.await.unwrap();
    }
    assert_eq!(hedges, 2);
    // The permits come back when the alternate legs are answered.
    assert_eq!(hedge_count(&read(&world, &hedged()).await), 1);
}

/// A region that hangs does not answer its legs for 30 s. These legs lose their races, and must not
/// spend the budget of hedges.
#[tokio::test(start_paused = true)]
async fn first_legs_that_lose_do_not_spend_the_budget() {
    let world = with_an_order(prefers_east().with_hedges_max(2)).await;
    world.fault(&format!(r#"{{"operation":"read_item","region":"{EAST}","delayMs":30000}}"#)).await;
    for number in 0..10 {
        let response = read(&world, &hedged()).await;
        let elapsed = response.diagnostics.elapsed();
        assert!(elapsed < Duration::from_secs(1), "read {number} took {elapsed:?}");
    }
}

/// A throttled region is not slow. The defect: after five throttled reads, its breaker opened,
/// and all reads went to the next region.
#[tokio::test(start_paused = true)]
async fn a_throttled_leg_does_not_count_as_a_lost_race() {
    let world = with_an_order(prefers_east()).await;
    let rule = format!(
        r#"{{"operation":"read_item","region":"{EAST}","status":429,"subStatus":3200,"retryAfterMs":100}}"#
    );
    world.fault(&rule).await;
    for _ in 0..8 {
        let response = read(&world, &hedged()).await;
        let regions: Vec<_> =
            response.diagnostics.regions().into_iter().map(|region| region.name()).collect();
        assert_eq!(regions, [EAST, WEST], "East is asked first, and West answers");
        let first = response.diagnostics.attempts().next().unwrap();
        assert_eq!(
            (first.region.name(), first.throttled),
            (EAST, 1),
            "the throttled answer is in the diagnostics"
        );
    }
}

/// The losing leg is answered after the operation has ended.
#[tokio::test(start_paused = true)]
async fn the_charge_of_the_losing_leg_is_reported() {
    let world = with_an_order(prefers_east()).await;
    let usual = read(&world, &OperationOptions::default()).await.diagnostics.charge();
    assert!(usual > 0.0);
    world.fault(&format!(r#"{{"operation":"read_item","region":"{EAST}","delayMs":300}}"#)).await;
    let response = read(&world, &hedged()).await;
    assert_eq!(response.region().unwrap().name(), WEST);
    assert_eq!(response.diagnostics.charge(), usual, "the losing leg is not answered yet");
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(response.diagnostics.charge(), 2.0 * usual);
}
