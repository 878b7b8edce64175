//! Tests that charges differ by at most ten percent from the charges that were recorded
//! from a hosted account (`docs/charges.md`). Benchmarks that compare request units rely
//! on that.

use perihelion_testkit::http_client::{HttpRequest, HttpResponse};

use crate::world::{PLAIN_CONTAINER, World, batch, docs, json, query};

/// How far a charge may differ from the recorded charge, as a fraction of the latter.
const TOLERANCE: f64 = 0.10;

/// What a create costs for each indexed value (`docs/charges.md`).
const CHARGE_PER_VALUE: f64 = 0.381;

fn charge(answer: &HttpResponse) -> f64 {
    answer
        .header("x-ms-request-charge")
        .unwrap_or_else(|| panic!("no charge: {}", answer.text()))
        .parse()
        .unwrap()
}

/// Compares charges with the recorded ones, and collects all differences instead of
/// stopping at the first.
#[derive(Default)]
struct ChargeTable {
    differences: Vec<String>,
    rows: usize,
}

impl ChargeTable {
    fn check(&mut self, what: &str, answer: &HttpResponse, status: u16, recorded: f64) {
        self.rows += 1;
        let charged = charge(answer);
        let distance = (charged - recorded).abs() / recorded;
        if answer.status != status || distance > TOLERANCE {
            self.differences.push(format!(
                "{what}: {} with {charged} RU, recorded {status} with {recorded}",
                answer.status
            ));
        }
    }

    /// Fails if a charge differed, or the number of checked charges is not `rows`.
    fn finish(self, rows: usize) {
        assert_eq!(self.rows, rows);
        assert!(self.differences.is_empty(), "{}", self.differences.join("\n"));
    }
}

