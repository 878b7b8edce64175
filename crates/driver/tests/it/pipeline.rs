//! Operations against the real engine in one process, with injected faults: which
//! failures are retried, which ambiguous writes are resolved, and which errors the caller
//! gets. The clock is tokio's and paused.

use std::time::Duration;

use perihelion_driver::diagnostics::{Context, Outcome, Resolution};
use perihelion_driver::operation::{Idempotency, Target, Verb, Witness};
use perihelion_driver::{ErrorKind, Operation, OperationOptions, Status, status};

use crate::world::{World, ada, customer, document};

fn witness(id: &str, stamp: &str) -> Witness {
    Witness { id: id.to_owned(), pointer: "/stamp".to_owned(), value: stamp.into() }
}

#[tokio::test(start_paused = true)]
async fn a_written_document_can_be_read() {
    let world = World::new().await;
    let created = world.run(&world.write(Verb::Create, "1", "a")).await.unwrap();
    assert_eq!(created.status, Status::new(201, 0));
    let read = world.run(&world.read("1")).await.unwrap();
    assert_eq!(document(&read)["stamp"], "a");
    assert_eq!(read.etag(), created.etag());
    assert!(read.charge() > 0.0);
    assert_eq!(read.diagnostics.attempts().count(), 1);
    let absent = world.run(&world.read("2")).await.unwrap_err();
    assert!(absent.is_not_found(), "{absent}");
    let again = world.run(&world.write(Verb::Create, "1", "b")).await.unwrap_err();
    assert!(again.is_conflict() && !again.is_ambiguous(), "{again}");
}

