//! Tests of fault rules with a `range`: a rule hits the requests that are addressed to
//! one physical partition, and leaves the other partitions alone.

use perihelion_model::json::Value;
use perihelion_server::ServerOptions;
use perihelion_testkit::http_client::{HttpRequest, HttpResponse};

use crate::world::{PLAIN_CONTAINER, World, batch, docs, json, query, text};

const RANGE_HEADER: &str = "x-ms-documentdb-partitionkeyrangeid";
const CROSS_PARTITION: &str = "x-ms-documentdb-query-enablecrosspartition";
const ALL: &str = "SELECT * FROM c";
/// The ids of the ranges of a new container with four ranges.
const IDS: [&str; 4] = ["0", "1", "2", "3"];
/// Enough keys for several keys in each of the four ranges and in each child of a split.
const KEYS: usize = 60;

/// A server whose container has four ranges with documents in each. The id of a document
/// is its partition key.
struct FourRanges {
    world: World,
    /// The partition keys of the documents in each range.
    keys: [Vec<String>; 4],
}

impl FourRanges {
    async fn new() -> FourRanges {
        let world = four_ranges_of(PLAIN_CONTAINER).await;
        let mut keys: [Vec<String>; 4] = Default::default();
        for n in 0..KEYS {
            let key = format!("k{n}");
            let created = world.send(create(&key, &key)).await;
            assert_eq!(created.status, 201, "{}", created.text());
            keys[range_in(&created).parse::<usize>().unwrap()].push(key);
        }
        assert!(keys.iter().all(|keys| keys.len() > 2), "{keys:?}");
        FourRanges { world, keys }
    }

    async fn inject(&self, rule: &str) {
        let added = self.world.manage("POST", "faults", rule).await;
        assert_eq!(added.status, 200, "{rule}: {}", added.text());
    }

    async fn status(&self, call: HttpRequest) -> u16 {
        self.world.send(call).await.status
    }

    /// The statuses of requests that are addressed to each range by its id.
    async fn by_id(&self, call: impl Fn(&str) -> HttpRequest) -> Vec<u16> {
        let mut statuses = Vec::new();
        for id in IDS {
            statuses.push(self.status(call(id)).await);
        }
        statuses
    }

    /// The statuses of requests that are addressed to each range by one of its keys.
    async fn by_key(&self, call: impl Fn(&str) -> HttpRequest) -> Vec<u16> {
        let mut statuses = Vec::new();
        for keys in &self.keys {
            statuses.push(self.status(call(&keys[0])).await);
        }
        statuses
    }

    /// The effective keys at which each range begins and ends, in hexadecimal.
    async fn bounds(&self) -> Vec<(String, String)> {
        let answer = self.world.send(HttpRequest::new("GET", "/dbs/d/colls/c/pkranges")).await;
        let body = answer.json().unwrap();
        let ranges = body.get("PartitionKeyRanges").and_then(Value::as_array).unwrap();
        ranges.iter().map(|range| (text(range, "minInclusive"), text(range, "maxExclusive"))).collect()
    }

