//! Tests of several regions: which region answers, which region takes writes, and when
//! writes arrive. The tests in `in_process` use no sockets; all others do.

mod in_process;
mod outages;
mod range_writers;
mod replication;
mod restarts;
mod write_region;
mod writers;

use perihelion_model::json::Value;
use perihelion_server::{Server, ServerOptions};
use perihelion_testkit::http_client::{HttpRequest, HttpResponse};

use crate::multi_region::{EAST, MultiRegion, NAMES, NORTH, WEST, send, three_regions};
use crate::world::{batch, docs, json};

/// The names and endpoints of the locations that the account document lists. `kind` is
/// the member with the list.
fn locations(account: &HttpResponse, kind: &str) -> Vec<(String, String)> {
    let account = account.json().unwrap();
    let list = account.get(kind).and_then(Value::as_array).unwrap().to_vec();
    let text = |location: &Value, name: &str| location.get(name).unwrap().as_str().unwrap().to_owned();
    list.iter().map(|place| (text(place, "name"), text(place, "databaseAccountEndpoint"))).collect()
}

fn names(locations: &[(String, String)]) -> Vec<&str> {
    locations.iter().map(|(name, _)| name.as_str()).collect()
}

#[tokio::test]
async fn the_account_lists_each_regions_endpoint_on_the_clients_host() {
    let world = MultiRegion::new().await;
    let call = HttpRequest::new("GET", "/").header("host", "localhost:1234");
    let account = send(&world.global, call).await;
    let read = locations(&account, "readableLocations");
    assert_eq!(names(&read), NAMES);
    assert_eq!(names(&locations(&account, "writableLocations")), ["West US"]);
    for (name, endpoint) in read {
        let port = world.server.region_address(&name).port();
        assert_eq!(endpoint, format!("http://localhost:{port}/"), "{name}");
    }
    let account = account.json().unwrap();
    assert_eq!(account.get("enableMultipleWriteLocations"), Some(&false.into()));
    world.stop().await;

    let world = MultiRegion::with_multi_write().await;
    let account = world.send(NORTH, HttpRequest::new("GET", "/")).await;
    assert_eq!(names(&locations(&account, "writableLocations")), NAMES);
    let account = account.json().unwrap();
    assert_eq!(account.get("enableMultipleWriteLocations"), Some(&true.into()));
    world.stop().await;
}

#[tokio::test]
async fn the_regions_ports_follow_the_public_endpoint() {
    let public = Some("https://db.internal:9000/".to_owned());
    let world = MultiRegion::with_options(ServerOptions { public_endpoint: public, ..three_regions() }).await;
    let account = send(&world.global, HttpRequest::new("GET", "/")).await;
    let endpoints: Vec<String> =
        locations(&account, "readableLocations").into_iter().map(|(_, endpoint)| endpoint).collect();
    let expected = ["https://db.internal:9001/", "https://db.internal:9002/", "https://db.internal:9003/"];
    assert_eq!(endpoints, expected);
    world.stop().await;
}

/// Story of a bug: the last regions all had the port 65535.
#[tokio::test]
async fn a_public_endpoint_that_leaves_too_few_ports_for_the_regions_is_refused() {
    let public = Some("https://db.internal:65533/".to_owned());
    let options = ServerOptions { public_endpoint: public, ..three_regions() };
    let error = Server::start(options).await.unwrap_err();
    assert!(error.to_string().contains("3 ports after the port of the public endpoint"), "{error}");
}

