//! Reading a container's metadata: which operations wait for the read and how long, and
//! which error they report when the read fails. The clock is tokio's and paused.

use std::time::Duration;

use bytes::Bytes;
use perihelion_driver::diagnostics::Outcome;
use perihelion_driver::operation::{Target, Verb};
use perihelion_driver::transport::AnyTransport;
use perihelion_driver::{Driver, DriverOptions, Error, ErrorKind, Operation, OperationOptions, Response};
use perihelion_server::InProcess;
use perihelion_wire::headers;
use perihelion_wire::transport::{Failure, Request, Transport};
use tokio::time::Instant;

use crate::world::{World, ada};

async fn run_with_timeout(
    driver: &Driver,
    operation: &Operation,
    timeout: Duration,
) -> Result<Response, Error> {
    driver.execute(operation, &OperationOptions::default().with_timeout(timeout)).await
}

#[tokio::test(start_paused = true)]
async fn an_operation_waits_for_the_read_of_another_task_until_its_own_timeout() {
    let world = World::new().await;
    world.fault(r#"{"operation":"container","count":1,"delayMs":20000}"#).await;
    let (driver, read) = (world.driver.clone(), world.read("1"));
    let patient =
        tokio::spawn(async move { run_with_timeout(&driver, &read, Duration::from_secs(60)).await });
    tokio::task::yield_now().await;
    let before = Instant::now();
    let error =
        run_with_timeout(&world.driver, &world.read("1"), Duration::from_millis(300)).await.unwrap_err();
    assert_eq!((error.kind(), before.elapsed()), (ErrorKind::Timeout, Duration::from_millis(300)), "{error}");
    assert!(patient.await.unwrap().unwrap_err().is_not_found(), "the other task is not affected");
}

/// The first operation that needs the metadata is cancelled. The read of the metadata goes on,
/// and the next operation finds its result.
#[tokio::test(start_paused = true)]
async fn an_operation_that_waits_for_metadata_may_be_cancelled() {
    let world = World::new().await;
    world.fault(r#"{"operation":"container","count":1,"delayMs":5000}"#).await;
    let before = world.requests("container").await;
    let (driver, read) = (world.driver.clone(), world.read("1"));
    let cancelled =
        tokio::spawn(async move { run_with_timeout(&driver, &read, Duration::from_secs(60)).await });
    tokio::time::sleep(Duration::from_millis(100)).await;
    cancelled.abort();
    tokio::time::sleep(Duration::from_secs(5)).await;
    let error =
        run_with_timeout(&world.driver, &world.read("1"), Duration::from_millis(300)).await.unwrap_err();
    assert!(error.is_not_found(), "{error:?}");
    assert_eq!(world.requests("container").await - before, 1);
}

/// Each request for metadata takes longer than an operation may take.
#[tokio::test(start_paused = true)]
async fn operations_with_short_timeouts_share_one_read_of_the_metadata() {
    let world = World::new().await;
    world.run(&world.write(Verb::Upsert, "1", "a")).await.unwrap();
    let driver = world.other_driver(DriverOptions::default()).await;
    world.fault(r#"{"operation":"container","delayMs":150}"#).await;
    world.fault(r#"{"operation":"read_ranges","delayMs":150}"#).await;
    let orders = driver.container("shop", "orders");
    let read = Operation::new(Verb::Read, Target::item(&orders, "1"), ada(), Bytes::new());
    let mut timeouts = 0;
    while let Err(error) = run_with_timeout(&driver, &read, Duration::from_millis(100)).await {
        assert!(error.is_timeout(), "{error:?}");
        timeouts += 1;
        assert!(timeouts < 10, "the metadata is never read");
    }
    // The ranges take two requests of 150 ms: one page, and an answer that there are no more. The
    // container is read at the same time.
    assert_eq!(timeouts, 3);
}

/// The runtime on which the metadata is read shuts down. An operation on another runtime
/// starts the read again.
#[test]
fn a_read_of_metadata_is_started_again_when_its_runtime_has_shut_down() {
    let runtime =
        || tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (main, other) = (runtime(), runtime());
    let world = main.block_on(World::new());
    main.block_on(world.fault(r#"{"operation":"container","count":1,"delayMs":60000}"#));
    let timeout = Duration::from_millis(50);
    let error = other.block_on(run_with_timeout(&world.driver, &world.read("1"), timeout)).unwrap_err();
    assert!(error.is_timeout(), "{error:?}");
    other.shutdown_background();
    let timeout = Duration::from_secs(30);
    let error = main.block_on(run_with_timeout(&world.driver, &world.read("1"), timeout)).unwrap_err();
    assert!(error.is_not_found(), "{error:?}");
}

/// The first request for metadata hangs for a minute. The driver has no other region.
#[tokio::test(start_paused = true)]
async fn a_hung_read_of_metadata_does_not_take_all_the_time_of_an_operation() {
    for operation in ["container", "read_ranges"] {
        let world = World::new().await;
        world.fault(&format!(r#"{{"operation":"{operation}","count":1,"delayMs":60000}}"#)).await;
        let before = Instant::now();
        let error = world.run(&world.read("1")).await.unwrap_err();
        assert!(error.is_not_found(), "{error:?}");
        assert!(before.elapsed() < Duration::from_secs(10), "{operation}: {:?}", before.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn waiting_tasks_share_one_failure() {
    let world = World::new().await;
    world.fault(r#"{"operation":"container","status":400,"delayMs":50}"#).await;
    let before = world.requests("container").await;
    let tasks = (0..20).map(|_| {
        let (driver, read) = (world.driver.clone(), world.read("1"));
        tokio::spawn(async move { run_with_timeout(&driver, &read, Duration::from_secs(60)).await })
    });
    for task in tasks.collect::<Vec<_>>() {
        assert_eq!(task.await.unwrap().unwrap_err().status().unwrap().code, 400);
    }
    assert_eq!(world.requests("container").await - before, 1);
    world.clear_faults().await;
    assert!(world.run(&world.read("1")).await.unwrap_err().is_not_found(), "the failure is not kept");
}

#[tokio::test(start_paused = true)]
async fn a_failed_read_of_metadata_reports_its_attempts() {
    let world = World::new().await;
    world.fault(r#"{"operation":"container","status":503}"#).await;
    let error = world.run(&world.read("1")).await.unwrap_err();
    let outcomes: Vec<_> = error.diagnostics().attempts().map(|attempt| &attempt.outcome).collect();
    assert_eq!(outcomes.len(), 4, "one attempt and three retries: {error:?}");
    assert!(
        outcomes.iter().all(|outcome| matches!(outcome, Outcome::Answered(status) if status.code == 503))
    );
}

/// The answer to the first attempt of a write is lost. The answer to the second attempt
/// says that the container was recreated, and the new metadata cannot be read.
#[tokio::test(start_paused = true)]
async fn a_failed_read_of_metadata_does_not_hide_an_ambiguous_write() {
    let world = World::new().await;
    world.run(&world.write(Verb::Upsert, "0", "a")).await.unwrap();
    world.fault(r#"{"operation":"upsert_item","count":1,"drop":"after"}"#).await;
    world.fault(r#"{"operation":"upsert_item","count":1,"status":410,"subStatus":1000}"#).await;
    world.fault(r#"{"operation":"container","status":400}"#).await;
    let error = world.run(&world.write(Verb::Upsert, "1", "a")).await.unwrap_err();
    assert!(error.is_ambiguous(), "{error:?}");
    assert_eq!(error.diagnostics().attempts().count(), 3, "two of the write, and one of the container");
}

/// A transport that answers the read of a missing document with the text that the service uses for
/// a missing container.
struct MissingContainerText(InProcess);

impl Transport for MissingContainerText {
    async fn send(&self, request: Request) -> Result<perihelion_wire::transport::Response, Failure> {
        let is_read = request.target.path().contains("/docs/");
        let mut response = self.0.send(request).await?;
        if is_read && response.status() == http::StatusCode::NOT_FOUND {
            response.headers_mut().remove(headers::SUBSTATUS);
            *response.body_mut() =
                Bytes::from_static(br#"{"code":"NotFound","message":"Message: Resource Not Found."}"#);
        }
        Ok(response)
    }
}

/// After a read has shown that the container exists, the container is not read again for a
/// while. Later it is read again, because it may have been deleted meanwhile.
#[tokio::test(start_paused = true)]
async fn misleading_text_in_an_answer_does_not_make_each_operation_read_the_container() {
    let world = World::new().await;
    let transport = AnyTransport::foreign(MissingContainerText(world.server.embedded().transport()));
    let driver = world.server.driver_over(transport, DriverOptions::default()).await;
    let orders = driver.container("shop", "orders");
    let read = Operation::new(Verb::Read, Target::item(&orders, "missing"), ada(), Bytes::new());
    let before = world.requests("container").await;
    for _ in 0..100 {
        let error = driver.execute(&read, &OperationOptions::default()).await.unwrap_err();
        assert!(error.is_not_found() && !error.is_container_not_found(), "{error}");
    }
    assert_eq!(world.requests("container").await - before, 2, "once at first, and once because of the text");
    world.delete_container().await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let error = driver.execute(&read, &OperationOptions::default()).await.unwrap_err();
    assert!(error.is_container_not_found(), "{error}");
}

/// A transport that never lets the feed of ranges end: it removes the etag from each request, so the
/// service answers with the first page, and not with 304.
struct EndlessRanges(InProcess);

impl Transport for EndlessRanges {
    async fn send(&self, mut request: Request) -> Result<perihelion_wire::transport::Response, Failure> {
        if request.target.path().ends_with("/pkranges") {
            request.headers.remove(http::header::IF_NONE_MATCH);
        }
        self.0.send(request).await
    }
}

#[tokio::test(start_paused = true)]
async fn a_feed_of_ranges_without_an_end_is_an_error() {
    let world = World::new().await;
    let transport = AnyTransport::foreign(EndlessRanges(world.server.embedded().transport()));
    let driver = world.server.driver_over(transport, DriverOptions::default()).await;
    let orders = driver.container("shop", "orders");
    let read = Operation::new(Verb::Read, Target::item(&orders, "1"), ada(), Bytes::new());
    let error = driver.execute(&read, &OperationOptions::default()).await.unwrap_err();
    assert!(error.to_string().contains("more than 1000 pages"), "{error}");
}
