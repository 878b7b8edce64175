//! The official Rust SDK has tests of transactions that send raw requests to the emulator inside its
//! driver. This file has the same cases, as tests of our server. `interop/rust` has the cases that go
//! through the SDK's client. Where our server differs from that emulator, the test says so.

use super::*;

#[tokio::test]
async fn a_created_document_is_read_and_its_creation_returns_no_document() {
    let world = world().await;
    let created = world.send(write(1, &[create("c", "pk1", "item1")])).await;
    assert_eq!((envelope(&created), statuses(&created)), ((200, 0), vec![(201, 0)]));
    let result = &results(&created)[0];
    assert!(text_of(result, "sessionToken").is_some() && result.get("resourceBody").is_none());
    let answer = world.send(read(&[read_item("c", "pk1", "item1")])).await;
    assert_eq!((envelope(&answer), statuses(&answer)), ((200, 0), vec![(200, 0)]));
    let document = results(&answer)[0].get("resourceBody").cloned().unwrap();
    assert_eq!(text_of(&document, "id").as_deref(), Some("item1"));
    world.stop().await;
}

#[tokio::test]
async fn a_failed_write_leaves_nothing_of_the_transaction() {
    let world = world().await;
    let answer = world.send(write(1, &[create("c", "pk1", "before"), delete("c", "pk1", "missing")])).await;
    assert_eq!((envelope(&answer), statuses(&answer)), ((452, 5421), vec![(453, 5415), (404, 0)]));
    assert_eq!(n_of(&world, "c", "pk1", "before").await, None);
    world.stop().await;
}

#[tokio::test]
async fn a_failed_read_withholds_the_documents_of_the_other_reads() {
    let world = world().await;
    world.send(write(1, &[create("c", "pk1", "present")])).await;
    let answer = world.send(read(&[read_item("c", "pk1", "present"), read_item("c", "pk1", "absent")])).await;
    assert_eq!((envelope(&answer), statuses(&answer)), ((404, 0), vec![(424, 0), (404, 0)]));
    assert_eq!(answer.json().unwrap().get("isRetriable").and_then(Value::as_bool), Some(false));
    assert!(results(&answer)[0].get("resourceBody").is_none());
    world.stop().await;
}

#[tokio::test]
async fn a_patch_with_a_condition_changes_the_document_or_undoes_its_siblings() {
    let world = world().await;
    world.send(write(1, &[create("c", "pk1", "target")])).await;
    let patch = || {
        let body = r#","resourceBody":{"condition":"from c where c.n = 0","operations":[{"op":"incr","path":"/n","value":42}]}"#;
        operation("Patch", "c", "pk1", "target", body)
    };
    let answer = world.send(write(2, &[patch()])).await;
    assert_eq!((envelope(&answer), statuses(&answer)), ((200, 0), vec![(200, 0)]));
    assert!(results(&answer)[0].get("resourceBody").is_none());
    assert_eq!(n_of(&world, "c", "pk1", "target").await, Some(42));
    let answer = world.send(write(3, &[create("c", "pk1", "sibling"), patch()])).await;
    assert_eq!((envelope(&answer), statuses(&answer)), ((452, 5421), vec![(453, 5415), (412, 1110)]));
    assert_eq!(n_of(&world, "c", "pk1", "sibling").await, None);
    assert_eq!(n_of(&world, "c", "pk1", "target").await, Some(42));
    world.stop().await;
}

/// The emulator answers 452 for the transaction and 400 for the operation. Our server refuses the
/// whole request with 400. Neither writes anything.
#[tokio::test]
async fn a_document_with_another_id_than_its_operation_is_not_written() {
    let world = world().await;
    let body = r#","resourceBody":{"id":"inner","pk":"pk1","n":0}"#;
    let answer = world.send(write(1, &[operation("Create", "c", "pk1", "outer", body)])).await;
    check_refused(&answer, 400, 5410);
    for id in ["inner", "outer"] {
        assert_eq!(n_of(&world, "c", "pk1", id).await, None);
    }
    world.stop().await;
}

/// The emulator answers 304. Our server answers 200/5425 as the service does now, because HTTP
/// layers drop the body of a 304.
#[tokio::test]
async fn reads_that_are_all_unchanged_have_results() {
    let world = world().await;
    let created = world.send(write(1, &[create("c", "pk1", "item")])).await;
    let etag = text_of(&results(&created)[0], "eTag").unwrap().replace('"', "\\\"");
    let unless = operation("Read", "c", "pk1", "item", &format!(r#","ifNoneMatch":"{etag}""#));
    let answer = world.send(read(&[unless])).await;
    assert_eq!((envelope(&answer), statuses(&answer)), ((200, 5425), vec![(304, 0)]));
    world.stop().await;
}

/// The emulator wants all headers for reads too. Our server finds out from the operations that
/// the request is a read, as documents of the vendor describe.
#[tokio::test]
async fn a_write_without_headers_is_refused_and_a_read_is_not() {
    let world = world().await;
    check_refused(&world.send(bare(&[create("c", "pk1", "1")])).await, 400, 5408);
    assert_eq!(world.send(bare(&[read_item("c", "pk1", "1")])).await.status, 404);
    world.stop().await;
}

#[tokio::test]
async fn the_index_of_an_operation_must_be_its_place_and_is_returned() {
    let world = world().await;
    let read_at = |index: u32| operation("Read", "c", "pk1", "item", &format!(r#","index":{index}"#));
    check_refused(&world.send(read(&[read_at(1)])).await, 400, 5410);
    let answer = world.send(read(&[read_at(0)])).await;
    assert_eq!((answer.status, results(&answer)[0].get("index").and_then(Value::as_i64)), (404, Some(0)));
    world.stop().await;
}