#[tokio::test(start_paused = true)]
async fn a_throttled_request_waits_as_long_as_the_service_says() {
    let world = World::new().await;
    world
        .fault(r#"{"operation":"create_item","count":3,"status":429,"subStatus":3200,"retryAfterMs":400}"#)
        .await;
    let before = tokio::time::Instant::now();
    let created = world.run(&world.write(Verb::Create, "1", "a")).await.unwrap();
    assert_eq!(before.elapsed(), Duration::from_millis(1200));
    assert_eq!(created.diagnostics.attempts().next().unwrap().throttled, 3);
}

#[tokio::test(start_paused = true)]
async fn every_throttled_answer_is_counted_and_a_lost_answer_has_an_activity_id() {
    let world = World::new().await;
    world.run(&world.read("1")).await.unwrap_err();
    world.fault(r#"{"operation":"read_item","status":429,"subStatus":3200,"retryAfterMs":1}"#).await;
    let one_retry = OperationOptions::default().with_throttle_retries_max(1);
    let error = world.driver.execute(&world.read("1"), &one_retry).await.unwrap_err();
    assert!(error.is_throttled());
    let attempt = error.diagnostics().attempts().next().unwrap();
    assert_eq!(
        (attempt.throttled, attempt.charge.is_some()),
        (2, true),
        "the last throttled answer counts too"
    );
    world.clear_faults().await;
    world.fault(r#"{"operation":"read_item","count":1,"drop":"after"}"#).await;
    let error = world.run(&world.read("1")).await.unwrap_err();
    let lost = error.diagnostics().attempts().next().unwrap();
    assert_eq!(lost.activity_id.as_ref().unwrap().len(), 36, "a lost answer has our activity id");
}

#[tokio::test(start_paused = true)]
async fn the_driver_does_not_wait_for_a_replica_without_resources() {
    let world = World::new().await;
    world
        .fault(r#"{"operation":"read_item","count":1,"status":429,"subStatus":3092,"retryAfterMs":60000}"#)
        .await;
    world.run(&world.write(Verb::Create, "1", "a")).await.unwrap();
    let before = tokio::time::Instant::now();
    let read = world.run(&world.read("1")).await.unwrap();
    assert!(before.elapsed() < Duration::from_secs(5), "the driver does not wait as for throttling");
    let first = read.diagnostics.attempts().next().unwrap();
    assert_eq!(first.throttled, 0);
    assert!(matches!(first.outcome, Outcome::Answered(status::SYSTEM_RESOURCE_UNAVAILABLE)));
}

#[tokio::test(start_paused = true)]
async fn transient_refusals_are_retried() {
    for (code, sub) in
        [(449, 0), (503, 0), (408, 0), (410, 0), (410, 1002), (410, 1007), (410, 1008), (500, 0)]
    {
        let world = World::new().await;
        world.run(&world.write(Verb::Create, "1", "a")).await.unwrap();
        let rule = |operation: &str| {
            format!(r#"{{"operation":"{operation}","count":2,"status":{code},"subStatus":{sub}}}"#)
        };
        world.fault(&rule("read_item")).await;
        world.fault(&rule("upsert_item")).await;
        let read =
            world.run(&world.read("1")).await.unwrap_or_else(|error| panic!("{code}/{sub}: {error:?}"));
        assert_eq!(read.diagnostics.attempts().count(), 3, "{code}/{sub}");
        let written = world.run(&world.write(Verb::Upsert, "1", "b")).await;
        assert_eq!(written.unwrap().diagnostics.attempts().count(), 3, "{code}/{sub}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_operation_in_a_lasting_outage_ends_after_three_retries() {
    let world = World::new().await;
    world.run(&world.write(Verb::Create, "1", "a")).await.unwrap();
    world.fault(r#"{"operation":"read_item","status":503}"#).await;
    let error = world.run(&world.read("1")).await.unwrap_err();
    assert_eq!(error.status(), Some(status::SERVICE_UNAVAILABLE));
    assert_eq!(error.diagnostics().attempts().count(), 4, "one attempt and three retries");
}

#[tokio::test(start_paused = true)]
async fn a_lost_create_is_found_by_its_witness() {
    let world = World::new().await;
    world.fault(r#"{"operation":"create_item","count":1,"drop":"after"}"#).await;
    let create = world.write(Verb::Create, "1", "mine").with_witness(witness("1", "mine"));
    let created = world.run(&create).await.unwrap();
    assert_eq!(created.diagnostics.resolution(), Some(Resolution::Witnessed));
    assert_eq!(document(&created)["stamp"], "mine");
    assert!(created.diagnostics.attempts().any(|attempt| attempt.context == Context::ReadBack));
}

#[tokio::test(start_paused = true)]
async fn a_create_of_an_id_that_exists_is_refused_and_not_ambiguous() {
    let world = World::new().await;
    world.run(&world.write(Verb::Create, "1", "theirs")).await.unwrap();
    world.fault(r#"{"operation":"create_item","count":1,"drop":"before"}"#).await;
    let create = world.write(Verb::Create, "1", "mine").with_witness(witness("1", "mine"));
    let error = world.run(&create).await.unwrap_err();
    assert!(error.is_conflict() && !error.is_ambiguous(), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn a_lost_create_without_a_witness_is_reported_as_ambiguous() {
    let world = World::new().await;
    world.fault(r#"{"operation":"create_item","count":1,"drop":"after"}"#).await;
    let error = world.run(&world.write(Verb::Create, "1", "mine")).await.unwrap_err();
    assert!(error.is_ambiguous() && !error.is_conflict(), "{error:?}");
    assert!(error.to_string().starts_with("the write may or may not have been applied"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_create_that_never_arrived_is_repeated() {
    let world = World::new().await;
    world.fault(r#"{"operation":"create_item","count":1,"drop":"before"}"#).await;
    let created = world.run(&world.write(Verb::Create, "1", "mine")).await.unwrap();
    assert_eq!((created.status.code, created.diagnostics.attempts().count()), (201, 2));
}

#[tokio::test(start_paused = true)]
async fn an_idempotent_write_is_repeated_after_a_lost_answer() {
    let world = World::new().await;
    world.run(&world.write(Verb::Create, "1", "a")).await.unwrap();
    for operation in ["upsert_item", "replace_item", "delete_item"] {
        world.fault(&format!(r#"{{"operation":"{operation}","count":1,"drop":"after"}}"#)).await;
    }
    world.run(&world.write(Verb::Upsert, "1", "b")).await.unwrap();
    world.run(&world.write(Verb::Replace, "1", "c")).await.unwrap();
    let deleted = world.run(&world.delete("1")).await.unwrap();
    assert_eq!(deleted.diagnostics.resolution(), Some(Resolution::AlreadyGone));
    assert!(world.run(&world.read("1")).await.unwrap_err().is_not_found());
    let absent = world.run(&world.delete("1")).await.unwrap_err();
    assert!(absent.is_not_found(), "no answer was lost here, so 404 is returned");
}

#[tokio::test(start_paused = true)]
async fn a_write_that_is_not_idempotent_is_not_repeated() {
    let world = World::new().await;
    world.run(&world.write(Verb::Create, "1", "a")).await.unwrap();
    world.fault(r#"{"operation":"patch_item","count":1,"drop":"after"}"#).await;
    let body = r#"{"operations":[{"op":"incr","path":"/count","value":1}]}"#;
    let patch = Operation::new(Verb::Patch, Target::item(&world.orders, "1"), ada(), body.into());
    assert_eq!(patch.idempotency, Idempotency::NotIdempotent);
    let error = world.run(&patch).await.unwrap_err();
    assert!(error.is_ambiguous(), "{error:?}");
    assert_eq!(document(&world.run(&world.read("1")).await.unwrap())["count"], 1);
    assert_eq!(world.requests("patch_item").await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_conditional_write_whose_answer_was_lost_is_applied_once() {
    let world = World::new().await;
    let created = world.run(&world.write(Verb::Create, "1", "a")).await.unwrap();
    let etag = created.headers["etag"].clone();
    world.fault(r#"{"operation":"replace_item","count":1,"drop":"after"}"#).await;
    let replace =
        world.write(Verb::Replace, "1", "b").with_if_match(etag.clone()).with_witness(witness("1", "b"));
    let replaced = world.run(&replace).await.unwrap();
    assert_eq!(replaced.diagnostics.resolution(), Some(Resolution::Witnessed));
    let stale = world.write(Verb::Replace, "1", "c").with_if_match(etag);
    assert!(world.run(&stale).await.unwrap_err().is_precondition_failed());
}

#[tokio::test(start_paused = true)]
async fn an_operation_ends_by_its_deadline() {
    let world = World::new().await;
    world.run(&world.write(Verb::Create, "1", "a")).await.unwrap();
    world.fault(r#"{"operation":"any","delayMs":30000}"#).await;
    let options = OperationOptions::default().with_timeout(Duration::from_millis(700));
    let before = tokio::time::Instant::now();
    let error = world.driver.execute(&world.read("1"), &options).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error:?}");
    assert!(before.elapsed() <= Duration::from_millis(710), "{:?}", before.elapsed());
    let write = world.driver.execute(&world.write(Verb::Create, "2", "a"), &options).await.unwrap_err();
    assert!(write.is_ambiguous(), "a write under way at the deadline may be applied: {write:?}");
}

#[tokio::test(start_paused = true)]
async fn point_reads_succeed_after_a_split() {
    let world = World::new().await;
    for number in 0..20 {
        let body = format!(r#"{{"id":"x","customer":"c{number}"}}"#);
        let create = Operation::new(
            Verb::Create,
            Target::items(&world.orders),
            customer(&format!("c{number}")),
            body.into(),
        );
        world.run(&create).await.unwrap();
    }
    world.split("0").await;
    for number in 0..20 {
        let read = Operation::new(
            Verb::Read,
            Target::item(&world.orders, "x"),
            customer(&format!("c{number}")),
            bytes::Bytes::new(),
        );
        let read = world.run(&read).await.unwrap();
        assert_eq!(document(&read)["customer"], format!("c{number}"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_recreated_container_is_recognised() {
    let world = World::new().await;
    for number in 0..5 {
        world.run(&world.write(Verb::Create, &number.to_string(), "old")).await.unwrap();
    }
    world.delete_container().await;
    world.create_container().await;
    // The session of the old container is ahead of the new container. Requests must not
    // send its session token.
    let absent = world.run(&world.read("1")).await.unwrap_err();
    assert!(absent.is_not_found(), "{absent:?}");
    let created = world.run(&world.write(Verb::Create, "1", "new")).await.unwrap();
    assert_eq!(created.status.code, 201);
    assert_eq!(document(&world.run(&world.read("1")).await.unwrap())["stamp"], "new");
}

#[tokio::test(start_paused = true)]
async fn concurrent_operations_read_the_metadata_once() {
    let world = World::new().await;
    let reads = (0..20).map(|number| {
        let (driver, read) = (world.driver.clone(), world.read(&number.to_string()));
        tokio::spawn(async move { driver.execute(&read, &OperationOptions::default()).await })
    });
    for read in reads.collect::<Vec<_>>() {
        assert!(read.await.unwrap().unwrap_err().is_not_found());
    }
    assert_eq!(world.requests("read_ranges").await, 2, "one page and the 304 that ends the feed");
}