#[tokio::test]
async fn a_write_is_refused_outside_the_write_region() {
    let world = MultiRegion::new().await;
    world.upsert(WEST, "1", 1).await;
    world.wait_for_replication().await;
    let body = json(r#"{"id":"1","pk":"a"}"#);
    let container = json(r#"{"id":"e","partitionKey":{"paths":["/pk"],"kind":"Hash"}}"#);
    for call in [
        docs("POST", "", r#"["a"]"#).json(&body),
        docs("PUT", "1", r#"["a"]"#).json(&body),
        docs("DELETE", "1", r#"["a"]"#),
        docs("PATCH", "1", r#"["a"]"#).json(&json(r#"[{"op":"add","path":"/x","value":1}]"#)),
        batch(r#"["a"]"#, r#"[{"operationType":"Delete","id":"1"}]"#),
        HttpRequest::new("POST", "/dbs").json(&json(r#"{"id":"e"}"#)),
        HttpRequest::new("DELETE", "/dbs/d"),
        HttpRequest::new("POST", "/dbs/d/colls").json(&container),
        HttpRequest::new("DELETE", "/dbs/d/colls/c"),
        HttpRequest::new("POST", "/dbs/d/colls/c/sprocs").json(&json(r#"{"id":"s","body":"function(){}"}"#)),
    ] {
        let refused = world.send(EAST, call.clone()).await;
        let got = (refused.status, refused.header("x-ms-substatus"));
        assert_eq!(got, (403, Some("3")), "{call:?}: {}", refused.text());
    }
    assert_eq!(world.read(EAST, "1").await.status, 200, "reads are still served");
    world.stop().await;
}

#[tokio::test]
async fn with_multi_write_only_one_region_takes_changes_of_the_catalog() {
    let world = MultiRegion::with_multi_write().await;
    let database = || HttpRequest::new("POST", "/dbs").json(&json(r#"{"id":"e"}"#));
    assert_eq!(world.send(EAST, database()).await.header("x-ms-substatus"), Some("3"));
    assert_eq!(world.send(WEST, database()).await.status, 201);
    assert_eq!(world.send(EAST, HttpRequest::new("GET", "/dbs/e")).await.status, 200);
    assert_eq!(world.upsert(EAST, "1", 1).await.status, 201);
    world.stop().await;
}

#[tokio::test]
async fn with_multi_write_a_write_outside_of_the_write_region_needs_the_tentative_writes_header() {
    let world = MultiRegion::with_multi_write().await;
    let body = json(r#"{"id":"1","pk":"a"}"#);
    let create = docs("POST", "", r#"["a"]"#).json(&body);
    // `world.send` would add the header `x-ms-cosmos-allow-tentative-writes`.
    let refused = world.regions[EAST].send(&create).await.unwrap();
    assert_eq!((refused.status, refused.header("x-ms-substatus")), (403, Some("3")), "{}", refused.text());
    assert_eq!(world.regions[WEST].send(&create).await.unwrap().status, 201);
    world.wait_for_replication().await;
    let delete_partition = HttpRequest::new("POST", "/dbs/d/colls/c/operations/partitionkeydelete")
        .header("x-ms-documentdb-partitionkey", r#"["a"]"#);
    let refused = world.regions[EAST].send(&delete_partition).await.unwrap();
    assert_eq!((refused.status, refused.header("x-ms-substatus")), (403, Some("3")), "{}", refused.text());
    let tentative = docs("DELETE", "1", r#"["a"]"#).header("x-ms-cosmos-allow-tentative-writes", "True");
    assert_eq!(world.regions[EAST].send(&tentative).await.unwrap().status, 204);
    world.stop().await;
}

#[tokio::test]
async fn a_read_meant_for_the_write_region_is_refused_in_other_regions() {
    let world = MultiRegion::new().await;
    world.upsert(WEST, "1", 1).await;
    world.wait_for_replication().await;
    let read = docs("GET", "1", r#"["a"]"#).header("x-ms-cosmos-hub-region-processing-only", "True");
    assert_eq!(world.send(WEST, read.clone()).await.status, 200);
    let refused = world.send(EAST, read.clone()).await;
    assert_eq!((refused.status, refused.header("x-ms-substatus")), (403, Some("3")));
    world.manage_region("regions/write", EAST).await;
    assert_eq!(world.send(EAST, read.clone()).await.status, 200);
    assert_eq!(world.send(WEST, read).await.header("x-ms-substatus"), Some("3"));
    world.stop().await;
}

#[tokio::test]
async fn a_catalog_change_is_in_every_region_when_it_is_acknowledged() {
    let world = MultiRegion::new().await;
    let script = json(r#"{"id":"s","body":"function(){}"}"#);
    let created = world.send(WEST, HttpRequest::new("POST", "/dbs/d/colls/c/sprocs").json(&script)).await;
    assert_eq!(created.status, 201, "{}", created.text());
    let user = json(r#"{"id":"u"}"#);
    assert_eq!(world.send(WEST, HttpRequest::new("POST", "/dbs/d/users").json(&user)).await.status, 201);
    let paths = [
        "/dbs/d",
        "/dbs/d/colls/c",
        "/dbs/d/colls/c/pkranges",
        "/dbs/d/colls/c/sprocs/s",
        "/dbs/d/users/u",
        "/offers",
    ];
    for path in paths {
        let here = world.send(WEST, HttpRequest::new("GET", path)).await;
        for region in [EAST, NORTH] {
            let there = world.send(region, HttpRequest::new("GET", path)).await;
            assert_eq!((there.status, there.text()), (200, here.text()), "{path} in {}", NAMES[region]);
        }
    }
    for path in ["/dbs/d/colls/c", "/dbs/d/users/u"] {
        assert_eq!(world.send(WEST, HttpRequest::new("DELETE", path)).await.status, 204);
        for region in [WEST, EAST, NORTH] {
            assert_eq!(world.send(region, HttpRequest::new("GET", path)).await.status, 404, "{path}");
        }
    }
    world.stop().await;
}

#[tokio::test]
async fn a_fault_can_be_limited_to_one_region() {
    let world = MultiRegion::new().await;
    world.upsert(WEST, "1", 1).await;
    world.wait_for_replication().await;
    let rule = r#"{"operation":"read_item","region":"East US","status":503,"subStatus":20003}"#;
    world.manage("POST", "faults", rule).await;
    assert_eq!(world.read(EAST, "1").await.status, 503);
    assert_eq!(world.read(WEST, "1").await.status, 200);
    assert_eq!(world.read(NORTH, "1").await.status, 200);
    let counters = world.manage("GET", "counters", "").await;
    let reads = |region: &str| {
        let operations = counters.get("regions").unwrap().get(region).unwrap().get("operations").unwrap();
        operations.get("read_item").unwrap().get("statuses").unwrap().clone()
    };
    assert_eq!(reads("East US"), json(r#"{"503":1}"#));
    assert_eq!(reads("North Europe"), json(r#"{"200":1}"#));
    let all = counters.get("operations").unwrap().get("read_item").unwrap().get("requests").unwrap();
    assert_eq!(all.as_i64(), Some(3));
    world.stop().await;
}

#[tokio::test]
async fn invalid_management_requests_are_refused() {
    let world = MultiRegion::new().await;
    for (name, body) in [
        ("regions/offline", r#"{"region":"Mars"}"#),
        ("regions/offline", r#"{}"#),
        ("regions/offline", r#"{"region":"West US","mode":"sulk"}"#),
        ("regions/write", r#"{"region":7}"#),
        ("regions/write", r#"{"region":"East US","timeoutMs":-1}"#),
        ("replication/delay", r#"{"region":"East US"}"#),
        // The longest delay is 60 s.
        ("replication/delay", r#"{"milliseconds":60001}"#),
        ("replication/cut", ""),
        ("faults", r#"{"region":"Mars","status":503}"#),
    ] {
        let refused = world.try_manage("POST", name, body).await;
        assert_eq!(refused.status, 400, "{name} {body}: {}", refused.text());
    }
    assert_eq!(world.try_manage("POST", "regions/explode", "").await.status, 404);
    world.stop().await;
}
