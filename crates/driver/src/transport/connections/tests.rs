//! The pool over pipes in memory, in simulated time: how it grows and shrinks, and each
//! rule of `health`.

mod given_up;
#[cfg(feature = "fault-injection")]
mod injected;
mod pipes;

use std::time::Duration;

use http::Method;
use perihelion_wire::transport::{FailureKind, Sent};
use tokio::time::{self, Instant};

use self::pipes::{Answer, World, options};

const SECOND: Duration = Duration::from_secs(1);
const STEP: Duration = Duration::from_millis(100);

/// Answers each request after one step, on every connection.
fn after_step(_: u64) -> Answer {
    Answer::After(STEP)
}

/// A connection has 20 streams. When more than three quarters of them are in use, another connection
/// is opened.
#[tokio::test(start_paused = true)]
async fn a_second_connection_is_opened_before_the_first_is_full() {
    let world = World::new(options(), 20, after_step);
    let few = world.send_many(15, Method::GET);
    time::sleep(STEP / 2).await;
    assert_eq!((world.opened(), world.in_use()), (1, 15));
    few.join_all().await;
    let more = world.send_many(16, Method::GET);
    time::sleep(STEP / 2).await;
    assert_eq!((world.opened(), world.in_use()), (2, 16));
    assert_eq!(world.waiting(), 0, "no request had to wait for the second connection");
    for answer in more.join_all().await {
        answer.unwrap();
    }
    assert_eq!(world.in_use(), 0);
}

