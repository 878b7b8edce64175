//! Learning a container: who waits for it, for how long, and what is told when
//! it fails. Time is tokio's and paused.

use std::time::Duration;

use perihelion_driver::diagnostics::Outcome;
use perihelion_driver::operation::Verb;
use perihelion_driver::{Driver, Error, ErrorKind, Operation, OperationOptions, Response};
use tokio::time::Instant;

use crate::world::World;

async fn within(driver: &Driver, operation: &Operation, timeout: Duration) -> Result<Response, Error> {
    driver.execute(operation, &OperationOptions::default().with_timeout(timeout)).await
}

#[tokio::test(start_paused = true)]
async fn waiting_for_someone_elses_learning_ends_with_the_operation() {
    let world = World::new().await;
    world.fault(r#"{"operation":"container","count":1,"delayMs":20000}"#).await;
    let (driver, read) = (world.driver.clone(), world.read("1"));
    let patient = tokio::spawn(async move { within(&driver, &read, Duration::from_secs(60)).await });
    tokio::task::yield_now().await;
    let before = Instant::now();
    let error = within(&world.driver, &world.read("1"), Duration::from_millis(300)).await.unwrap_err();
    assert_eq!((error.kind(), before.elapsed()), (ErrorKind::Timeout, Duration::from_millis(300)), "{error}");
    assert!(patient.await.unwrap().unwrap_err().is_not_found(), "and takes nothing from the others");
}

#[tokio::test(start_paused = true)]
async fn whoever_is_learning_may_leave() {
    let world = World::new().await;
    world.fault(r#"{"operation":"container","count":1,"delayMs":20000}"#).await;
    let (driver, read) = (world.driver.clone(), world.read("1"));
    let leaving = tokio::spawn(async move { within(&driver, &read, Duration::from_secs(60)).await });
    tokio::time::sleep(Duration::from_millis(100)).await;
    leaving.abort();
    let error = within(&world.driver, &world.read("1"), Duration::from_millis(300)).await.unwrap_err();
    assert!(error.is_not_found(), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn a_crowd_shares_one_failure_to_learn() {
    let world = World::new().await;
    world.fault(r#"{"operation":"container","status":400,"delayMs":50}"#).await;
    let before = world.asked("container").await;
    let crowd = (0..20).map(|_| {
        let (driver, read) = (world.driver.clone(), world.read("1"));
        tokio::spawn(async move { within(&driver, &read, Duration::from_secs(60)).await })
    });
    for one in crowd.collect::<Vec<_>>() {
        assert_eq!(one.await.unwrap().unwrap_err().status().unwrap().code, 400);
    }
    assert_eq!(world.asked("container").await - before, 1);
    world.clear_faults().await;
    assert!(world.run(&world.read("1")).await.unwrap_err().is_not_found(), "it is not held against anyone");
}

#[tokio::test(start_paused = true)]
async fn a_failure_to_learn_tells_its_attempts() {
    let world = World::new().await;
    world.fault(r#"{"operation":"container","status":503}"#).await;
    let error = world.run(&world.read("1")).await.unwrap_err();
    let outcomes: Vec<_> = error.diagnostics().attempts().map(|attempt| &attempt.outcome).collect();
    assert_eq!(outcomes.len(), 4, "{error:?}");
    assert!(
        outcomes.iter().all(|outcome| matches!(outcome, Outcome::Answered(status) if status.code == 503))
    );
}

/// The answer to the first attempt is lost, the second is told that the
/// container is another one, and that cannot be looked up.
#[tokio::test(start_paused = true)]
async fn a_failure_to_learn_does_not_hide_a_doubt() {
    let world = World::new().await;
    world.run(&world.write(Verb::Upsert, "0", "a")).await.unwrap();
    world.fault(r#"{"operation":"upsert_item","count":1,"drop":"after"}"#).await;
    world.fault(r#"{"operation":"upsert_item","count":1,"status":410,"subStatus":1000}"#).await;
    world.fault(r#"{"operation":"container","status":400}"#).await;
    let error = world.run(&world.write(Verb::Upsert, "1", "a")).await.unwrap_err();
    assert!(error.is_ambiguous(), "{error:?}");
    assert_eq!(error.diagnostics().attempts().count(), 3);
}
