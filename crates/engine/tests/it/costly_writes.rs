//! Tests of writes that take a lot of work: other writes do not wait for them.

use std::sync::Arc;

use perihelion_engine::{
    ApiVersion, Batch, BatchOperation, BatchScope, Container, Engine, EngineOptions, IndexScope,
    ItemOperation, NewBody, NewPatch, ParsedDefinition, Precondition, Target,
};
use perihelion_model::json::Value;
use perihelion_model::partition_key::PartitionKey;
use perihelion_wire::patch::Patch;

use crate::engine_model::shape;
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

/// Sends a batch for the partition `a`. Returns the statuses of its operations.
async fn statuses(engine: &Engine, container: &Arc<Container>, operations: Vec<BatchOperation>) -> Vec<u16> {
    let scope = BatchScope::Partition(key("a"));
    let batch =
        Batch { scope, operations, is_atomic: false, continues_on_error: true, returns_written: true };
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

/// Story of a bug: a fan-out of 1,000 activities took two seconds longer in most runs. Before its batch
/// reached the writer, the first index of the container was built for a query. The batch was prepared
/// again eight times without that index, and was refused with 449 each time.
#[tokio::test]
async fn a_write_that_began_before_the_first_index_of_its_container_is_applied() {
    let engine = support::engine(EngineOptions::default()).await;
    let before_index = container(&engine, "c").await;
    let large = |id: &str| format!(r#"{{"id":"{id}","pk":"a","n":1,"pad":"{}"}}"#, "x".repeat(300_000));
    for id in ["item", "batch"] {
        upsert(&engine, &before_index, key("a"), &large(id)).await;
    }
    engine.build_index(&before_index, shape(IndexScope::Segment, &["n"])).await.unwrap();

    upsert(&engine, &before_index, key("a"), &large("item")).await;
    let body = NewBody::new(object(&large("batch")), &before_index).unwrap();
    let replace = BatchOperation {
        operation: Ok(ItemOperation::Replace { id: "batch".to_owned(), body }),
        precondition: Precondition::default(),
        partition_key: None,
    };
    assert_eq!(statuses(&engine, &before_index, vec![replace]).await, [200]);
    assert_eq!(engine.bytes_parsed_by_writer(), 0);
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
    let if_n_is = |n: u32| format!(r#","condition":"from c where c.n = {n}""#);
    let operations =
        vec![set(2, &if_n_is(1)), set(3, &if_n_is(2)), set(9, &if_n_is(2)), set(4, &if_n_is(3)), set(5, "")];
    assert_eq!(statuses(&engine, &created, operations).await, [200, 200, 412, 200, 200]);
}

/// One request may patch documents of 16 MiB in all. Nine documents of 1.9 MB have more.
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
        returns_written: true,
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
    // Each job is one write, with one LSN, and deletes at most 200 documents.
    assert_eq!(lsn() - before, 3);
    let missing = support::missing(&engine, &created, 1010, 2);
    assert!(missing.iter().all(|n| n % 2 == 0) && missing.len() == 505, "{}", missing.len());
    assert_eq!(engine.delete_partition(&created, key("k0")).await.unwrap(), 0);

    // If the documents are large, a job ends after the third one, because it has then deleted more
    // than a megabyte.
    for n in 0..8 {
        let text = format!(r#"{{"id":"{n}","pk":"a","pad":"{}"}}"#, "x".repeat(400_000));
        upsert(&engine, &created, key("a"), &text).await;
    }
    let before = lsn();
    assert_eq!(engine.delete_partition(&created, key("a")).await.unwrap(), 8);
    assert_eq!(lsn() - before, 3);
}

/// Story of a bug: a batch of deletes of large documents made the writer parse and log 200 MB, if the
/// container had a full-fidelity change feed. One request may delete 32 MiB of documents from such a
/// container: 17 documents of 2 MB have more, 16 have less.
#[tokio::test]
async fn a_batch_that_logs_too_many_bytes_of_deleted_documents_is_refused_before_the_writer() {
    let engine = support::engine(EngineOptions::default()).await;
    let created = container(&engine, "c").await;
    let pad = "x".repeat(2_000_000);
    for n in 0..17 {
        upsert(&engine, &created, key("a"), &format!(r#"{{"id":"{n}","pk":"a","pad":"{pad}"}}"#)).await;
    }
    engine.start_version_log(&created).await.unwrap();
    let created = engine.catalog().container("d", "c").cloned().unwrap();
    let batch = |count: usize| Batch {
        scope: BatchScope::Partition(key("a")),
        operations: (0..count)
            .map(|n| BatchOperation {
                operation: Ok(ItemOperation::Delete { id: n.to_string() }),
                precondition: Precondition::default(),
                partition_key: None,
            })
            .collect(),
        is_atomic: true,
        continues_on_error: false,
        returns_written: true,
    };
    assert_eq!(engine.batch(&created, batch(17)).await.unwrap_err().status, 413);
    assert!(!engine.batch(&created, batch(16)).await.unwrap().has_failed());
}

/// A container with a unique key and an index, so that every write has to know the contents of the
/// document before and after it.
async fn indexed_container(engine: &Engine) -> Arc<Container> {
    let body = object(
        r#"{"id":"u","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2},
            "uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/items","/id"]}]},
            "indexingPolicy":{"compositeIndexes":[[{"path":"/n"},{"path":"/_ts"}]]}}"#,
    );
    let definition = ParsedDefinition::parse(body, ApiVersion::Current).unwrap();
    engine.create_container("d", definition, None).await.unwrap()
}

