//! A driver outlives the runtime that it was opened on. These tests need two runtimes, so
//! the clock is real.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use perihelion_driver::operation::{Target, Verb};
use perihelion_driver::transport::{AnyTransport, HttpTransport};
use perihelion_driver::{Driver, DriverOptions, Operation, OperationOptions};
use perihelion_server::{EmbeddedOptions, InProcess};
use perihelion_testkit::regions::{EAST, three_regions};
use perihelion_wire::transport::{Failure, Request, Response, Transport};
use tokio::runtime::Runtime;
use tokio::sync::watch;

use crate::outage::Outage;
use crate::transport_peers::{
    Peer, echo, options_trusting_peers, serve_http1, serve_http1_together, serve_http2,
};
use crate::world::{World, ada};

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

/// Reads every 20 ms until East answers again.
async fn wait_for_east(outage: &Outage, at_most: Duration) {
    let before = Instant::now();
    while outage.region_of_read().await.name() != EAST {
        assert!(before.elapsed() < at_most, "the region stays unavailable");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A region is marked unavailable, and the runtime of the background task, which would probe
/// the region, shuts down. An operation on another runtime starts the task again.
#[test]
fn a_region_comes_back_after_the_runtime_of_the_background_task_has_shut_down() {
    let (main, other) = (runtime(), runtime());
    let outage = Outage::new(&main, &other, [Duration::ZERO; 2]);
    assert_eq!(other.block_on(outage.region_of_read()).name(), EAST);
    outage.set_down(true);
    assert_ne!(other.block_on(outage.region_of_read()).name(), EAST);

    other.shutdown_timeout(Duration::from_secs(10));
    outage.set_down(false);
    main.block_on(wait_for_east(&outage, Duration::from_secs(30)));
}

/// A runtime that makes progress only inside `block_on`.
fn runtime_of_one_thread() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// The background task belongs to a runtime that makes no progress any more. An operation on
/// another runtime starts the task again some seconds after an endpoint has failed.
#[test]
fn a_region_comes_back_though_the_runtime_of_the_background_task_makes_no_progress() {
    let (main, other) = (runtime(), runtime_of_one_thread());
    let outage = Outage::new(&main, &other, [Duration::ZERO; 2]);
    assert_eq!(other.block_on(outage.region_of_read()).name(), EAST);
    // The task ends its first round, and sleeps until the next one.
    other.block_on(async { tokio::time::sleep(Duration::from_millis(100)).await });
    outage.set_down(true);
    assert_ne!(main.block_on(outage.region_of_read()).name(), EAST);
    outage.set_down(false);
    main.block_on(wait_for_east(&outage, Duration::from_secs(12)));
    drop(other);
}

/// A transport on which the answers to requests of one kind are slow.
struct SlowAnswers {
    server: InProcess,
    is_slow: fn(&Request) -> bool,
    /// How many more requests are slow.
    slow_left: Arc<AtomicUsize>,
}

impl Transport for SlowAnswers {
    async fn send(&self, request: Request) -> Result<Response, Failure> {
        let one_less = |left: usize| left.checked_sub(1);
        let is_slow = (self.is_slow)(&request)
            && self.slow_left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less).is_ok();
        let answer = self.server.send(request).await;
        if is_slow {
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
        answer
    }
}

/// A driver of this world. The answers to its requests of one kind are slow while `slow_left` lasts.
async fn driver_with_slow_answers(
    world: &World,
    is_slow: fn(&Request) -> bool,
    slow_left: &Arc<AtomicUsize>,
) -> Driver {
    let transport = SlowAnswers {
        server: world.server.embedded().transport(),
        is_slow,
        slow_left: Arc::clone(slow_left),
    };
    let options = DriverOptions::default()
        .with_operation(OperationOptions::default().with_timeout(Duration::from_secs(20)));
    world.server.driver_over(AnyTransport::foreign(transport), options).await
}

/// The task that reads the metadata of a container was started on a runtime that exists, but makes
/// no progress any more. An operation on another runtime waits for that task only some seconds, and
/// not until the deadline of the operation.
#[test]
fn metadata_is_read_though_the_runtime_of_the_first_reader_makes_no_progress() {
    let (main, other) = (runtime(), runtime_of_one_thread());
    let world = main.block_on(World::with(EmbeddedOptions::default(), DriverOptions::default()));
    main.block_on(world.run(&world.write(Verb::Create, "1", "a"))).unwrap();
    let is_ranges = |request: &Request| request.target.path().ends_with("/pkranges");
    let slow_left = Arc::new(AtomicUsize::new(1));
    let driver = main.block_on(driver_with_slow_answers(&world, is_ranges, &slow_left));
    let read = Operation::new(
        Verb::Read,
        Target::item(&driver.container("shop", "orders"), "1"),
        ada(),
        bytes::Bytes::new(),
    );
    let options = OperationOptions::default();
    let given_up = other.block_on(async {
        tokio::time::timeout(Duration::from_millis(100), driver.execute(&read, &options)).await
    });
    assert!(given_up.is_err(), "the metadata is being read");
    let before = Instant::now();
    main.block_on(driver.execute(&read, &options)).unwrap();
    assert!(before.elapsed() < Duration::from_secs(8), "{:?}", before.elapsed());

    // The runtime `other` runs again, and its task ends. The ranges that this task has read no
    // longer exist.
    let container = driver.container("shop", "orders");
    main.block_on(world.split("0"));
    let known = main.block_on(driver.metadata(&container)).unwrap();
    let split = main.block_on(driver.refresh_metadata(&container, &known)).unwrap();
    assert_eq!(split.ranges.iter().count(), 2);
    assert!(driver.statistics().metadata_tasks > 0, "the task on `other` has not ended");
    other.block_on(async {
        while driver.statistics().metadata_tasks > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    let current = main.block_on(driver.metadata(&container)).unwrap();
    assert_eq!(current.ranges.iter().count(), 2, "the older ranges are not published");
}

/// An operation that refreshes the account is not polled any more, and is not dropped either.
/// Other operations wait for it only some seconds, and not until their own deadlines.
#[test]
fn the_account_is_refreshed_though_the_operation_that_refreshes_it_is_not_polled() {
    let (main, other) = (runtime(), runtime_of_one_thread());
    let options = EmbeddedOptions::default().with_regions(three_regions());
    let world = main.block_on(World::with(options, DriverOptions::default()));
    let slow_left = Arc::new(AtomicUsize::new(0));
    let is_account = |request: &Request| request.target.path() == "/";
    let driver = main.block_on(driver_with_slow_answers(&world, is_account, &slow_left));
    main.block_on(world.manage_region("regions/write", EAST));
    slow_left.store(1, Ordering::SeqCst);
    let container = driver.container("shop", "orders");
    let write = |id: &str| {
        let body = format!(r#"{{"id":"{id}","customer":"ada"}}"#);
        Operation::new(Verb::Upsert, Target::items(&container), ada(), body.into())
    };
    let (first, options) = (write("1"), OperationOptions::default());
    let mut stuck = Box::pin(driver.execute(&first, &options));
    let given_up =
        other.block_on(async { tokio::time::timeout(Duration::from_millis(500), &mut stuck).await });
    assert!(given_up.is_err(), "the account is being read");
    let before = Instant::now();
    main.block_on(driver.execute(&write("2"), &options)).unwrap();
    assert!(before.elapsed() < Duration::from_secs(8), "{:?}", before.elapsed());
    drop(stuck);
}

/// A connection was opened on a runtime that makes no progress any more. Requests on another
/// runtime use another connection.
#[test]
fn a_connection_of_a_runtime_that_makes_no_progress_is_replaced() {
    let (main, other) = (runtime(), runtime_of_one_thread());
    let peer = main.block_on(Peer::start("http", |_, stream| async {
        serve_http2(stream, 20, echo).await;
    }));
    let transport = HttpTransport::new(options_trusting_peers()).unwrap();
    other.block_on(transport.send(peer.get())).unwrap();
    let before = Instant::now();
    main.block_on(async {
        let soon = || tokio::time::Instant::now() + Duration::from_millis(500);
        while transport.send(Request { deadline: soon().into_std(), ..peer.get() }).await.is_err() {
            assert!(before.elapsed() < Duration::from_secs(10), "the connection stays in use");
        }
    });
    assert_eq!(peer.connections(), 2);
    drop(other);
}

/// A runtime shuts down while it opens a connection that a request on another runtime waits for.
/// The endpoint works, so that request opens a connection itself.
#[test]
fn a_runtime_that_ends_while_it_connects_does_not_fail_the_requests_of_other_runtimes() {
    let (main, other) = (runtime(), runtime());
    let peer = main.block_on(Peer::start("http", |number, stream| async move {
        if number == 1 {
            tokio::time::sleep(Duration::from_secs(60)).await;
        }
        serve_http2(stream, 20, echo).await;
    }));
    let transport = Arc::new(HttpTransport::new(options_trusting_peers()).unwrap());
    let (first, request) = (Arc::clone(&transport), peer.get());
    other.spawn(async move { first.send(request).await });
    let (second, request) = (Arc::clone(&transport), peer.get());
    main.block_on(async {
        while peer.connections() == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    let waiting = main.spawn(async move { second.send(request).await });
    main.block_on(async { tokio::time::sleep(Duration::from_millis(50)).await });
    other.shutdown_timeout(Duration::from_secs(5));
    main.block_on(waiting).unwrap().unwrap();
    assert_eq!(peer.connections(), 2);
}

/// Idle HTTP/1.1 connections belong to a runtime that makes no progress any more. Requests on
/// another runtime do not get them.
#[test]
fn an_idle_http1_connection_of_a_runtime_that_makes_no_progress_is_not_used() {
    let (main, other) = (runtime(), runtime_of_one_thread());
    let peer = main.block_on(Peer::start("http", |_, stream| serve_http1(stream)));
    let transport = HttpTransport::new(options_trusting_peers()).unwrap();
    other.block_on(async {
        let both = tokio::join!(transport.send(peer.get()), transport.send(peer.get()));
        both.0.unwrap();
        both.1.unwrap();
    });
    let idle = || transport.statistics().endpoints[0].http1_idle;
    let idle_before = idle();
    assert!(idle_before > 0);
    let before = Instant::now();
    main.block_on(transport.send(peer.get())).unwrap();
    assert!(before.elapsed() < Duration::from_secs(2), "{:?}", before.elapsed());
    assert_eq!(idle(), 1, "the connections of the other runtime are closed, and the new one is kept");
    // A connection whose runtime makes progress is used by requests on other runtimes, too.
    let connections = peer.connections();
    other.block_on(transport.send(peer.get())).unwrap();
    assert_eq!(peer.connections(), connections);
}

/// A peer over HTTP/1.1, and a transport with three idle connections to it. The connections belong to
/// the runtime `other`.
fn three_idle_connections(main: &Runtime, other: &Runtime) -> (Peer, HttpTransport) {
    let arrived = Arc::new(watch::Sender::new(0));
    let peer = main.block_on(Peer::start("http", move |_, stream| {
        let arrived = Arc::clone(&arrived);
        async move { serve_http1_together(3, stream, &arrived).await }
    }));
    let transport = HttpTransport::new(options_trusting_peers()).unwrap();
    other.block_on(async {
        let three =
            tokio::join!(transport.send(peer.get()), transport.send(peer.get()), transport.send(peer.get()));
        assert!(three.0.is_ok() && three.1.is_ok() && three.2.is_ok());
    });
    assert_eq!(transport.statistics().endpoints[0].http1_idle, 3);
    (peer, transport)
}

/// Idle HTTP/1.1 connections of a runtime that makes no progress any more delay only one request,
/// even if its caller gives up before a connection could have answered.
#[test]
fn idle_http1_connections_of_a_runtime_that_makes_no_progress_delay_at_most_one_request() {
    let (main, other) = (runtime(), runtime_of_one_thread());
    let (peer, transport) = three_idle_connections(&main, &other);
    let soon = || Instant::now() + Duration::from_millis(150);
    main.block_on(async {
        let first = transport.send(Request { deadline: soon(), ..peer.get() }).await;
        assert!(first.is_err(), "the request waits for a runtime that makes no progress");
        transport.send(Request { deadline: soon(), ..peer.get() }).await.unwrap();
    });
}

/// The time in which a connection of another runtime has to answer. The clock is real: when this process
/// gets no processor time for so long, the transport closes the connections, and a test shows nothing.
const ANSWER_WITHIN: Duration = Duration::from_millis(250);

/// How often a test is repeated that shows nothing because the machine was too slow.
const TRIES_MAX: usize = 100;

/// A runtime that is busy has idle HTTP/1.1 connections. A request on another runtime
/// gives up before the first of them could answer. The connections stay.
#[test]
fn a_request_that_gives_up_early_closes_no_idle_http1_connections() {
    let is_shown = (0..TRIES_MAX).any(|_| try_to_give_up_early());
    assert!(is_shown, "the machine was too slow each time");
}

/// Returns whether both requests had their answers, or gave up, before [`ANSWER_WITHIN`].
fn try_to_give_up_early() -> bool {
    let (main, other) = (runtime(), runtime());
    let (peer, transport) = three_idle_connections(&main, &other);
    let (begin, begun) = std::sync::mpsc::channel();
    let (end, ended) = std::sync::mpsc::channel::<()>();
    other.spawn(async move {
        begin.send(()).unwrap();
        ended.recv().unwrap();
    });
    begun.recv().unwrap();
    let before = Instant::now();
    let soon = before + Duration::from_millis(30);
    main.block_on(transport.send(Request { deadline: soon, ..peer.get() })).unwrap_err();
    let is_early = before.elapsed() < ANSWER_WITHIN;
    let idle = transport.statistics().endpoints[0].http1_idle;
    assert!(idle == 3 || !is_early, "{idle} idle connections after {:?}", before.elapsed());
    end.send(()).unwrap();
    // A runtime runs its tasks in the order in which they were woken. So when this task ends, the
    // connection that the request asked has answered. Until it answers, requests leave the connections
    // of its runtime alone.
    main.block_on(other.spawn(async {})).unwrap();
    let (connections, before) = (peer.connections(), Instant::now());
    main.block_on(transport.send(peer.get())).unwrap();
    let is_shown = is_early && before.elapsed() < ANSWER_WITHIN;
    assert!(peer.connections() == connections || !is_shown, "an idle connection is used");
    is_shown
}
