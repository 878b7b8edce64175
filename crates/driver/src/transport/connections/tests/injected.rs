//! The pool under injected faults, in simulated time: a connection that fails is evicted and
//! replaced, the pool grows while its connections are unhealthy, and shrinks afterwards.

use std::time::Duration;

use http::Method;
use perihelion_wire::transport::{FailureKind, Sent};
use tokio::time::{self, Instant};

use super::pipes::{Answer, World, options};
use super::{SECOND, STEP, after_step};
use crate::fault_injection::{FaultInjector, FaultRule, When};

#[tokio::test(start_paused = true)]
async fn a_shard_with_injected_failures_is_evicted_and_replaced() {
    let faults = FaultInjector::with_seed(1);
    let failing = faults.add(FaultRule::new().with_shard(1).with_reset(When::Before)).unwrap();
    let options = options().with_connections_min(2).with_fault_injection(&faults);
    let world = World::new(options, 20, after_step);
    let mut failures = Vec::new();
    for number in 0..60 {
        if let Err(failure) = world.send(Method::POST).await {
            assert_eq!((failure.kind, failure.sent), (FailureKind::Closed, Sent::Unknown), "{failure}");
            failures.push(number);
        }
        if number == 10 {
            assert_eq!(world.shards(), [1, 2], "within the grace period the shard stays, as the last choice");
        }
        time::sleep(STEP).await;
    }
    assert_eq!(failures, [0, 1, 2, 3, 4], "after five failures requests go to the other shard");
    assert_eq!(failing.hits(), 5);
    assert_eq!(world.shards(), [2, 3], "the shard was replaced");
    assert_eq!((world.open(), world.is_idle()), (2, true), "and its connection is closed");
}

#[tokio::test(start_paused = true)]
async fn while_all_shards_are_silent_the_pool_grows_to_its_maximum_and_not_beyond() {
    const SHARDS_MAX: usize = 6;
    let faults = FaultInjector::with_seed(1);
    let options =
        options().with_connections_min(2).with_connections_max(SHARDS_MAX).with_fault_injection(&faults);
    let world = World::new(options, 20, after_step);
    world.send(Method::GET).await.unwrap();
    time::sleep(STEP).await;
    assert_eq!(world.shards(), [1, 2]);
    let silent = faults.add(FaultRule::new().with_silence(When::Before)).unwrap();
    let mut most = 0;
    let (began, mut sending) = (Instant::now(), Vec::new());
    while began.elapsed() < 10 * SECOND {
        sending.push(world.send_many(3, Method::POST));
        time::sleep(STEP).await;
        most = most.max(world.shards().len());
        assert!(world.shards().len() <= SHARDS_MAX, "{:?}", world.shards());
    }
    assert_eq!(most, SHARDS_MAX, "suspect shards are replaced before they are closed");
    assert!(world.opened() > 2 * SHARDS_MAX, "every new shard falls silent too: {}", world.opened());
    // Soon after the rule is removed the pool works again, and all requests sent under the rule end.
    silent.remove();
    time::sleep(3 * SECOND).await;
    let sent_at = Instant::now();
    world.send(Method::POST).await.unwrap();
    assert!(sent_at.elapsed() < SECOND, "{:?}", sent_at.elapsed());
    for request in sending {
        for outcome in request.join_all().await {
            if let Err(failure) = outcome {
                assert_eq!(failure.kind, FailureKind::Closed, "{failure}");
            }
        }
    }
    assert!(world.is_idle());
}

#[tokio::test(start_paused = true)]
async fn after_the_faults_are_removed_the_pool_shrinks_to_its_minimum() {
    let faults = FaultInjector::with_seed(1);
    let options = options()
        .with_connections_min(2)
        .with_connections_max(10)
        .with_idle_timeout(30 * SECOND)
        .with_fault_injection(&faults);
    let world = World::new(options, 20, after_step);
    // Each request takes ten seconds, so that the load needs many connections.
    let slow = faults.add(FaultRule::new().with_delay(10 * SECOND)).unwrap();
    let burst = world.send_many(150, Method::GET);
    time::sleep(5 * SECOND).await;
    assert_eq!((world.shards().len(), world.in_use()), (10, 150), "delays occupy streams");
    slow.disable();
    for answer in burst.join_all().await {
        answer.unwrap();
    }
    assert_eq!(slow.hits(), 150);
    // One request at a time for 30 s: all connections but one become idle.
    for _ in 0..300 {
        world.send(Method::GET).await.unwrap();
    }
    time::sleep(SECOND).await;
    assert_eq!((world.shards().len(), world.open()), (2, 2));
    assert_eq!(world.opened(), 10, "no healthy connection was replaced");
    assert!(world.is_idle());
}

#[tokio::test(start_paused = true)]
async fn a_fault_on_one_shard_leaves_the_requests_of_the_others_alone() {
    let faults = FaultInjector::with_seed(1);
    let options = options().with_connections_min(3).with_fault_injection(&faults);
    let world = World::new(options, 20, after_step);
    world.send(Method::GET).await.unwrap();
    time::sleep(STEP).await;
    assert_eq!(world.shards(), [1, 2, 3]);
    let silent = faults.add(FaultRule::new().with_shard(1).with_silence(When::Before).with_count(1)).unwrap();
    let began = Instant::now();
    // The first request silences the first shard. After the read-hang limit (2 s), another shard
    // answers the request.
    let first = world.send_many(1, Method::GET);
    time::sleep(Duration::from_millis(1500)).await;
    assert_eq!(silent.hits(), 1);
    assert_eq!(world.shards(), [1, 2, 3], "the first shard is suspect, and is not closed before the limit");
    for _ in 0..4 {
        let sent_at = Instant::now();
        world.send(Method::POST).await.unwrap();
        assert_eq!(sent_at.elapsed(), STEP, "new requests go to other shards");
    }
    for answer in first.join_all().await {
        answer.unwrap();
    }
    assert!((2 * SECOND..3 * SECOND).contains(&began.elapsed()), "{:?}", began.elapsed());
    assert!(!world.shards().contains(&1) && world.shards().len() == 3, "{:?}", world.shards());
}

/// An injected delay does not show a bad connection, because pings are answered meanwhile. A
/// request that the delay holds back until its deadline counts as a failure of its connection.
#[tokio::test(start_paused = true)]
async fn a_delay_is_not_a_hang_but_its_timeouts_are_failures() {
    let faults = FaultInjector::with_seed(1);
    let world = World::new(options().with_fault_injection(&faults), 20, |_| Answer::After(STEP));
    faults.add(FaultRule::new().with_delay(20 * SECOND).with_count(1)).unwrap();
    let began = Instant::now();
    world.send(Method::POST).await.unwrap();
    assert_eq!((began.elapsed(), world.opened()), (20 * SECOND + STEP, 1));
    let late = faults.add(FaultRule::new().with_shard(1).with_delay(20 * SECOND)).unwrap();
    for _ in 0..6 {
        let failure = world.send_until(Method::GET, Instant::now() + SECOND).await.unwrap_err();
        assert_eq!((failure.kind, failure.sent), (FailureKind::Timeout, Sent::Unknown), "{failure}");
        assert_eq!(failure.incident, None, "the connection answers pings");
    }
    time::sleep(SECOND).await;
    assert!(late.hits() >= 5);
    assert!(!world.shards().contains(&1), "when all connections fail, the oldest is replaced");
    world.send(Method::GET).await.unwrap();
    assert!(world.is_idle());
}
