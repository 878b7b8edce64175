//! Connections whose callers give up, and connections of a runtime that makes no progress.

use http::Method;
use perihelion_wire::transport::{FailureKind, Sent};
use tokio::runtime::Builder;
use tokio::time::{self, Instant};

use super::pipes::{Answer, World, options};
use super::{SECOND, STEP};
use crate::pulse::{LATE_AFTER, RESUME_GRACE};

/// The first connection answers pings. It does not answer requests, or it sends only the heads of
/// the answers. Its callers give up long before their deadlines. After five of them, the connection
/// gets no more requests, and is replaced.
#[tokio::test(start_paused = true)]
async fn a_connection_without_whole_answers_is_replaced_though_callers_give_up() {
    for has_heads in [false, true] {
        let world = World::new(options().with_connections_min(2), 20, move |number| match number {
            1 if has_heads => Answer::HeadOnly,
            1 => Answer::Never,
            _ => Answer::After(STEP),
        });
        let mut callers = world.send_many(5, Method::GET);
        time::sleep(6 * STEP).await;
        assert_eq!(world.shards(), [1, 2]);
        callers.abort_all();
        while callers.join_next().await.is_some() {}
        time::sleep(STEP / 10).await;
        let began = Instant::now();
        world.send_until(Method::GET, began + SECOND).await.unwrap();
        assert_eq!(began.elapsed(), STEP, "a failing connection is the last choice");
        time::sleep(3 * SECOND).await;
        assert!(!world.shards().contains(&1), "{:?}", world.shards());
    }
}

/// The first connection answers pings, and sends the heads of answers, but no bodies.
#[tokio::test(start_paused = true)]
async fn a_connection_whose_bodies_never_arrive_is_replaced() {
    let answer = |number| if number == 1 { Answer::HeadOnly } else { Answer::After(STEP) };
    let world = World::new(options().with_connections_min(2), 20, answer);
    let mut failures = 0;
    for _ in 0..60 {
        let deadline = Instant::now() + 6 * STEP;
        failures += usize::from(world.send_until(Method::GET, deadline).await.is_err());
    }
    assert_eq!(failures, 5, "after five failures the other connection is the better choice");
    assert!(!world.shards().contains(&1), "{:?}", world.shards());
}

/// Callers that give up at once say nothing about a connection.
#[tokio::test(start_paused = true)]
async fn a_request_that_had_little_time_does_not_count_against_its_connection() {
    let world = World::new(options().with_connections_min(2), 20, |_| Answer::After(3 * STEP));
    for _ in 0..10 {
        assert!(time::timeout(STEP, world.send(Method::GET)).await.is_err());
    }
    time::sleep(3 * SECOND).await;
    assert_eq!(world.shards(), [1, 2]);
}

/// The task that opens a connection belongs to a runtime that makes no progress. A request does
/// not wait for that task until the deadline of the request.
#[tokio::test(start_paused = true)]
async fn an_opening_on_a_stuck_runtime_is_replaced() {
    let world = World::new(options(), 20, |_| Answer::After(STEP));
    let stuck = Builder::new_current_thread().enable_time().build().unwrap();
    {
        let _entered = stuck.enter();
        world.open_shard();
    }
    assert_eq!((world.opened(), world.opening()), (0, 1));
    let began = Instant::now();
    world.send(Method::GET).await.unwrap();
    assert!(began.elapsed() < LATE_AFTER + SECOND, "{:?}", began.elapsed());
    assert_eq!((world.opened(), world.opening(), world.shards().len()), (1, 0, 1));
    stuck.shutdown_background();
    tokio::task::yield_now().await;
    assert_eq!(world.opening(), 0, "the end of the interrupted task is not subtracted a second time");
    world.send(Method::GET).await.unwrap();
}

/// The task of a connection makes no progress any more. When it has not run again in time, another
/// connection is opened.
#[tokio::test(start_paused = true)]
async fn a_connection_on_a_stuck_runtime_is_replaced() {
    let world = World::new(options(), 20, |_| Answer::After(STEP));
    world.send(Method::GET).await.unwrap();
    assert_eq!(world.shards(), [1]);
    time::sleep(2 * LATE_AFTER).await;
    world.wait_for_check(1).await;
    // As if the task had not run since the connection was opened.
    world.stop_pulse(1);
    let began = Instant::now();
    world.send(Method::GET).await.unwrap();
    assert_eq!(began.elapsed(), RESUME_GRACE + STEP);
    assert_eq!(world.shards(), [2]);
}

/// The whole process was stopped for a while. When it continues, all connections look stuck. Their
/// tasks run a moment later, and the connections stay.
#[tokio::test(start_paused = true)]
async fn connections_stay_when_the_whole_process_was_stopped() {
    let world = World::new(options(), 20, |_| Answer::After(STEP));
    world.send(Method::GET).await.unwrap();
    time::sleep(2 * LATE_AFTER).await;
    world.wait_for_check(1).await;
    // The task of an idle connection runs every second, so it runs again after one more step.
    time::sleep(SECOND - STEP).await;
    world.stop_pulse(1);
    let began = Instant::now();
    world.send(Method::GET).await.unwrap();
    // The request waits until the task runs again, and no longer.
    let waited = began.elapsed() - STEP;
    assert!(waited > STEP / 2 && waited <= STEP, "{waited:?}");
    assert_eq!((world.shards(), world.opened()), (vec![1], 1));
}

/// The loser of a hedge is awaited for its charge. It is one request on one connection: when its
/// connection ends, it is not sent again.
#[tokio::test(start_paused = true)]
async fn a_read_whose_answer_is_not_needed_is_sent_once() {
    for is_needed in [true, false] {
        let world = World::new(options().with_connections_min(2), 20, |_| Answer::After(60 * SECOND));
        let deadline = Instant::now() + 9 * SECOND;
        let waiting = if is_needed {
            tokio::spawn(world.send_until(Method::GET, deadline))
        } else {
            tokio::spawn(world.send_once_until(Method::GET, deadline))
        };
        time::sleep(SECOND).await;
        world.freeze(1);
        let failure = waiting.await.unwrap().unwrap_err();
        // The read that is needed runs into its deadline on the second connection.
        let kind = if is_needed { FailureKind::Timeout } else { FailureKind::Closed };
        assert_eq!((failure.kind, failure.sent == Sent::No), (kind, false), "{failure}");
    }
}
