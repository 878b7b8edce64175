//! Hedging, measured with three regions in this process: tail latency with one slow
//! region, a threshold that follows the latency, and almost no extra requests while
//! all regions work. Every region takes a few milliseconds of tokio's paused time,
//! so that the figures are exact.

use std::time::Duration;

use bytes::Bytes;
use perihelion_driver::diagnostics::{Context, Outcome};
use perihelion_driver::operation::{Target, Verb};
use perihelion_driver::options::{CircuitBreakerOptions, Hedging};
use perihelion_driver::{DriverOptions, Operation, OperationOptions, Response};
use perihelion_server::EmbeddedOptions;
use perihelion_testkit::regions::{self, EAST, NORTH, WEST};
use tokio::time::Instant;

use crate::multi_region::prefers_east;
use crate::world::{World, ada, document};

/// The usual latency of a region.
const USUAL_MS: u64 = 5;

/// Options without circuit breakers. A breaker would avoid a slow region after a few
/// reads, and these tests are about hedging alone.
fn without_breaker() -> DriverOptions {
    prefers_east().with_circuit_breaker(CircuitBreakerOptions::default().with_enabled(false))
}

async fn three_regions(is_multi_write: bool, options: DriverOptions) -> World {
    let regions = regions::three_regions();
    let server = EmbeddedOptions::default().with_regions(regions).with_multi_write(is_multi_write);
    World::with(server, options).await
}

/// One write region, and the document `1` in all regions. A read takes the usual time.
async fn with_an_order(options: DriverOptions) -> World {
    let world = three_regions(false, options).await;
    world.run(&world.write(Verb::Create, "1", "a")).await.unwrap();
    world.wait_for_replication().await;
    delay_reads(&world, USUAL_MS).await;
    world
}