fn upsert(body: &str) -> HttpRequest {
    docs("POST", "", r#"["t"]"#).header("x-ms-documentdb-is-upsert", "True").json(&json(body))
}

const NINETEEN_MEMBERS: &str = r#"{"id":"ty1","pk":"t","i":42,"f":1.5,"t":true,"fa":false,"nu":null,"s":"héllo","arr":[1,"a",null,[2]],"obj":{"a":{"b":1}},"emp":"","ea":[],"eo":{},"ts":"2026-10-10T12:00:00Z","dt":"2026-10-10","tm":"12:34:56.789","uuid":"123e4567-e89b-12d3-a456-426614174000","b64":"AAEC/w==","dec":"12345678901234567890.123456789"}"#;

#[tokio::test]
async fn point_operations_cost_what_was_recorded() {
    let unique = r#"{"id":"c","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2},"uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/u"]}]}}"#;
    let world = World::new(PLAIN_CONTAINER).await;
    let mut table = ChargeTable::default();
    let key = r#"["t"]"#;
    let first = world.create(key, r#"{"id":"2","pk":"t"}"#).await;
    table.check("create, 2 members", &first, 201, 5.90);
    table.check("create, 3 members", &world.create(key, r#"{"id":"3","pk":"t","n":1}"#).await, 201, 6.29);
    table.check(
        "create, 4 members",
        &world.create(key, r#"{"id":"4","pk":"t","n":1,"s":"x"}"#).await,
        201,
        6.67,
    );
    table.check(
        "create, 5 members",
        &world.create(key, r#"{"id":"5","pk":"t","n":1,"s":"x","b":true}"#).await,
        201,
        7.05,
    );
    table.check("create, 19 members", &world.create(key, NINETEEN_MEMBERS).await, 201, 14.29);
    table.check("read", &world.read(key, "4").await, 200, 1.0);
    let etag = first.header("etag").unwrap();
    table.check(
        "read, unchanged",
        &world.send(docs("GET", "2", key).header("if-none-match", etag)).await,
        304,
        1.0,
    );
    table.check("read, missing", &world.read(key, "nope").await, 404, 1.0);
    table.check("delete, missing", &world.send(docs("DELETE", "nope", key)).await, 404, 1.24);
    table.check("create, there already", &world.create(key, r#"{"id":"2","pk":"t"}"#).await, 409, 1.48);
    let stale = docs("PUT", "4", key).header("if-match", "\"stale\"").json(&json(r#"{"id":"4","pk":"t"}"#));
    table.check("replace, stale", &world.send(stale).await, 412, 1.24);
    table.check("create, no id", &world.create(key, r#"{"pk":"t"}"#).await, 400, 1.24);
    table.check(
        "upsert, existing",
        &world.send(upsert(r#"{"id":"4","pk":"t","n":2,"s":"y"}"#)).await,
        200,
        10.67,
    );
    let replace = docs("PUT", "4", key).json(&json(r#"{"id":"4","pk":"t","n":3,"s":"z"}"#));
    table.check("replace", &world.send(replace).await, 200, 11.05);
    let patch = r#"{"operations":[{"op":"set","path":"/n","value":7},{"op":"incr","path":"/n","value":3},{"op":"add","path":"/new","value":"v"}]}"#;
    table.check("patch", &world.send(docs("PATCH", "4", key).json(&json(patch))).await, 200, 11.42);
    let shrink = docs("PUT", "ty1", key).json(&json(r#"{"id":"ty1","pk":"t","n":1}"#));
    table.check("replace, 19 members by 3", &world.send(shrink).await, 200, 18.67);
    world.create(key, r#"{"id":"d","pk":"t","n":1,"s":"x"}"#).await;
    table.check("delete", &world.send(docs("DELETE", "d", key)).await, 204, 6.67);
    let no_key = world.send(docs("POST", "", "").json(&json(r#"{"id":"x","pk":"t"}"#))).await;
    assert_eq!((no_key.status, charge(&no_key)), (400, 0.0));
    world.stop().await;

    let world = World::new(unique).await;
    world.create(key, r#"{"id":"1","pk":"t","u":1}"#).await;
    table.check("unique key taken", &world.create(key, r#"{"id":"2","pk":"t","u":1}"#).await, 409, 1.94);
    world.stop().await;
    table.finish(18);
}

#[tokio::test]
async fn batches_cost_what_was_recorded() {
    let world = World::new(PLAIN_CONTAINER).await;
    let mut table = ChargeTable::default();
    let atomic = |body: String| batch(r#"["b"]"#, &body).header("x-ms-cosmos-batch-atomic", "True");
    let create = |id: &str, n: i64| {
        format!(r#"{{"operationType":"Create","resourceBody":{{"id":"{id}","pk":"b","n":{n}}}}}"#)
    };
    table.check(
        "2 creates",
        &world.send(atomic(format!("[{},{}]", create("b1", 10), create("b2", 11)))).await,
        200,
        12.57,
    );
    let mixed = r#"[{"operationType":"Read","id":"b1"},{"operationType":"Upsert","resourceBody":{"id":"b1","pk":"b","n":99}},
      {"operationType":"Replace","id":"b2","resourceBody":{"id":"b2","pk":"b","n":98}},
      {"operationType":"Patch","id":"b2","resourceBody":{"operations":[{"op":"set","path":"/n","value":1}]}},
      {"operationType":"Delete","id":"b2"}]"#;
    table.check("5 mixed", &world.send(atomic(mixed.to_owned())).await, 200, 39.03);
    let aborted = format!("[{},{}]", create("b9", 1), create("b1", 1));
    table.check("aborted", &world.send(atomic(aborted)).await, 207, 7.86);
    let hundred: Vec<String> = (0..100)
        .map(|n| format!(r#"{{"operationType":"Create","resourceBody":{{"id":"x{n}","pk":"b","n":{n},"grp":"g","s":"x"}}}}"#))
        .collect();
    table.check("100 creates", &world.send(atomic(format!("[{}]", hundred.join(",")))).await, 200, 704.76);
    world.stop().await;
    table.finish(4);
}

#[tokio::test]
async fn queries_cost_what_was_recorded() {
    let world = World::new(PLAIN_CONTAINER).await;
    for partition in 0..5 {
        for start in (0..500).step_by(100) {
            let operations: Vec<String> = (start..start + 100)
                .map(|n| {
                    let body = format!(
                        r#"{{"id":"p{partition}-{n}","pk":"p{partition}","n":{n},"grp":"g{}"}}"#,
                        n % 5
                    );
                    format!(r#"{{"operationType":"Create","resourceBody":{body}}}"#)
                })
                .collect();
            let call = batch(&format!(r#"["p{partition}"]"#), &format!("[{}]", operations.join(",")));
            assert_eq!(world.send(call.header("x-ms-cosmos-batch-atomic", "True")).await.status, 200);
        }
    }
    let mut table = ChargeTable::default();
    let crossing = |text: &str| query(text).header("x-ms-documentdb-query-enablecrosspartition", "True");
    table.check("constant", &world.send(crossing("SELECT VALUE 1")).await, 200, 2.25);
    table.check("by id", &world.send(crossing("SELECT * FROM c WHERE c.id = 'p1-7'")).await, 200, 2.9);
    let count = query("SELECT VALUE COUNT(1) FROM c");
    table.check(
        "count by range",
        &world.send(count.clone().header("x-ms-documentdb-partitionkeyrangeid", "0")).await,
        200,
        2.89,
    );
    table.check(
        "count by key",
        &world.send(count.header("x-ms-documentdb-partitionkey", r#"["p1"]"#)).await,
        200,
        2.99,
    );
    table.check("1000 ids", &world.send(crossing("SELECT c.id FROM c")).await, 200, 15.24);
    table.check("1000 ids and numbers", &world.send(crossing("SELECT c.id, c.n FROM c")).await, 200, 17.16);
    let all = |text: &str| crossing(text).header("x-ms-max-item-count", "-1");
    table.check("2500 ids", &world.send(all("SELECT c.id FROM c")).await, 200, 34.72);
    table.check("2500 documents", &world.send(all("SELECT * FROM c")).await, 200, 38.14);
    world.stop().await;
    table.finish(8);
}

#[tokio::test]
async fn databases_containers_and_scripts_cost_what_was_recorded() {
    let world = World::new(PLAIN_CONTAINER).await;
    let mut table = ChargeTable::default();
    let create = |path: &str, body: &str| HttpRequest::new("POST", path).json(&json(body));
    table.check("database", &world.send(create("/dbs", r#"{"id":"x"}"#)).await, 201, 1.0);
    table.check("container", &world.send(create("/dbs/x/colls", PLAIN_CONTAINER)).await, 201, 1.0);
    table.check("container read", &world.send(HttpRequest::new("GET", "/dbs/x/colls/c")).await, 200, 2.0);
    table.check("container feed", &world.send(HttpRequest::new("GET", "/dbs/x/colls")).await, 200, 2.0);
    table.check("database feed", &world.send(HttpRequest::new("GET", "/dbs")).await, 200, 2.0);
    let script = r#"{"id":"s","body":"function () {}"}"#;
    table.check("procedure", &world.send(create("/dbs/x/colls/c/sprocs", script)).await, 201, 4.95);
    let feed = docs("GET", "", "")
        .header("a-im", "Incremental feed")
        .header("x-ms-documentdb-partitionkeyrangeid", "0");
    world.create(r#"["a"]"#, r#"{"id":"1","pk":"a"}"#).await;
    table.check("change feed", &world.send(feed).await, 200, 1.0);
    table.check("database delete", &world.send(HttpRequest::new("DELETE", "/dbs/x")).await, 204, 4.95);
    world.stop().await;
    table.finish(8);
}

#[tokio::test]
async fn paths_excluded_from_the_index_are_not_charged() {
    let policy = r#"{"id":"c","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2},"indexingPolicy":{"includedPaths":[{"path":"/n/?"}],"excludedPaths":[{"path":"/*"}]}}"#;
    let (all, few) = (World::new(PLAIN_CONTAINER).await, World::new(policy).await);
    let key = r#"["t"]"#;
    let body = r#"{"id":"1","pk":"t","n":1,"o":{"a":1,"b":[1,2,3]}}"#;
    let (all_indexed, one_indexed) =
        (charge(&all.create(key, body).await), charge(&few.create(key, body).await));
    // The policy leaves `id` and `n` indexed: five of the seven values are not charged.
    assert!(
        (all_indexed - one_indexed - 5.0 * CHARGE_PER_VALUE).abs() < 0.02,
        "{all_indexed} RU with all values indexed, {one_indexed} RU with one path indexed"
    );
}
