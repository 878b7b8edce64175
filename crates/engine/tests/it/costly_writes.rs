//! Tests of writes that take a lot of work: other writes do not wait for them.

use std::sync::Arc;

use perihelion_engine::{
    Batch, BatchOperation, BatchScope, Container, Engine, EngineOptions, ItemOperation, NewBody, NewPatch,
    Precondition,
};
use perihelion_model::json::Value;
use perihelion_model::partition_key::PartitionKey;
use perihelion_wire::patch::Patch;

use crate::support::{self, container, object};

fn key(name: &str) -> PartitionKey {
    PartitionKey::from_header(&format!(r#"["{name}"]"#)).unwrap()
}

fn patch(id: &str, body: &str) -> BatchOperation {
    let changes = Patch::parse(&Value::Object(object(body))).unwrap();
    BatchOperation {
        operation: Ok(ItemOperation::Patch { id: id.to_owned(), patch: NewPatch::new(changes, 0) }),
        precondition: Precondition::default(),
        partition_key: None,
    }
}

async fn upsert(engine: &Engine, container: &Arc<Container>, key: PartitionKey, text: &str) {
    let body = NewBody::new(object(text), container).unwrap();
    let operation = ItemOperation::Upsert { body };
    engine.write_item(container, key, operation, Precondition::default()).await.unwrap();
}

/// The statuses of a batch's operations.
async fn statuses(engine: &Engine, container: &Arc<Container>, operations: Vec<BatchOperation>) -> Vec<u16> {
    let scope = BatchScope::Partition(key("a"));
    let batch = Batch { scope, operations, is_atomic: false, continues_on_error: true };
    let outcome = engine.batch(container, batch).await.unwrap();
    let status = |result: &Result<_, perihelion_engine::Refusal>| match result {
        Ok(perihelion_engine::ItemOutcome { status, .. }) => *status,
        Err(refusal) => refusal.status,
    };
    outcome.results.iter().map(status).collect()
}

/// Story of a bug: the conditions of patches were evaluated by the writer. A batch of 4 KB
/// stalled every write of the server for 26 seconds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_of_costly_conditions_does_not_hold_up_other_writes() {
    let engine = support::engine(EngineOptions::default()).await;
    let created = container(&engine, "c").await;
    let items: Vec<String> = (0..300).map(|n| n.to_string()).collect();
    for n in 0..8 {
        let text = format!(r#"{{"id":"{n}","pk":"a","items":[{}]}}"#, items.join(","));
        upsert(&engine, &created, key("a"), &text).await;
    }
    // Only the last of 90,000 pairs meets the condition.
    let costly = r#"{"operations":[{"op":"set","path":"/n","value":1}],"condition":"from c where exists(select value 1 from x in c.items join y in c.items where x + y = 598)"}"#;
    let operations = (0..8).map(|n| patch(&n.to_string(), costly)).collect();
    let batch = tokio::spawn({
        let (engine, created) = (Arc::clone(&engine), Arc::clone(&created));
        async move { statuses(&engine, &created, operations).await }
    });
    let mut others = 0;
    while !batch.is_finished() {
        upsert(&engine, &created, key("b"), r#"{"id":"other","pk":"b"}"#).await;
        others += 1;
        tokio::task::yield_now().await;
    }
    assert_eq!(batch.await.unwrap(), [200; 8]);
    // The batch is one job of the writer. If the writer evaluated its conditions, it would
    // complete one other write before this job and one after it.
    assert!(others > 5, "{others} other writes");
}

#[tokio::test]
async fn a_condition_sees_the_earlier_operations_of_its_batch() {
    let engine = support::engine(EngineOptions::default()).await;
    let created = container(&engine, "c").await;
    upsert(&engine, &created, key("a"), r#"{"id":"1","pk":"a","n":1}"#).await;
    let set = |value: u32, condition: &str| {
        let text = format!(r#"{{"operations":[{{"op":"set","path":"/n","value":{value}}}]{condition}}}"#);
        patch("1", &text)
    };
    let is = |n: u32| format!(r#","condition":"from c where c.n = {n}""#);
    let operations = vec![set(2, &is(1)), set(3, &is(2)), set(9, &is(2)), set(4, &is(3)), set(5, "")];
    assert_eq!(statuses(&engine, &created, operations).await, [200, 200, 412, 200, 200]);
}

#[tokio::test]
async fn a_batch_that_patches_too_many_bytes_is_refused_before_the_writer() {
    let engine = support::engine(EngineOptions::default()).await;
    let created = container(&engine, "c").await;
    let pad = "x".repeat(1_900_000);
    for n in 0..9 {
        let text = format!(r#"{{"id":"{n}","pk":"a","pad":"{pad}"}}"#);
        upsert(&engine, &created, key("a"), &text).await;
    }
    let set = r#"{"operations":[{"op":"set","path":"/n","value":1}]}"#;
    let batch = |count: usize| Batch {
        scope: BatchScope::Partition(key("a")),
        operations: (0..count).map(|n| patch(&n.to_string(), set)).collect(),
        is_atomic: true,
        continues_on_error: false,
    };
    assert_eq!(engine.batch(&created, batch(9)).await.unwrap_err().status, 413);
    assert!(!engine.batch(&created, batch(8)).await.unwrap().has_failed());
}

/// Story of a bug: a partition was deleted by one job of the writer, for which all other writes
/// waited.
#[tokio::test]
async fn a_large_partition_is_deleted_by_several_writes() {
    let engine = support::engine(EngineOptions::default()).await;
    let created = container(&engine, "c").await;
    support::fill(&engine, &created, 1010, 2).await;
    let lsn = || {
        let range = created.ranges[0].id;
        engine.state(&created).unwrap().lsn(range)
    };
    let before = lsn();
    assert_eq!(engine.delete_partition(&created, key("k0")).await.unwrap(), 505);
    // Each job is one write, with one LSN.
    assert_eq!(lsn() - before, 3);
    let missing = support::missing(&engine, &created, 1010, 2);
    assert!(missing.iter().all(|n| n % 2 == 0) && missing.len() == 505, "{}", missing.len());
    assert_eq!(engine.delete_partition(&created, key("k0")).await.unwrap(), 0);
}
