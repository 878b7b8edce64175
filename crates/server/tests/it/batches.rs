//! Tests of batches, atomic and not, and of bulk requests.

use perihelion_model::json::Value;
use perihelion_testkit::http_client::HttpResponse;

use crate::world::{PLAIN_CONTAINER, World, batch, docs};

fn statuses(answer: &HttpResponse) -> Vec<i64> {
    let results = answer.json().unwrap();
    results
        .as_array()
        .unwrap()
        .iter()
        .map(|result| result.get("statusCode").and_then(Value::as_i64).unwrap())
        .collect()
}

const FAILS_IN_THE_MIDDLE: &str = r#"[
  {"operationType":"Create","resourceBody":{"id":"1","pk":"a"}},
  {"operationType":"Delete","id":"missing"},
  {"operationType":"Create","resourceBody":{"id":"2","pk":"a"}}]"#;

#[tokio::test]
async fn an_atomic_batch_that_fails_writes_nothing() {
    let world = World::new(PLAIN_CONTAINER).await;
    let answer =
        world.send(batch(r#"["a"]"#, FAILS_IN_THE_MIDDLE).header("x-ms-cosmos-batch-atomic", "True")).await;
    assert_eq!(answer.status, 207);
    assert_eq!(statuses(&answer), [424, 404, 424]);
    assert!(world.query("SELECT * FROM c").await.is_empty());
    world.stop().await;
}

#[tokio::test]
async fn without_the_atomic_header_operations_before_the_failure_stay() {
    let world = World::new(PLAIN_CONTAINER).await;
    let answer = world.send(batch(r#"["a"]"#, FAILS_IN_THE_MIDDLE)).await;
    assert_eq!(answer.status, 207);
    assert_eq!(statuses(&answer), [201, 404, 424]);
    assert_eq!(world.query("SELECT VALUE c.id FROM c").await, [Value::from("1")]);
    world.stop().await;
}

#[tokio::test]
async fn a_failed_precondition_in_a_batch_fails_the_whole_batch() {
    let world = World::new(PLAIN_CONTAINER).await;
    let created = world.create(r#"["a"]"#, r#"{"id":"1","pk":"a","n":1}"#).await;
    let etag = created.header("etag").unwrap().replace('"', "\\\"");
    let operations = |etag: &str| {
        format!(
            r#"[{{"operationType":"Create","resourceBody":{{"id":"2","pk":"a"}}}},
                {{"operationType":"Replace","id":"1","ifMatch":"{etag}","resourceBody":{{"id":"1","pk":"a","n":2}}}}]"#
        )
    };
    let atomic = |body: String| batch(r#"["a"]"#, &body).header("x-ms-cosmos-batch-atomic", "True");
    let refused = world.send(atomic(operations("\\\"stale\\\""))).await;
    assert_eq!(statuses(&refused), [424, 412]);
    let done = world.send(atomic(operations(&etag))).await;
    assert_eq!((done.status, statuses(&done)), (200, vec![201, 200]));
    world.stop().await;
}

#[tokio::test]
async fn a_document_of_another_partition_fails_the_batch() {
    let world = World::new(PLAIN_CONTAINER).await;
    let body = r#"[{"operationType":"Create","resourceBody":{"id":"1","pk":"b"}}]"#;
    let answer = world.send(batch(r#"["a"]"#, body).header("x-ms-cosmos-batch-atomic", "True")).await;
    assert_eq!(
        (answer.status, statuses(&answer), answer.header("x-ms-substatus")),
        (207, vec![400], Some("1001"))
    );
    world.stop().await;
}

#[tokio::test]
async fn bulk_operations_have_their_own_partition_keys() {
    let world = World::new(PLAIN_CONTAINER).await;
    let body = r#"[
      {"operationType":"Create","partitionKey":"[\"a\"]","resourceBody":{"id":"1","pk":"a"}},
      {"operationType":"Create","partitionKey":"[\"a\"]","resourceBody":{"id":"1","pk":"a"}},
      {"operationType":"Upsert","partitionKey":"[\"b\"]","resourceBody":{"id":"1","pk":"b"}},
      {"operationType":"Patch","partitionKey":"[\"b\"]","id":"1","resourceBody":{"operations":[{"op":"add","path":"/x","value":1}]}}]"#;
    let call = batch("", body)
        .header("x-ms-documentdb-partitionkeyrangeid", "0")
        .header("x-ms-cosmos-batch-continue-on-error", "True")
        .header("x-ms-cosmos-batch-atomic", "False");
    let answer = world.send(call).await;
    assert_eq!((answer.status, statuses(&answer)), (207, vec![201, 409, 201, 200]));
    assert_eq!(world.query("SELECT VALUE COUNT(1) FROM c").await, [Value::from(2i64)]);
    world.stop().await;
}

#[tokio::test]
async fn a_batch_has_one_lsn_and_an_etag_per_document() {
    let world = World::new(PLAIN_CONTAINER).await;
    let body = r#"[{"operationType":"Create","resourceBody":{"id":"1","pk":"a"}},{"operationType":"Create","resourceBody":{"id":"2","pk":"a"}}]"#;
    world.send(batch(r#"["a"]"#, body).header("x-ms-cosmos-batch-atomic", "True")).await;
    let (one, two) = (world.read(r#"["a"]"#, "1").await, world.read(r#"["a"]"#, "2").await);
    assert_eq!(one.header("x-ms-item-lsn"), two.header("x-ms-item-lsn"));
    assert_ne!(one.header("etag"), two.header("etag"));
    world.stop().await;
}

#[tokio::test]
async fn malformed_batches_are_refused_whole() {
    let world = World::new(PLAIN_CONTAINER).await;
    for body in [
        "{}",
        "[1]",
        "[{}]",
        r#"[{"operationType":"Explode","id":"1"}]"#,
        r#"[{"operationType":"Delete"}]"#,
        r#"[{"operationType":"Create"}]"#,
        "[",
        r#"[{"operationType":"Patch","id":"1","resourceBody":{"operations":[]}}]"#,
    ] {
        let answer = world.send(batch(r#"["a"]"#, body).header("x-ms-cosmos-batch-atomic", "True")).await;
        assert_eq!(answer.status, 400, "{body}: {}", answer.text());
    }
    let large = format!(
        r#"[{{"operationType":"Create","resourceBody":{{"id":"1","pk":"a","s":"{}"}}}}]"#,
        "x".repeat(2_200_000)
    );
    assert_eq!(
        world.send(batch(r#"["a"]"#, &large).header("x-ms-cosmos-batch-atomic", "True")).await.status,
        413
    );
    assert_eq!(world.send(docs("GET", "1", r#"["a"]"#)).await.status, 404);
    world.stop().await;
}

/// A document whose arrays and objects nest this deep.
fn nested_document(id: &str, levels: usize) -> String {
    let (open, close) = ("[".repeat(levels - 1), "]".repeat(levels - 1));
    format!(r#"{{"id":"{id}","pk":"a","nested":{open}{close}}}"#)
}

/// A document may have 128 levels. Story of a bug: the list and the object around a document of a batch
/// counted as its levels, so a document that could be created alone was refused in a batch.
#[tokio::test]
async fn a_document_may_be_nested_as_deep_in_a_batch_as_alone() {
    let world = World::new(PLAIN_CONTAINER).await;
    assert_eq!(world.create(r#"["a"]"#, &nested_document("1", 128)).await.status, 201);
    let create = |id: &str, levels: usize| {
        let document = nested_document(id, levels);
        batch(r#"["a"]"#, &format!(r#"[{{"operationType":"Create","resourceBody":{document}}}]"#))
            .header("prefer", "return=minimal")
    };
    let created = world.send(create("3", 128)).await;
    assert_eq!((created.status, statuses(&created)), (200, vec![201]));
    assert_eq!(world.send(create("4", 129)).await.status, 400);
    world.stop().await;
}

/// Story of a bug: the limit for the size of an answer (4 MB) counted only the documents that a bulk
/// request reads, and not those that it writes. The answer to a hundred patches of large documents had up
/// to 200 MB.
#[tokio::test]
async fn the_documents_that_a_bulk_request_writes_count_towards_the_size_of_its_answer() {
    let world = World::new(PLAIN_CONTAINER).await;
    for id in 0..6 {
        let document = format!(r#"{{"id":"{id}","pk":"a","text":"{}"}}"#, "x".repeat(900_000));
        assert_eq!(world.create(r#"["a"]"#, &document).await.status, 201);
    }
    let operations: Vec<String> = (0..6)
        .map(|id| {
            format!(
                r#"{{"operationType":"Patch","id":"{id}","partitionKey":"[\"a\"]","resourceBody":{{"operations":[{{"op":"incr","path":"/n","value":1}}]}}}}"#
            )
        })
        .collect();
    let bulk = |is_minimal: bool| {
        let request = batch("", &format!("[{}]", operations.join(",")))
            .header("x-ms-documentdb-partitionkeyrangeid", "0")
            .header("x-ms-cosmos-batch-continue-on-error", "True");
        if is_minimal { request.header("prefer", "return=minimal") } else { request }
    };
    let answer = world.send(bulk(false)).await;
    assert_eq!(statuses(&answer), [200, 200, 200, 200, 413, 413]);
    assert!(answer.body.len() < 5_000_000, "{} bytes", answer.body.len());
    // An operation whose result does not fit is not carried out.
    let counts = "SELECT VALUE c.n ?? 0 FROM c ORDER BY c.id";
    assert_eq!(world.query(counts).await, [1, 1, 1, 1, 0, 0].map(|n: i64| Value::from(n)));
    let answer = world.send(bulk(true)).await;
    assert_eq!(statuses(&answer), [200; 6]);
    assert_eq!(world.query(counts).await, [2, 2, 2, 2, 1, 1].map(|n: i64| Value::from(n)));
    world.stop().await;
}