    async fn split(&self, range: &str) -> String {
        let body = format!(r#"{{"database":"d","container":"c","range":"{range}"}}"#);
        self.world.manage("POST", "split", &body).await.text().into_owned()
    }
}

async fn four_ranges_of(container: &str) -> World {
    let mut options = ServerOptions { management: true, ..Default::default() };
    options.account.partitions = 4;
    World::with_options(options, container).await
}

/// The id of the range that served a request.
fn range_in(answer: &HttpResponse) -> String {
    answer.header(RANGE_HEADER).unwrap_or_else(|| panic!("{answer:?}")).to_owned()
}

/// A partition key as its header.
fn header_of(key: &str) -> String {
    format!(r#"["{key}"]"#)
}

fn document(key: &str, id: &str) -> Value {
    json(&format!(r#"{{"id":"{id}","pk":"{key}"}}"#))
}

fn create(key: &str, id: &str) -> HttpRequest {
    docs("POST", "", &header_of(key)).json(&document(key, id))
}

fn read(key: &str) -> HttpRequest {
    docs("GET", key, &header_of(key))
}

#[tokio::test]
async fn a_rule_for_queries_of_one_range_hits_them_by_range_id_and_by_partition_key() {
    let ranges = FourRanges::new().await;
    let container = ranges.world.send(HttpRequest::new("GET", "/dbs/d/colls/c")).await.json().unwrap();
    let rid = text(&container, "_rid");
    ranges
        .inject(r#"{"operation":"query","container":"c","range":"2","status":503,"subStatus":20003}"#)
        .await;
    let only_range_2 = [200, 200, 503, 200];
    assert_eq!(ranges.by_id(|id| query(ALL).header(RANGE_HEADER, id)).await, only_range_2);
    assert_eq!(
        ranges.by_id(|id| query(ALL).header(RANGE_HEADER, format!("{rid},{id}"))).await,
        only_range_2,
        "with the container's rid"
    );
    let by_key = |key: &str| query(ALL).header("x-ms-documentdb-partitionkey", header_of(key));
    assert_eq!(ranges.by_key(by_key).await, only_range_2);
    assert_eq!(ranges.by_id(|id| docs("GET", "", "").header(RANGE_HEADER, id)).await, [200; 4], "feeds");
    assert_eq!(ranges.by_key(read).await, [200; 4], "reads");

    let report = ranges.world.manage("GET", "faults", "").await.json().unwrap();
    assert_eq!(report, json(r#"{"faults":[{"id":1,"operation":"query","hits":3,"left":null}]}"#));
    ranges.world.stop().await;
}

#[tokio::test]
async fn a_rule_for_one_range_hits_queries_of_effective_keys_that_overlap_it() {
    let ranges = FourRanges::new().await;
    ranges.inject(r#"{"operation":"query","container":"c","range":"2","status":503}"#).await;
    let bounds = ranges.bounds().await;
    let (min, max) = (|id: usize| bounds[id].0.as_str(), |id: usize| bounds[id].1.as_str());
    let inside = format!("{}80", min(2));
    for (start, end, status) in [
        (Some(min(2)), Some(max(2)), 503),
        (Some(min(2)), Some(inside.as_str()), 503),
        (Some(min(1)), Some(inside.as_str()), 503),
        (Some(min(0)), Some(max(3)), 503),
        (Some(inside.as_str()), None, 503),
        (None, Some(inside.as_str()), 503),
        // Ends are exclusive: these intervals touch range 2 and have no key in it.
        (Some(min(1)), Some(max(1)), 200),
        (Some(min(3)), Some(max(3)), 200),
        (Some(min(3)), None, 200),
        (None, Some(max(1)), 200),
    ] {
        let mut call = query(ALL);
        for (name, key) in [("x-ms-start-epk", start), ("x-ms-end-epk", end)] {
            call = key.into_iter().fold(call, |call, key| call.header(name, key));
        }
        assert_eq!(ranges.status(call).await, status, "{start:?} to {end:?}");
    }
    // If a request has the id of a range and effective keys, the id decides.
    let keys_of_range_2 = |id: &str| {
        let call = query(ALL).header("x-ms-start-epk", min(2)).header("x-ms-end-epk", max(2));
        call.header(RANGE_HEADER, id)
    };
    assert_eq!(ranges.by_id(keys_of_range_2).await, [200, 200, 503, 200]);
    // A query without any of these headers reads all ranges.
    assert_eq!(ranges.status(query(ALL).header(CROSS_PARTITION, "True")).await, 503);
    ranges.world.stop().await;
}

#[tokio::test]
async fn a_throttled_range_refuses_its_items_and_batches_and_no_others() {
    let ranges = FourRanges::new().await;
    let throttle =
        r#"{"database":"d","container":"c","range":1,"status":429,"subStatus":3200,"retryAfterMs":7}"#;
    ranges.inject(throttle).await;
    let upsert = |key: &str| create(key, key).header("x-ms-documentdb-is-upsert", "True");
    let replace = |key: &str| docs("PUT", key, &header_of(key)).json(&document(key, key));
    let set = json(r#"{"operations":[{"op":"set","path":"/n","value":1}]}"#);
    let patch = |key: &str| docs("PATCH", key, &header_of(key)).json(&set);
    let batch_of = |key: &str| {
        batch(&header_of(key), &format!(r#"[{{"operationType":"Read","id":"{key}"}}]"#))
            .header("x-ms-cosmos-batch-atomic", "True")
    };
    let delete = |key: &str| docs("DELETE", key, &header_of(key));
    let delete_partition = |key: &str| {
        HttpRequest::new("POST", "/dbs/d/colls/c/operations/partitionkeydelete")
            .header("x-ms-documentdb-partitionkey", header_of(key))
    };
    assert_eq!(ranges.by_key(|key| create(key, "new")).await, [201, 429, 201, 201]);
    assert_eq!(ranges.by_key(read).await, [200, 429, 200, 200]);
    assert_eq!(ranges.by_key(upsert).await, [200, 429, 200, 200]);
    assert_eq!(ranges.by_key(replace).await, [200, 429, 200, 200]);
    assert_eq!(ranges.by_key(patch).await, [200, 429, 200, 200]);
    assert_eq!(ranges.by_key(batch_of).await, [200, 429, 200, 200]);
    assert_eq!(ranges.by_key(delete).await, [204, 429, 204, 204]);
    assert_eq!(ranges.by_key(delete_partition).await, [200, 429, 200, 200]);
    let feed = |id: &str| docs("GET", "", "").header("a-im", "Incremental Feed").header(RANGE_HEADER, id);
    assert_eq!(ranges.by_id(feed).await, [200, 429, 200, 200]);

    let key = &ranges.keys[1][0];
    let refused = ranges.world.send(read(key)).await;
    assert_eq!(refused.header("x-ms-substatus"), Some("3200"));
    assert_eq!(refused.header("x-ms-retry-after-ms"), Some("7"));
    // No range answers these requests, whatever their headers say.
    let plan = query(ALL)
        .header("x-ms-cosmos-is-query-plan-request", "True")
        .header("x-ms-documentdb-partitionkey", header_of(key));
    assert_eq!(ranges.status(plan).await, 200);
    for path in ["/dbs/d", "/dbs/d/colls/c", "/dbs/d/colls/c/pkranges"] {
        assert_eq!(ranges.status(HttpRequest::new("GET", path)).await, 200, "{path}");
    }

    ranges.world.manage("DELETE", "faults", "").await;
    assert_eq!(ranges.status(read(key)).await, 200, "the document was not deleted");
    assert_eq!(ranges.status(docs("GET", "new", &header_of(key))).await, 404, "it was not created");
    ranges.world.stop().await;
}

#[tokio::test]
async fn the_rule_of_a_range_hits_its_descendants_after_splits() {
    let ranges = FourRanges::new().await;
    ranges.inject(r#"{"container":"c","range":"1","status":503}"#).await;
    assert_eq!(ranges.split("1").await, r#"{"children":["4","5"]}"#);
    assert_eq!(ranges.split("5").await, r#"{"children":["6","7"]}"#);
    for (range, keys) in ranges.keys.iter().enumerate() {
        let status = if range == 1 { 503 } else { 200 };
        for key in keys {
            assert_eq!(ranges.status(read(key)).await, status, "{key} of range {range}");
        }
    }
    for (id, status) in [("0", 200), ("2", 200), ("3", 200), ("4", 503), ("6", 503), ("7", 503)] {
        assert_eq!(ranges.status(query(ALL).header(RANGE_HEADER, id)).await, status, "range {id}");
    }
    // Requests to the ranges that were split are answered with 410, so that clients learn of the
    // split.
    for id in ["1", "5"] {
        let gone = ranges.world.send(query(ALL).header(RANGE_HEADER, id)).await;
        assert_eq!((gone.status, gone.header("x-ms-substatus")), (410, Some("1002")), "range {id}");
    }
    ranges.world.stop().await;
}

#[tokio::test]
async fn the_rule_of_a_child_leaves_its_sibling_alone() {
    let ranges = FourRanges::new().await;
    assert_eq!(ranges.split("1").await, r#"{"children":["4","5"]}"#);
    let mut keys_by_child = [Vec::new(), Vec::new()];
    for key in &ranges.keys[1] {
        match range_in(&ranges.world.send(read(key)).await).as_str() {
            "4" => keys_by_child[0].push(key),
            "5" => keys_by_child[1].push(key),
            other => panic!("{key} is in range {other}"),
        }
    }
    assert!(keys_by_child.iter().all(|keys| !keys.is_empty()), "{keys_by_child:?}");
    ranges.inject(r#"{"container":"c","range":"5","status":503}"#).await;
    for (keys, status) in keys_by_child.iter().zip([200, 503]) {
        for key in keys {
            assert_eq!(ranges.status(read(key)).await, status, "{key}");
        }
    }
    ranges.world.stop().await;
}

#[tokio::test]
async fn the_prefix_of_a_hierarchical_key_is_resolved_to_its_range() {
    let container = r#"{"id":"c","partitionKey":{"paths":["/t","/u"],"kind":"MultiHash","version":2}}"#;
    let world = four_ranges_of(container).await;
    let mut tenants = Vec::new();
    for n in 0..8 {
        let created =
            world.create(&format!(r#"["t{n}","u"]"#), &format!(r#"{{"id":"1","t":"t{n}","u":"u"}}"#)).await;
        assert_eq!(created.status, 201, "{}", created.text());
        tenants.push((header_of(&format!("t{n}")), range_in(&created)));
    }
    let faulty_range = &tenants[0].1;
    assert!(tenants.iter().any(|(_, range)| range != faulty_range), "{tenants:?}");
    let rule = format!(r#"{{"operation":"query","range":"{faulty_range}","status":503}}"#);
    assert_eq!(world.manage("POST", "faults", &rule).await.status, 200);
    for (prefix, range) in &tenants {
        let answer = world.send(query(ALL).header("x-ms-documentdb-partitionkey", prefix.as_str())).await;
        assert_eq!(answer.status, if range == faulty_range { 503 } else { 200 }, "{prefix} of range {range}");
    }
    world.stop().await;
}