/// Makes reads take this long in every region.
async fn delay_reads(world: &World, milliseconds: u64) {
    world.clear_faults().await;
    world.fault(&format!(r#"{{"operation":"read_item","delayMs":{milliseconds}}}"#)).await;
}

/// Makes reads take 300 ms in East, and the usual time in the other regions.
async fn slow_east(world: &World) {
    world.clear_faults().await;
    world.fault(&format!(r#"{{"operation":"read_item","region":"{EAST}","delayMs":300}}"#)).await;
    world.fault(&format!(r#"{{"operation":"read_item","delayMs":{USUAL_MS}}}"#)).await;
}

/// Reads the document `count` times, one read after the other. Returns the times that the
/// reads took, sorted.
async fn read_many(world: &World, count: usize) -> Vec<Duration> {
    let mut times = Vec::with_capacity(count);
    for _ in 0..count {
        let before = Instant::now();
        let response = world.run(&world.read("1")).await.unwrap();
        times.push(before.elapsed());
        assert_eq!(document(&response)["stamp"], "a");
    }
    times.sort();
    times
}

/// The 99th percentile of sorted times.
fn p99(sorted: &[Duration]) -> Duration {
    sorted[sorted.len() * 99 / 100]
}

fn hedge_count(response: &Response) -> usize {
    response.diagnostics.attempts().filter(|attempt| attempt.context == Context::Hedge).count()
}

#[tokio::test(start_paused = true)]
async fn one_slow_region_does_not_raise_the_tail_latency() {
    let world = with_an_order(without_breaker()).await;
    read_many(&world, 200).await;
    slow_east(&world).await;
    let times = read_many(&world, 100).await;
    // The usual latency is a few milliseconds, so the threshold has its lowest value.
    let limit = Hedging::DYNAMIC_MIN + Duration::from_millis(50);
    assert!(p99(&times) < limit, "p99 {:?} with one slow region", p99(&times));
    let response = world.run(&world.read("1")).await.unwrap();
    let regions: Vec<_> = response.diagnostics.attempts().map(|attempt| attempt.region.to_string()).collect();
    assert_eq!(regions, [EAST, WEST], "both legs are in the diagnostics, the loser first");
    assert!(matches!(response.diagnostics.attempts().next().unwrap().outcome, Outcome::Abandoned));
}

#[tokio::test(start_paused = true)]
async fn a_region_that_stays_slow_is_soon_no_longer_asked_first() {
    let world = with_an_order(prefers_east()).await;
    read_many(&world, 50).await;
    slow_east(&world).await;
    read_many(&world, 10).await;
    let response = world.run(&world.read("1")).await.unwrap();
    let first = response.diagnostics.attempts().next().unwrap();
    assert_eq!((first.region.name(), hedge_count(&response)), (WEST, 0), "{}", response.diagnostics);
}

#[tokio::test(start_paused = true)]
async fn the_threshold_rises_when_all_regions_become_slower() {
    let world = with_an_order(without_breaker()).await;
    read_many(&world, 200).await;
    // All regions become slower, as when the client moves to another continent. The first
    // reads are hedged. Then the threshold rises, and reads are not hedged any more.
    delay_reads(&world, 120).await;
    let mut hedged = Vec::new();
    for _ in 0..80 {
        hedged.push(hedge_count(&world.run(&world.read("1")).await.unwrap()));
    }
    assert!(hedged[..5].contains(&1), "right after the shift reads are hedged");
    let late: usize = hedged[60..].iter().sum();
    assert!(late <= 2, "the threshold has not followed: {late} hedges in the last 20 reads");
}

#[tokio::test(start_paused = true)]
async fn hedging_adds_almost_no_requests_while_all_regions_work() {
    let world = with_an_order(prefers_east()).await;
    read_many(&world, 100).await;
    let before = world.requests("read_item").await;
    const READS: usize = 1000;
    read_many(&world, READS).await;
    let requests = world.requests("read_item").await - before;
    assert!(requests < READS as u64 * 102 / 100, "{requests} requests for {READS} reads");
}

#[tokio::test(start_paused = true)]
async fn an_operation_can_turn_hedging_off_or_set_its_threshold() {
    let world = with_an_order(without_breaker()).await;
    slow_east(&world).await;
    let run = async |hedging| {
        let options = OperationOptions::default().with_hedging(hedging);
        let before = Instant::now();
        let response = world.driver.execute(&world.read("1"), &options).await.unwrap();
        (hedge_count(&response), before.elapsed())
    };
    let (count, elapsed) = run(Hedging::Off).await;
    assert!(count == 0 && elapsed >= Duration::from_millis(300), "{count} {elapsed:?}");
    let (count, elapsed) = run(Hedging::Fixed(Duration::from_millis(10))).await;
    assert!(count == 1 && elapsed < Duration::from_millis(150), "{count} {elapsed:?}");
}

/// Options that hedge reads and writes after 20 ms.
fn options_that_hedge_writes() -> OperationOptions {
    let threshold = Hedging::Fixed(Duration::from_millis(20));
    OperationOptions::default().with_hedging(threshold).with_hedged_writes(true)
}

/// There was a defect: the first leg of a hedged upsert arrived late, and overwrote the next
/// write, which was already acknowledged.
#[tokio::test(start_paused = true)]
async fn a_write_is_not_hedged_unless_the_caller_allows_it() {
    let world = three_regions(true, without_breaker()).await;
    world.fault(&format!(r#"{{"operation":"upsert_item","region":"{EAST}","delayMs":300}}"#)).await;
    let hedged = OperationOptions::default().with_hedging(Hedging::Fixed(Duration::from_millis(20)));
    let upsert = world.write(Verb::Upsert, "1", "a");
    let response = world.driver.execute(&upsert, &hedged).await.unwrap();
    assert_eq!(hedge_count(&response), 0, "{}", response.diagnostics);
    let response = world.driver.execute(&upsert, &options_that_hedge_writes()).await.unwrap();
    assert_eq!(hedge_count(&response), 1, "{}", response.diagnostics);
}

/// The primary leg of a replace is slow, and the alternate leg goes to a region that does
/// not have the document yet. There was a defect: the caller got the 404 of the alternate
/// leg, although the primary leg replaced the document.
#[tokio::test(start_paused = true)]
async fn a_hedged_write_is_not_refused_by_a_region_that_is_behind() {
    let world = three_regions(true, without_breaker()).await;
    for region in [WEST, NORTH] {
        world.manage_region("replication/cut", region).await;
    }
    let other = world.other_driver(without_breaker()).await;
    other.execute(&world.write(Verb::Create, "1", "a"), &OperationOptions::default()).await.unwrap();
    let rule = |more: &str| {
        format!(r#"{{"operation":"replace_item","region":"{EAST}","count":1,"delayMs":300{more}}}"#)
    };
    world.fault(&rule("")).await;
    let options = options_that_hedge_writes();
    let replace = world.write(Verb::Replace, "1", "b");
    let response = world.driver.execute(&replace, &options).await.unwrap();
    assert_eq!(hedge_count(&response), 1, "{}", response.diagnostics);
    // The answer to the primary leg is lost, so the write is ambiguous and not refused.
    world.fault(&rule(r#","drop":"after""#)).await;
    let options = options.with_failovers_max(0);
    let error = world.driver.execute(&world.write(Verb::Replace, "1", "c"), &options).await.unwrap_err();
    assert!(error.is_ambiguous(), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn writes_are_hedged_only_where_every_region_takes_them() {
    for (is_multi_write, expected) in [(true, 1), (false, 0)] {
        let world = three_regions(is_multi_write, without_breaker()).await;
        let slow = if is_multi_write { EAST } else { WEST };
        world.fault(&format!(r#"{{"operation":"upsert_item","region":"{slow}","delayMs":300}}"#)).await;
        let body = Bytes::from_static(br#"{"id":"1","customer":"ada","n":2}"#);
        let upsert = Operation::new(Verb::Upsert, Target::items(&world.orders), ada(), body);
        let response = world.driver.execute(&upsert, &options_that_hedge_writes()).await.unwrap();
        let diagnostics = &response.diagnostics;
        assert_eq!(hedge_count(&response), expected, "multi-write {is_multi_write}: {diagnostics}");
    }
}

/// A container that was just created is not replicated to all regions yet.
#[tokio::test(start_paused = true)]
async fn a_second_region_that_lacks_metadata_does_not_win() {
    let options = OperationOptions::default().with_hedging(Hedging::Fixed(Duration::from_millis(20)));
    let world = three_regions(false, without_breaker().with_operation(options)).await;
    world.fault(&format!(r#"{{"operation":"container","region":"{EAST}","delayMs":200}}"#)).await;
    world.fault(r#"{"operation":"container","status":404}"#).await;
    world.run(&world.write(Verb::Create, "1", "a")).await.unwrap();
}

/// Each failed leg counts for the circuit breaker of East.
#[tokio::test(start_paused = true)]
async fn a_failed_leg_counts_for_the_breaker_though_the_other_leg_answered() {
    let options = OperationOptions::default().with_hedging(Hedging::Fixed(Duration::from_millis(20)));
    let world = with_an_order(prefers_east().with_operation(options)).await;
    world.clear_faults().await;
    world.fault(&format!(r#"{{"operation":"read_item","region":"{EAST}","delayMs":60,"status":503}}"#)).await;
    world.fault(r#"{"operation":"read_item","delayMs":100}"#).await;
    for _ in 0..2 {
        let response = world.run(&world.read("1")).await.unwrap();
        let lost = response.diagnostics.attempts().next().unwrap();
        assert_eq!((lost.region.name(), &lost.effects[..]), (EAST, &["partition_failed"][..]));
    }
    let response = world.run(&world.read("1")).await.unwrap();
    assert_eq!(response.diagnostics.regions()[0].name(), WEST, "two failures open the breaker");
}

/// East loses a race, both regions refuse the next read, and East loses another race. The refused
/// read has no winner, so East has lost two races in a row.
#[tokio::test(start_paused = true)]
async fn a_race_without_a_winner_does_not_end_a_series_of_lost_races() {
    let breaker = CircuitBreakerOptions::default().with_hedge_losses(2).with_read_failures(100);
    let options = OperationOptions::default().with_hedging(Hedging::Fixed(Duration::from_millis(20)));
    let world = with_an_order(prefers_east().with_circuit_breaker(breaker).with_operation(options)).await;
    slow_east(&world).await;
    read_many(&world, 1).await;
    world.clear_faults().await;
    world.fault(r#"{"operation":"read_item","count":2,"delayMs":60,"status":503}"#).await;
    let response = world.run(&world.read("1")).await.unwrap();
    assert_eq!(hedge_count(&response), 1, "{}", response.diagnostics);
    slow_east(&world).await;
    read_many(&world, 1).await;
    let response = world.run(&world.read("1")).await.unwrap();
    assert_eq!(response.diagnostics.regions()[0].name(), WEST, "{}", response.diagnostics);
}