#[tokio::test(start_paused = true)]
async fn requests_wait_for_streams_when_no_more_connections_are_allowed() {
    let world = World::new(options().with_connections_max(2), 2, after_step);
    let began = Instant::now();
    for answer in world.send_many(40, Method::GET).join_all().await {
        answer.unwrap();
    }
    // Two connections with two streams each answer four requests per step, so 40 requests take
    // ten steps. In the first step the second connection may not be open yet.
    let rounds = began.elapsed().as_millis() / STEP.as_millis();
    assert!((10..=11).contains(&rounds), "{:?}", began.elapsed());
    assert_eq!((world.opened(), world.peak_per_connection()), (2, 2));
    assert_eq!((world.in_use(), world.waiting()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_request_waits_for_a_stream_no_longer_than_its_deadline() {
    let world = World::new(options().with_connections_max(1), 1, |_| Answer::Never);
    let first = world.send_many(1, Method::GET);
    time::sleep(STEP).await;
    let began = Instant::now();
    let failure = world.send_until(Method::GET, began + SECOND).await.unwrap_err();
    assert_eq!((failure.kind, failure.sent, began.elapsed()), (FailureKind::Timeout, Sent::No, SECOND));
    assert_eq!(world.waiting(), 0, "the request has left the queue");
    drop(first);
    time::sleep(STEP).await;
    assert_eq!(world.in_use(), 0);
}

#[tokio::test(start_paused = true)]
async fn the_peers_settings_lower_the_limit() {
    let world = World::new(options(), 3, after_step);
    for answer in world.send_many(30, Method::GET).join_all().await {
        answer.unwrap();
    }
    assert_eq!(world.peak_per_connection(), 3);
    // Thirty requests need ten connections. A few more are opened ahead of need.
    assert!((10..=14).contains(&world.opened()), "{} connections", world.opened());
    // A peer that allows more streams does not raise the limit of the options.
    let world = World::new(options().with_streams_per_connection_max(5), 100, after_step);
    world.send_many(30, Method::GET).join_all().await;
    assert_eq!(world.peak_per_connection(), 5);
}

#[tokio::test(start_paused = true)]
async fn idle_connections_are_closed_down_to_the_minimum() {
    let world = World::new(options().with_connections_min(2).with_idle_timeout(30 * SECOND), 20, after_step);
    world.send_many(100, Method::GET).join_all().await;
    let opened = world.opened();
    assert!((5..=7).contains(&opened), "{opened} connections");
    assert_eq!(world.shards().len(), opened);
    // One request at a time needs one connection. The others become idle.
    for _ in 0..250 {
        world.send(Method::GET).await.unwrap();
    }
    assert_eq!(world.shards().len(), opened, "after 25 s no connection was idle for 30 s");
    time::sleep(10 * SECOND).await;
    assert_eq!(world.shards().len(), 2);
    world.send(Method::GET).await.unwrap();
    time::sleep(120 * SECOND).await;
    assert_eq!((world.shards().len(), world.opened()), (2, opened), "the minimum stays open");
}

#[tokio::test(start_paused = true)]
async fn requests_that_are_not_polled_give_their_streams_back() {
    let world = World::new(options().with_connections_max(1), 20, after_step);
    world.send(Method::GET).await.unwrap();
    // Forty requests, of which twenty have to wait. They are polled once.
    let mut unpolled: Vec<_> = (0..40).map(|_| Box::pin(world.send(Method::GET))).collect();
    for request in &mut unpolled {
        let polled = std::future::poll_fn(|cx| std::task::Poll::Ready(request.as_mut().poll(cx))).await;
        assert!(polled.is_pending());
    }
    time::sleep(5 * STEP).await;
    assert_eq!((world.in_use(), world.waiting()), (0, 0));
    let began = Instant::now();
    world.send(Method::GET).await.unwrap();
    assert_eq!(began.elapsed(), STEP);
    for request in unpolled {
        request.await.unwrap();
    }
}

/// The connection that carries the requests falls silent. Its reads are answered on another
/// connection, its writes fail with `Sent::Unknown`, and the connection is closed.
#[tokio::test(start_paused = true)]
async fn a_silent_connection_with_requests_is_closed_and_its_reads_go_to_another_connection() {
    for ping_interval in [Some(SECOND), None] {
        let options = options().with_connections_min(2).with_ping_interval(ping_interval);
        let world = World::new(options, 20, after_step);
        world.send(Method::GET).await.unwrap();
        time::sleep(SECOND).await;
        assert_eq!(world.shards(), [1, 2]);
        world.freeze(1);
        let (began, reads, writes) =
            (Instant::now(), world.send_many(10, Method::GET), world.send_many(3, Method::POST));
        time::sleep(Duration::from_millis(1800)).await;
        assert_eq!(world.shards(), [1, 2], "the read-hang limit of 2 s is not over");
        let sent_at = Instant::now();
        world.send(Method::GET).await.unwrap();
        assert_eq!(sent_at.elapsed(), STEP, "a silent connection gets no new requests");
        for answer in reads.join_all().await {
            answer.unwrap();
        }
        assert!(began.elapsed() < Duration::from_millis(2600), "{:?}", began.elapsed());
        let failures: Vec<_> = writes.join_all().await.into_iter().map(Result::unwrap_err).collect();
        for failure in &failures {
            assert_eq!((failure.kind, failure.sent), (FailureKind::Closed, Sent::Unknown), "{failure}");
            assert!(failure.incident.is_some() && failure.incident == failures[0].incident);
        }
        assert!(!world.shards().contains(&1));
        assert_eq!(world.in_use(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_answer_is_awaited_as_long_as_pings_are_answered() {
    for ping_interval in [Some(SECOND), None] {
        let world =
            World::new(options().with_ping_interval(ping_interval), 20, |_| Answer::After(30 * SECOND));
        let began = Instant::now();
        world.send(Method::POST).await.unwrap();
        assert_eq!((began.elapsed(), world.opened()), (30 * SECOND, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_that_answers_no_ping_is_closed() {
    let world = World::new(options(), 20, after_step);
    world.send(Method::GET).await.unwrap();
    world.freeze(1);
    time::sleep(5 * SECOND).await;
    assert!(world.shards().is_empty());
    world.send(Method::GET).await.unwrap();
    assert_eq!(world.shards(), [2]);
}

#[tokio::test(start_paused = true)]
async fn timeouts_on_a_silent_connection_are_one_incident() {
    let world = World::new(options(), 20, after_step);
    world.send(Method::GET).await.unwrap();
    world.freeze(1);
    let deadline = Instant::now() + SECOND;
    let (first, second) =
        tokio::join!(world.send_until(Method::GET, deadline), world.send_until(Method::POST, deadline));
    let (first, second) = (first.unwrap_err(), second.unwrap_err());
    assert_eq!((first.kind, first.sent), (FailureKind::Timeout, Sent::Unknown));
    assert!(first.incident.is_some() && first.incident == second.incident);
    // On a connection that answers pings, each request is slow on its own.
    let world = World::new(options(), 20, |_| Answer::Never);
    let failure = world.send_until(Method::GET, Instant::now() + 3 * SECOND).await.unwrap_err();
    assert_eq!((failure.kind, failure.incident), (FailureKind::Timeout, None));
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_fails_while_others_work_is_retired() {
    let world = World::new(options().with_connections_min(2), 20, |number| match number {
        1 => Answer::Reset,
        _ => Answer::After(STEP),
    });
    let mut failures = 0;
    for _ in 0..60 {
        failures += usize::from(world.send(Method::GET).await.is_err());
        time::sleep(STEP).await;
    }
    assert_eq!(failures, 5, "after five failures the other connection is the better choice");
    assert_eq!(world.shards(), [2, 3], "the minimum is kept");
}

#[tokio::test(start_paused = true)]
async fn when_all_connections_fail_a_new_one_is_tried() {
    let world = World::new(options().with_connections_min(2), 20, |number| match number {
        1 | 2 => Answer::Reset,
        _ => Answer::After(STEP),
    });
    let mut outcomes = Vec::new();
    for _ in 0..100 {
        outcomes.push(world.send(Method::GET).await.is_ok());
        time::sleep(STEP).await;
    }
    let first_success = outcomes.iter().position(|is_ok| *is_ok).unwrap();
    // Both connections have failed five times within the first second. They are kept until
    // `FAILURE_GRACE` (2 s) is over.
    assert!((20..40).contains(&first_success), "{first_success}");
    assert!(outcomes[first_success..].iter().all(|is_ok| *is_ok), "{outcomes:?}");
    assert!(!world.shards().contains(&1) && !world.shards().contains(&2), "{:?}", world.shards());
    assert!(world.opened() <= 5, "failing connections are replaced one at a time: {}", world.opened());
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_goes_away_is_replaced_without_a_failure() {
    let world = World::new(options(), 20, |_| Answer::After(3 * SECOND));
    let before = world.send_many(5, Method::POST);
    time::sleep(STEP).await;
    world.send_goaway(1);
    time::sleep(SECOND).await;
    assert!(world.shards().is_empty(), "the GOAWAY is noticed without a request");
    let after = world.send_many(5, Method::POST);
    for answer in before.join_all().await.into_iter().chain(after.join_all().await) {
        answer.unwrap();
    }
    assert_eq!(world.shards(), [2]);
}

/// While timers fire late, the connection may only seem silent because this process is slow. So
/// the connection is kept, and is closed when the timers are on time again.
#[tokio::test(start_paused = true)]
async fn nothing_is_evicted_while_this_process_is_starved_of_cpu() {
    let world = World::new(options(), 20, after_step);
    world.send(Method::GET).await.unwrap();
    world.freeze(1);
    let mut reads = world.send_many(1, Method::GET);
    for _ in 0..10 {
        time::advance(Duration::from_millis(800)).await;
        // The tasks whose timers were due run now.
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
        assert_eq!(world.shards(), [1]);
    }
    assert!(reads.try_join_next().is_none());
    let began = Instant::now();
    reads.join_next().await.unwrap().unwrap().unwrap();
    assert!(began.elapsed() < 4 * SECOND, "{:?}", began.elapsed());
    assert!(!world.shards().contains(&1));
}

/// The test behaves as if the two connections belonged to two runtimes: only the timers of the first
/// connection fire late.
#[tokio::test(start_paused = true)]
async fn a_late_runtime_holds_back_the_eviction_of_its_own_connections_only() {
    let world = World::new(options().with_connections_min(2), 20, after_step);
    world.send_many(16, Method::GET).join_all().await;
    time::sleep(SECOND).await;
    assert_eq!(world.shards(), [1, 2]);
    world.freeze(2);
    for _ in 0..20 {
        world.fire_timer_late(1);
        time::sleep(SECOND / 2).await;
    }
    let shards = world.shards();
    assert!(shards.contains(&1) && !shards.contains(&2), "{shards:?}");
}
