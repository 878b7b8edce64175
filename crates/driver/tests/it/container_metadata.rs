//! Reading a container's metadata: which operations wait for the read and how long, and
//! which error they report when the read fails. The clock is tokio's and paused.

use std::time::Duration;

use perihelion_driver::diagnostics::Outcome;
use perihelion_driver::operation::Verb;
use perihelion_driver::{Driver, Error, ErrorKind, Operation, OperationOptions, Response};
use tokio::time::Instant;

use crate::world::World;

async fn run_with_timeout(
    driver: &Driver,
    operation: &Operation,
    timeout: Duration,
) -> Result<Response, Error> {
    driver.execute(operation, &OperationOptions::default().with_timeout(timeout)).await
}

#[tokio::test(start_paused = true)]
async fn waiting_for_another_tasks_read_ends_with_the_operation() {
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

#[tokio::test(start_paused = true)]
async fn a_task_that_reads_metadata_may_be_cancelled() {
    let world = World::new().await;
    world.fault(r#"{"operation":"container","count":1,"delayMs":20000}"#).await;
    let (driver, read) = (world.driver.clone(), world.read("1"));
    let cancelled =
        tokio::spawn(async move { run_with_timeout(&driver, &read, Duration::from_secs(60)).await });
    tokio::time::sleep(Duration::from_millis(100)).await;
    cancelled.abort();
    let error =
        run_with_timeout(&world.driver, &world.read("1"), Duration::from_millis(300)).await.unwrap_err();
    assert!(error.is_not_found(), "{error:?}");
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
    assert!(world.run(&world.read("1")).await.unwrap_err().is_not_found(), "the failure was kept");
}

#[tokio::test(start_paused = true)]
async fn a_failed_read_of_metadata_reports_its_attempts() {
    let world = World::new().await;
    world.fault(r#"{"operation":"container","status":503}"#).await;
    let error = world.run(&world.read("1")).await.unwrap_err();
    let outcomes: Vec<_> = error.diagnostics().attempts().map(|attempt| &attempt.outcome).collect();
    assert_eq!(outcomes.len(), 4, "{error:?}");
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
    assert_eq!(error.diagnostics().attempts().count(), 3);
}
