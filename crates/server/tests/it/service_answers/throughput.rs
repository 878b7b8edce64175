//! Throughput: the offers of containers, and how many physical partitions they give.

use perihelion_model::json::Value;
use perihelion_server::ServerOptions;
use perihelion_testkit::http_client::HttpRequest;

use crate::world::{PLAIN_CONTAINER, World, ids, json, text};

/// Creates a container with this throughput header and returns its ranges.
async fn ranges_with(world: &World, name: &str, units: &str) -> Vec<Value> {
    let body = format!(r#"{{"id":"{name}","partitionKey":{{"paths":["/pk"],"kind":"Hash","version":2}}}}"#);
    let create =
        HttpRequest::new("POST", "/dbs/d/colls").json(&json(&body)).header("x-ms-offer-throughput", units);
    let created = world.send(create).await;
    assert_eq!(created.status, 201, "{}", created.text());
    ranges(world, name).await
}

async fn ranges(world: &World, name: &str) -> Vec<Value> {
    let answer = world.send(HttpRequest::new("GET", format!("/dbs/d/colls/{name}/pkranges"))).await;
    let body = answer.json().unwrap();
    body.get("PartitionKeyRanges").and_then(Value::as_array).unwrap().to_vec()
}

async fn offer_of(world: &World, name: &str) -> Option<Value> {
    let container = world.send(HttpRequest::new("GET", format!("/dbs/d/colls/{name}"))).await.json().unwrap();
    let offers = world.send(HttpRequest::new("GET", "/offers")).await.json().unwrap();
    let offers = offers.get("Offers").and_then(Value::as_array).unwrap().to_vec();
    let rid = text(&container, "_rid");
    offers.into_iter().find(|offer| text(offer, "offerResourceId") == rid)
}

#[tokio::test]
async fn a_new_container_with_more_than_10000_units_has_a_range_for_each_6000_units() {
    let world = World::new(PLAIN_CONTAINER).await;
    for (name, units, expected) in
        [("a", "400", 1), ("b", "10000", 1), ("e", "10100", 2), ("f", "12000", 2), ("g", "30000", 5)]
    {
        assert_eq!(ranges_with(&world, name, units).await.len(), expected, "{units}");
    }
    let middle = text(&ranges(&world, "e").await[1], "minInclusive");
    assert_eq!(middle, "1FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF");
    world.stop().await;
}

/// A range has at most 10,000 units: 11,000 units make two ranges with 5,500 each.
#[tokio::test]
async fn a_raised_offer_splits_until_each_range_has_at_most_10000_units() {
    let world = World::new(PLAIN_CONTAINER).await;
    for n in 0..40 {
        world.create(&format!("[{n}]"), &format!(r#"{{"id":"{n:02}","pk":{n}}}"#)).await;
    }
    let offer = offer_of(&world, "c").await.expect("the default offer");
    let link = format!("/{}", text(&offer, "_self"));
    for (units, expected) in [(11_000, 2), (25_000, 3), (400, 3)] {
        let body = format!(r#"{{"content":{{"offerThroughput":{units}}}}}"#);
        let replaced = world.send(HttpRequest::new("PUT", link.clone()).json(&json(&body))).await;
        assert_eq!(replaced.status, 200, "{}", replaced.text());
        assert_eq!(ranges(&world, "c").await.len(), expected, "{units}");
        assert_eq!(world.query("SELECT * FROM c").await.len(), 40);
    }
    let ordered = ids(&world.query("SELECT c.id FROM c ORDER BY c.id").await);
    assert_eq!(ordered, (0..40).map(|n| format!("{n:02}")).collect::<Vec<_>>());
    world.stop().await;
}

#[tokio::test]
async fn a_container_without_throughput_has_an_offer_unless_its_database_has_one() {
    let world = World::new(PLAIN_CONTAINER).await;
    let offer = offer_of(&world, "c").await.expect("an offer");
    let units = offer.get("content").and_then(|content| content.get("offerThroughput")).cloned();
    assert_eq!(units, Some(400i64.into()));
    let create = HttpRequest::new("POST", "/dbs").json(&json(r#"{"id":"s"}"#));
    world.send(create.header("x-ms-offer-throughput", "400")).await;
    let created = world.send(HttpRequest::new("POST", "/dbs/s/colls").json(&json(PLAIN_CONTAINER))).await;
    let rid = text(&created.json().unwrap(), "_rid");
    let offers = world.send(HttpRequest::new("GET", "/offers")).await;
    assert!(!offers.text().contains(&rid), "{}", offers.text());
    world.stop().await;
}

/// A container that is created without throughput gets an offer of 400 RU/s, as in the service. With
/// throttling, that offer does not count: the option `throughput` sets the limit of such a container.
/// The creations of this test cost more than 400 RU.
#[tokio::test]
async fn a_default_offer_does_not_throttle() {
    let mut options = ServerOptions::default();
    options.account.throughput = Some(1_000_000);
    let world = World::with_options(options, PLAIN_CONTAINER).await;
    for n in 0..150 {
        let created = world.create(r#"["a"]"#, &format!(r#"{{"id":"{n}","pk":"a"}}"#)).await;
        assert_eq!(created.status, 201, "{}", created.text());
    }
    world.stop().await;
}

#[tokio::test]
async fn a_throughput_below_the_minimum_is_refused_with_the_services_text() {
    let world = World::new(PLAIN_CONTAINER).await;
    for (header, value, expected) in [
        ("x-ms-offer-throughput", "300", "between 400 and 1000000 inclusive in increments of 100."),
        ("x-ms-offer-throughput", "450", "between 400 and 1000000 inclusive in increments of 100."),
        (
            "x-ms-cosmos-offer-autopilot-settings",
            r#"{"maxThroughput":1500}"#,
            "between 1000 and 1000000 inclusive in increments of 1000.",
        ),
        (
            "x-ms-cosmos-offer-autopilot-settings",
            r#"{"maxThroughput":-200}"#,
            "Requested throughput -200 is less than required minimum throughput 1000",
        ),
        (
            "x-ms-cosmos-offer-autopilot-settings",
            r#"{"maxThroughput":900}"#,
            "Requested throughput 900 is less than required minimum throughput 1000",
        ),
    ] {
        let create = HttpRequest::new("POST", "/dbs/d/colls")
            .json(&json(r#"{"id":"x","partitionKey":{"paths":["/pk"],"kind":"Hash"}}"#))
            .header(header, value);
        let refused = world.send(create).await;
        assert_eq!(refused.status, 400, "{}", refused.text());
        assert!(refused.text().contains(expected), "{}", refused.text());
    }
    world.stop().await;
}

/// An autoscale maximum must be a multiple of 1,000. A client that migrates an offer to autoscale
/// does not send a maximum, so it could not correct a refused one. The server therefore rounds the
/// manual throughput up.
#[tokio::test]
async fn a_manual_offer_becomes_an_autoscale_offer_with_whole_thousands() {
    let world = World::new(PLAIN_CONTAINER).await;
    ranges_with(&world, "manual", "1500").await;
    let link = format!("/{}", text(&offer_of(&world, "manual").await.expect("an offer"), "_self"));
    let migrate = HttpRequest::new("PUT", link).json(&json("{}"));
    let migrated = world.send(migrate.header("x-ms-cosmos-migrate-offer-to-autopilot", "true")).await;
    assert_eq!(migrated.status, 200, "{}", migrated.text());
    assert!(migrated.text().contains("\"maxThroughput\":2000"), "{}", migrated.text());
    world.stop().await;
}
