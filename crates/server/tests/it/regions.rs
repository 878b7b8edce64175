//! Several regions over real sockets: who answers, who writes, what arrives
//! where and when.

mod in_process;
mod outages;
mod relocation;
mod replication;
mod restarts;
mod writers;

use perihelion_model::json::Value;
use perihelion_server::ServerOptions;

use crate::client::{Answer, Call};
use crate::planet::{EAST, NAMES, NORTH, Planet, WEST, send, three_regions};
use crate::world::{batch, docs, json};

/// The names and ports that the account document lists.
fn locations(account: &Answer, kind: &str) -> Vec<(String, String)> {
    let account = account.json().unwrap();
    let list = account.get(kind).and_then(Value::as_array).unwrap().to_vec();
    let text = |location: &Value, name: &str| location.get(name).unwrap().as_str().unwrap().to_owned();
    list.iter().map(|at| (text(at, "name"), text(at, "databaseAccountEndpoint"))).collect()
}

fn names(locations: &[(String, String)]) -> Vec<&str> {
    locations.iter().map(|(name, _)| name.as_str()).collect()
}

#[tokio::test]
async fn the_account_lists_each_regions_endpoint_on_the_clients_host() {
    let planet = Planet::new().await;
    let call = Call::new("GET", "/").omit("host").header("host", "localhost:1234");
    let account = send(&planet.global, call).await;
    let read = locations(&account, "readableLocations");
    assert_eq!(names(&read), NAMES);
    assert_eq!(names(&locations(&account, "writableLocations")), ["West US"]);
    for (name, endpoint) in read {
        let port = planet.server.region_addr(&name).port();
        assert_eq!(endpoint, format!("http://localhost:{port}/"), "{name}");
    }
    let account = account.json().unwrap();
    assert_eq!(account.get("enableMultipleWriteLocations"), Some(&false.into()));
    planet.stop().await;

    let planet = Planet::of_writers().await;
    let account = planet.send(NORTH, Call::new("GET", "/")).await;
    assert_eq!(names(&locations(&account, "writableLocations")), NAMES);
    let account = account.json().unwrap();
    assert_eq!(account.get("enableMultipleWriteLocations"), Some(&true.into()));
    planet.stop().await;
}

#[tokio::test]
async fn a_public_endpoint_is_followed_by_its_regions() {
    let public = Some("https://db.internal:9000/".to_owned());
    let planet = Planet::with(ServerOptions { public_endpoint: public, ..three_regions() }).await;
    let account = send(&planet.global, Call::new("GET", "/")).await;
    let endpoints: Vec<String> =
        locations(&account, "readableLocations").into_iter().map(|(_, endpoint)| endpoint).collect();
    let expected = ["https://db.internal:9001/", "https://db.internal:9002/", "https://db.internal:9003/"];
    assert_eq!(endpoints, expected);
    planet.stop().await;
}

