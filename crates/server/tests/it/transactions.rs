//! Tests of distributed transactions through HTTP: the envelope, the results, every sub-status,
//! the ledger, faults, limits and regions.

mod faults;
mod injected_answers;
mod lagging_regions;
mod ledger;
mod published_cases;
mod reads;
mod refusals;
mod regions;
mod writes;

use perihelion_model::json::Value;
use perihelion_server::ServerOptions;
use perihelion_testkit::http_client::{HttpRequest, HttpResponse};

use crate::world::{PLAIN_CONTAINER, World, json};

/// The second container of the tests.
const SECOND_CONTAINER: &str = r#"{"id":"other","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2},
    "defaultTtl":-1,"uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/email"]}]}}"#;

/// A server with the containers `c` and `other`, of four partitions each.
async fn world() -> World {
    with_options(ServerOptions { management: true, ..ServerOptions::default() }).await
}

/// A server with these options and the containers `c` and `other`, of four partitions each.
async fn with_options(mut options: ServerOptions) -> World {
    options.account.partitions = 4;
    let world = World::with_options(options, PLAIN_CONTAINER).await;
    let created = world.send(HttpRequest::new("POST", "/dbs/d/colls").json(&json(SECOND_CONTAINER))).await;
    assert_eq!(created.status, 201, "{}", created.text());
    world
}

/// The idempotency token with this number.
fn token(number: u64) -> String {
    format!("{number:08x}-0000-4000-8000-000000000000")
}

/// A request with the body that the published SDKs send, without their headers for transactions.
fn bare(operations: &[String]) -> HttpRequest {
    HttpRequest::new("POST", "/operations/dtc")
        .header("content-type", "application/json")
        .body(format!(r#"{{"operations":[{}]}}"#, operations.join(",")))
}

/// A write transaction as the published SDKs send it.
fn write(number: u64, operations: &[String]) -> HttpRequest {
    bare(operations)
        .header("x-ms-cosmos-idempotency-token", token(number))
        .header("x-ms-cosmos-operation-type", "CommitDistributedTransaction")
        .header("x-ms-cosmos-resource-type", "DistributedTransactionBatch")
}

/// A read transaction as the published SDKs send it.
fn read(operations: &[String]) -> HttpRequest {
    bare(operations)
        .header("x-ms-cosmos-operation-type", "Read")
        .header("x-ms-cosmos-resource-type", "DistributedTransactionBatch")
}

/// An operation. `members` follow the members that every operation has.
fn operation(verb: &str, container: &str, pk: &str, id: &str, members: &str) -> String {
    format!(
        r#"{{"operationType":"{verb}","resourceType":"Document","databaseName":"d","collectionName":"{container}","partitionKey":["{pk}"],"id":"{id}"{members}}}"#
    )
}

/// A patch that adds one to `n`.
fn increment(container: &str, pk: &str, id: &str) -> String {
    let body = r#","resourceBody":{"operations":[{"op":"incr","path":"/n","value":1}]}"#;
    operation("Patch", container, pk, id, body)
}

fn create(container: &str, pk: &str, id: &str) -> String {
    operation("Create", container, pk, id, &format!(r#","resourceBody":{{"id":"{id}","pk":"{pk}","n":0}}"#))
}

fn upsert(container: &str, pk: &str, id: &str, n: i64) -> String {
    operation("Upsert", container, pk, id, &format!(r#","resourceBody":{{"id":"{id}","pk":"{pk}","n":{n}}}"#))
}

fn delete(container: &str, pk: &str, id: &str) -> String {
    operation("Delete", container, pk, id, "")
}

fn read_item(container: &str, pk: &str, id: &str) -> String {
    operation("Read", container, pk, id, "")
}

/// The results of the operations, in the order of their indexes.
fn results(answer: &HttpResponse) -> Vec<Value> {
    let body = answer.json().unwrap_or_else(|error| panic!("{}: {error}", answer.text()));
    let results = body.get("operationResponses").and_then(Value::as_array).expect("results").to_vec();
    for (index, result) in results.iter().enumerate() {
        assert_eq!(result.get("index").and_then(Value::as_i64), Some(index as i64));
    }
    results
}

/// The status and the sub-status of each operation.
fn statuses(answer: &HttpResponse) -> Vec<(i64, i64)> {
    let number = |result: &Value, name: &str| result.get(name).and_then(Value::as_i64).expect("a number");
    results(answer)
        .iter()
        .map(|result| (number(result, "statusCode"), number(result, "subStatusCode")))
        .collect()
}

/// The status and the sub-status of the whole answer; sub-status 0 without the header.
fn envelope(answer: &HttpResponse) -> (u16, u32) {
    (answer.status, answer.header("x-ms-substatus").map_or(0, |text| text.parse().expect("a number")))
}

/// Checks that a request was refused with this status. The answer has no body. Its reason is in a header.
fn check_refused(answer: &HttpResponse, status: u16, sub_status: u32) {
    assert_eq!(envelope(answer), (status, sub_status), "{:?}", answer.header("x-perihelion-reason"));
    assert!(answer.body.is_empty(), "{}", answer.text());
    assert!(answer.header("x-perihelion-reason").is_some_and(|reason| !reason.is_empty()));
    assert!(answer.header("x-ms-request-charge").is_some());
    assert!(answer.header("x-ms-activity-id").is_some());
}

/// The `n` of a document of any container; `None` when it does not exist.
async fn n_of(world: &World, container: &str, pk: &str, id: &str) -> Option<i64> {
    let path = format!("/dbs/d/colls/{container}/docs/{id}");
    let call = HttpRequest::new("GET", path).header("x-ms-documentdb-partitionkey", format!(r#"["{pk}"]"#));
    let answer = world.send(call).await;
    (answer.status == 200).then(|| answer.json().unwrap().get("n").and_then(Value::as_i64).unwrap())
}

fn text_of(value: &Value, name: &str) -> Option<String> {
    value.get(name).and_then(Value::as_str).map(str::to_owned)
}