/// A document of about this many bytes. An array of numbers has almost all of these bytes.
fn large(id: &str, n: u32, bytes: usize) -> String {
    let numbers: Vec<String> = (0..bytes / 6).map(|n| (10_000 + n % 80_000).to_string()).collect();
    format!(r#"{{"id":"{id}","pk":"a","n":{n},"items":[{}]}}"#, numbers.join(","))
}

fn increment(id: &str) -> ItemOperation {
    let body = object(r#"{"operations":[{"op":"incr","path":"/n","value":1}]}"#);
    let patch = NewPatch::new(Patch::parse(&Value::Object(body)).unwrap(), 0);
    ItemOperation::Patch { id: id.to_owned(), patch }
}

async fn write(
    engine: &Engine,
    container: &Arc<Container>,
    operation: ItemOperation,
) -> Result<perihelion_engine::ItemOutcome, perihelion_engine::Refusal> {
    engine.write_item(container, key("a"), operation, Precondition::default()).await
}

/// The member `n` of a document in the partition `a`.
fn n_of(engine: &Engine, container: &Arc<Container>, id: &str) -> i64 {
    let target = Target::resolve(container, key("a")).unwrap();
    let read = engine.read_item(&target, id, &Precondition::default(), &[]).unwrap();
    perihelion_model::json::parse(&read.body).unwrap().get("n").unwrap().as_i64().unwrap()
}

/// Story of a bug: the writer parsed the old version of every document with index entries or
/// unique keys, and applied and printed patches, while all other writes waited.
#[tokio::test]
async fn the_writer_parses_no_document_that_was_prepared() {
    let engine = support::engine(EngineOptions::default()).await;
    let created = indexed_container(&engine).await;
    let new_body = |text: &str| NewBody::new(object(text), &created).unwrap();
    for id in ["1", "2", "3"] {
        let body = new_body(&large(id, 1, 1_500_000));
        write(&engine, &created, ItemOperation::Create { body }).await.unwrap();
    }
    let body = new_body(&large("1", 5, 1_600_000));
    write(&engine, &created, ItemOperation::Upsert { body }).await.unwrap();
    let body = new_body(&large("2", 7, 1_600_000));
    write(&engine, &created, ItemOperation::Replace { id: "2".to_owned(), body }).await.unwrap();
    let many: Vec<String> =
        (0..10).map(|n| format!(r#"{{"op":"add","path":"/items/{n}","value":{n}}}"#)).collect();
    let patched = patch("1", &format!(r#"{{"operations":[{}]}}"#, many.join(","))).operation.unwrap();
    write(&engine, &created, patched).await.unwrap();
    write(&engine, &created, increment("1")).await.unwrap();
    let operations = ["1", "2", "3"].map(|id| BatchOperation {
        operation: Ok(increment(id)),
        precondition: Precondition::default(),
        partition_key: None,
    });
    assert_eq!(statuses(&engine, &created, operations.into()).await, [200; 3]);
    assert_eq!((n_of(&engine, &created, "1"), n_of(&engine, &created, "2")), (7, 8));
    let body = new_body(&large("2", 1, 1_600_000));
    let conflict = write(&engine, &created, ItemOperation::Create { body }).await.unwrap_err();
    assert_eq!(conflict.status, 409);
    write(&engine, &created, ItemOperation::Delete { id: "2".to_owned() }).await.unwrap();
    assert_eq!(engine.bytes_parsed_by_writer(), 0);
}

/// A patch of a large document is prepared again when a concurrent patch was applied first. No patch
/// that succeeded is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_patches_of_a_large_document_are_all_applied_or_refused() {
    let engine = support::engine(EngineOptions::default()).await;
    let created = indexed_container(&engine).await;
    let body = NewBody::new(object(&large("1", 0, 400_000)), &created).unwrap();
    write(&engine, &created, ItemOperation::Create { body }).await.unwrap();
    let writers: Vec<_> = (0..4)
        .map(|_| {
            let (engine, created) = (Arc::clone(&engine), Arc::clone(&created));
            tokio::spawn(async move {
                let mut applied = 0;
                for _ in 0..10 {
                    match write(&engine, &created, increment("1")).await {
                        Ok(_) => applied += 1,
                        Err(refusal) => assert_eq!(refusal.status, 449),
                    }
                }
                applied
            })
        })
        .collect();
    let mut applied = 0;
    for writer in writers {
        applied += writer.await.unwrap();
    }
    assert!(applied > 10, "{applied}");
    assert_eq!(n_of(&engine, &created, "1"), applied);
    assert_eq!(engine.bytes_parsed_by_writer(), 0);
}

/// The writer has to parse a document that an earlier operation of the same batch has changed. The
/// documents that it parses for one batch in this way may have 2 MiB in all.
#[tokio::test]
async fn a_request_may_change_a_document_again_within_bounds() {
    let engine = support::engine(EngineOptions::default()).await;
    let created = indexed_container(&engine).await;
    let batch = |bytes: usize| {
        let body = NewBody::new(object(&large("1", 0, bytes)), &created).unwrap();
        let operations = [ItemOperation::Upsert { body }, increment("1"), increment("1")];
        let operations = operations.map(|operation| BatchOperation {
            operation: Ok(operation),
            precondition: Precondition::default(),
            partition_key: None,
        });
        let scope = BatchScope::Partition(key("a"));
        Batch {
            scope,
            operations: operations.into(),
            is_atomic: true,
            continues_on_error: false,
            returns_written: true,
        }
    };
    assert!(!engine.batch(&created, batch(500_000)).await.unwrap().has_failed());
    assert_eq!(n_of(&engine, &created, "1"), 2);
    assert_eq!(engine.batch(&created, batch(1_500_000)).await.unwrap_err().status, 413);
}

/// Story of a bug: a patch of the document that the same batch had renamed was always refused with
/// 449, if the document was large.
#[tokio::test]
async fn a_batch_may_rename_a_large_document_and_then_patch_it() {
    let engine = support::engine(EngineOptions::default()).await;
    let created = container(&engine, "c").await;
    upsert(&engine, &created, key("a"), &large("1", 0, 100_000)).await;
    let body = NewBody::new(object(&large("2", 5, 100_000)), &created).unwrap();
    let operations = [ItemOperation::Replace { id: "1".to_owned(), body }, increment("2")];
    let operations = operations.map(|operation| BatchOperation {
        operation: Ok(operation),
        precondition: Precondition::default(),
        partition_key: None,
    });
    assert_eq!(statuses(&engine, &created, operations.into()).await, [200, 200]);
    assert_eq!(n_of(&engine, &created, "2"), 6);
}

/// Story of a bug: if a batch read a document before it patched the document, the writer evaluated
/// the condition of the patch, and the writer refuses a costly condition.
#[tokio::test]
async fn a_costly_condition_after_a_read_of_its_document_is_evaluated() {
    let engine = support::engine(EngineOptions::default()).await;
    let created = container(&engine, "c").await;
    let items: Vec<String> = (0..300).map(|n| n.to_string()).collect();
    let text = format!(r#"{{"id":"1","pk":"a","items":[{}]}}"#, items.join(","));
    upsert(&engine, &created, key("a"), &text).await;
    let costly = r#"{"operations":[{"op":"set","path":"/n","value":1}],"condition":"from c where exists(select value 1 from x in c.items join y in c.items where x + y = 598)"}"#;
    let read = BatchOperation {
        operation: Ok(ItemOperation::Read { id: "1".to_owned() }),
        precondition: Precondition::default(),
        partition_key: None,
    };
    assert_eq!(statuses(&engine, &created, vec![read, patch("1", costly)]).await, [200, 200]);
}