#[tokio::test]
async fn a_region_that_does_not_write_says_so() {
    let planet = Planet::new().await;
    planet.upsert(WEST, "1", 1).await;
    planet.settle().await;
    let body = json(r#"{"id":"1","pk":"a"}"#);
    let container = json(r#"{"id":"e","partitionKey":{"paths":["/pk"],"kind":"Hash"}}"#);
    for call in [
        docs("POST", "", r#"["a"]"#).json(&body),
        docs("PUT", "1", r#"["a"]"#).json(&body),
        docs("DELETE", "1", r#"["a"]"#),
        docs("PATCH", "1", r#"["a"]"#).json(&json(r#"[{"op":"add","path":"/x","value":1}]"#)),
        batch(r#"["a"]"#, r#"[{"operationType":"Delete","id":"1"}]"#),
        Call::new("POST", "/dbs").json(&json(r#"{"id":"e"}"#)),
        Call::new("DELETE", "/dbs/d"),
        Call::new("POST", "/dbs/d/colls").json(&container),
        Call::new("DELETE", "/dbs/d/colls/c"),
        Call::new("POST", "/dbs/d/colls/c/sprocs").json(&json(r#"{"id":"s","body":"function(){}"}"#)),
    ] {
        let refused = planet.send(EAST, call.clone()).await;
        let got = (refused.status, refused.header("x-ms-substatus"));
        assert_eq!(got, (403, Some("3")), "{call:?}: {}", refused.text());
    }
    assert_eq!(planet.read(EAST, "1").await.status, 200, "and reads go on");
    planet.stop().await;
}

#[tokio::test]
async fn where_all_write_documents_the_catalog_is_still_changed_in_one_place() {
    let planet = Planet::of_writers().await;
    let database = || Call::new("POST", "/dbs").json(&json(r#"{"id":"e"}"#));
    assert_eq!(planet.send(EAST, database()).await.header("x-ms-substatus"), Some("3"));
    assert_eq!(planet.send(WEST, database()).await.status, 201);
    assert_eq!(planet.send(EAST, Call::new("GET", "/dbs/e")).await.status, 200);
    assert_eq!(planet.upsert(EAST, "1", 1).await.status, 201);
    planet.stop().await;
}

#[tokio::test]
async fn a_write_away_from_the_write_region_must_be_expected_to_be_one() {
    let planet = Planet::of_writers().await;
    let body = json(r#"{"id":"1","pk":"a"}"#);
    let create = docs("POST", "", r#"["a"]"#).json(&body);
    let refused = planet.regions[EAST].send(&create).await.unwrap();
    assert_eq!((refused.status, refused.header("x-ms-substatus")), (403, Some("3")), "{}", refused.text());
    assert_eq!(planet.regions[WEST].send(&create).await.unwrap().status, 201);
    planet.settle().await;
    let tentative = docs("DELETE", "1", r#"["a"]"#).header("x-ms-cosmos-allow-tentative-writes", "True");
    assert_eq!(planet.regions[EAST].send(&tentative).await.unwrap().status, 204);
    planet.stop().await;
}

#[tokio::test]
async fn a_read_that_is_for_the_write_region_is_refused_elsewhere() {
    let planet = Planet::new().await;
    planet.upsert(WEST, "1", 1).await;
    planet.settle().await;
    let read = docs("GET", "1", r#"["a"]"#).header("x-ms-cosmos-hub-region-processing-only", "True");
    assert_eq!(planet.send(WEST, read.clone()).await.status, 200);
    let refused = planet.send(EAST, read.clone()).await;
    assert_eq!((refused.status, refused.header("x-ms-substatus")), (403, Some("3")));
    planet.order("regions/write", EAST).await;
    assert_eq!(planet.send(EAST, read.clone()).await.status, 200);
    assert_eq!(planet.send(WEST, read).await.header("x-ms-substatus"), Some("3"));
    planet.stop().await;
}

#[tokio::test]
async fn the_catalog_is_in_every_region_when_it_is_acknowledged() {
    let planet = Planet::new().await;
    let script = json(r#"{"id":"s","body":"function(){}"}"#);
    let made = planet.send(WEST, Call::new("POST", "/dbs/d/colls/c/sprocs").json(&script)).await;
    assert_eq!(made.status, 201, "{}", made.text());
    for path in ["/dbs/d", "/dbs/d/colls/c", "/dbs/d/colls/c/pkranges", "/dbs/d/colls/c/sprocs/s", "/offers"]
    {
        let here = planet.send(WEST, Call::new("GET", path)).await;
        for region in [EAST, NORTH] {
            let there = planet.send(region, Call::new("GET", path)).await;
            assert_eq!((there.status, there.text()), (200, here.text()), "{path} in {}", NAMES[region]);
        }
    }
    assert_eq!(planet.send(WEST, Call::new("DELETE", "/dbs/d/colls/c")).await.status, 204);
    for region in [WEST, EAST, NORTH] {
        assert_eq!(planet.send(region, Call::new("GET", "/dbs/d/colls/c")).await.status, 404);
    }
    planet.stop().await;
}

#[tokio::test]
async fn a_fault_may_concern_one_region_only() {
    let planet = Planet::new().await;
    planet.upsert(WEST, "1", 1).await;
    planet.settle().await;
    let rule = r#"{"operation":"read_item","region":"East US","status":503,"subStatus":20003}"#;
    planet.manage("POST", "faults", rule).await;
    assert_eq!(planet.read(EAST, "1").await.status, 503);
    assert_eq!(planet.read(WEST, "1").await.status, 200);
    assert_eq!(planet.read(NORTH, "1").await.status, 200);
    let counters = planet.manage("GET", "counters", "").await;
    let reads = |region: &str| {
        let operations = counters.get("regions").unwrap().get(region).unwrap().get("operations").unwrap();
        operations.get("read_item").unwrap().get("statuses").unwrap().clone()
    };
    assert_eq!(reads("East US"), json(r#"{"503":1}"#));
    assert_eq!(reads("North Europe"), json(r#"{"200":1}"#));
    let all = counters.get("operations").unwrap().get("read_item").unwrap().get("requests").unwrap();
    assert_eq!(all.as_i64(), Some(3));
    planet.stop().await;
}

#[tokio::test]
async fn orders_that_make_no_sense_are_refused() {
    let planet = Planet::new().await;
    for (name, body) in [
        ("regions/offline", r#"{"region":"Mars"}"#),
        ("regions/offline", r#"{}"#),
        ("regions/offline", r#"{"region":"West US","mode":"sulk"}"#),
        ("regions/write", r#"{"region":7}"#),
        ("regions/write", r#"{"region":"East US","timeoutMs":-1}"#),
        ("replication/delay", r#"{"region":"East US"}"#),
        ("replication/delay", r#"{"milliseconds":60001}"#),
        ("replication/cut", ""),
        ("faults", r#"{"region":"Mars","status":503}"#),
    ] {
        let refused = planet.try_manage("POST", name, body).await;
        assert_eq!(refused.status, 400, "{name} {body}: {}", refused.text());
    }
    assert_eq!(planet.try_manage("POST", "regions/explode", "").await.status, 404);
    planet.stop().await;
}
