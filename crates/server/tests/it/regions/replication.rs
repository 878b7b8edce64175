//! Tests of replication: in which regions writes arrive, when, and in which order.

use std::time::{Duration, Instant};

use perihelion_testkit::http_client::HttpRequest;

use crate::multi_region::{EAST, MultiRegion, NORTH, WEST, upsert};
use crate::world::{batch, docs, documents, ids, json, text};

#[tokio::test]
async fn a_write_arrives_everywhere_as_the_same_document() {
    let world = MultiRegion::new().await;
    let created = world.upsert(WEST, "1", 1).await;
    assert_eq!(created.status, 201, "{}", created.text());
    world.wait_for_replication().await;
    for region in [WEST, EAST, NORTH] {
        let read = world.read(region, "1").await;
        assert_eq!((read.text(), read.header("etag")), (created.text(), created.header("etag")));
    }
    assert_eq!(world.delete(WEST, "1").await.status, 204);
    world.wait_for_replication().await;
    assert_eq!(world.read(NORTH, "1").await.status, 404);
    world.stop().await;
}

#[tokio::test]
async fn replication_takes_as_long_as_the_delay() {
    let world = MultiRegion::new().await;
    world.manage("POST", "replication/delay", r#"{"milliseconds":300,"region":"East US"}"#).await;
    let started_at = Instant::now();
    world.upsert(WEST, "1", 1).await;
    assert_eq!(world.read(EAST, "1").await.status, 404);
    assert_eq!(world.pending(WEST, EAST).await, 1);
    world.wait_for_replication().await;
    assert!(started_at.elapsed() >= Duration::from_millis(300), "{:?}", started_at.elapsed());
    assert_eq!(world.read(EAST, "1").await.status, 200);
    assert_eq!(world.pending(WEST, EAST).await, 0);
    world.stop().await;
}

#[tokio::test]
async fn a_region_behind_a_session_refuses_its_reads_until_the_region_has_caught_up() {
    let world = MultiRegion::new().await;
    world.upsert(WEST, "1", 1).await;
    world.wait_for_replication().await;
    world.manage_region("replication/cut", EAST).await;
    let written = world.upsert(WEST, "1", 2).await;
    let token = written.header("x-ms-session-token").unwrap().to_owned();
    assert!(token.starts_with("0:1#"), "the token has the form for several regions: {token}");
    let read = |region: usize| {
        world.send(region, docs("GET", "1", r#"["a"]"#).header("x-ms-session-token", token.clone()))
    };
    let query = || {
        let call = crate::world::query("SELECT * FROM c").header("x-ms-documentdb-partitionkey", r#"["a"]"#);
        world.send(EAST, call.header("x-ms-session-token", token.clone()))
    };
    let stale = read(EAST).await;
    assert_eq!((stale.status, stale.header("x-ms-substatus")), (404, Some("1002")), "{}", stale.text());
    assert_eq!(query().await.header("x-ms-substatus"), Some("1002"));
    let old = world.read(EAST, "1").await;
    assert_eq!(
        old.json().unwrap().get("n"),
        Some(&1i64.into()),
        "without a token the region answers with the old version"
    );
    world.wait_for_replication().await;
    assert_eq!(read(NORTH).await.status, 200, "another region has the write");

    world.manage_region("replication/heal", EAST).await;
    world.wait_for_replication().await;
    let fresh = read(EAST).await;
    assert_eq!((fresh.status, fresh.json().unwrap().get("n")), (200, Some(&2i64.into())));
    assert_eq!(query().await.status, 200);
    // A region can serve the session token that it returned itself.
    let again = fresh.header("x-ms-session-token").unwrap().to_owned();
    let own = world.send(EAST, docs("GET", "1", r#"["a"]"#).header("x-ms-session-token", again)).await;
    assert_eq!(own.status, 200);
    world.stop().await;
}

#[tokio::test]
async fn a_batch_is_seen_whole_in_every_region() {
    let world = MultiRegion::new().await;
    let writes = async {
        for n in 0..40 {
            let body = |id: &str| format!(r#"{{"id":"{id}","pk":"a","n":{n}}}"#);
            let operations = format!(
                r#"[{{"operationType":"Upsert","resourceBody":{}}},{{"operationType":"Upsert","resourceBody":{}}}]"#,
                body("left"),
                body("right")
            );
            let call = batch(r#"["a"]"#, &operations).header("x-ms-cosmos-batch-atomic", "True");
            let done = world.send(WEST, call).await;
            assert_eq!(done.status, 200, "{}", done.text());
        }
    };
    let reads = async {
        let mut seen = 0;
        while seen < 39 {
            let pair = world.documents(EAST).await;
            let numbers: Vec<i64> =
                pair.iter().map(|document| document.get("n").unwrap().as_i64().unwrap()).collect();
            match numbers.as_slice() {
                [] => {}
                [left, right] => {
                    assert_eq!(left, right, "only a part of a batch is visible");
                    seen = *left;
                }
                other => panic!("{other:?}"),
            }
        }
    };
    tokio::join!(writes, reads);
    world.stop().await;
}

#[tokio::test]
async fn a_split_reaches_every_region_and_loses_no_write() {
    let world = MultiRegion::new().await;
    world.manage("POST", "replication/delay", r#"{"milliseconds":30}"#).await;
    let put = |n: usize| {
        let body = json(&format!(r#"{{"id":"{n}","pk":"k{n}"}}"#));
        world.send(WEST, docs("POST", "", &format!(r#"["k{n}"]"#)).json(&body))
    };
    for n in 0..60 {
        assert_eq!(put(n).await.status, 201);
        if n % 20 == 10 {
            // Writes to the parent are still being replicated.
            world.manage("POST", "split", r#"{"database":"d","container":"c"}"#).await;
        }
    }
    let ranges = |region: usize| world.send(region, HttpRequest::new("GET", "/dbs/d/colls/c/pkranges"));
    let here = ranges(WEST).await.json().unwrap();
    for region in [EAST, NORTH] {
        let there = ranges(region).await.json().unwrap();
        let bounds = |feed: &perihelion_model::json::Value| {
            let list = feed.get("PartitionKeyRanges").unwrap().as_array().unwrap().to_vec();
            list.iter().map(|range| (text(range, "id"), text(range, "minInclusive"))).collect::<Vec<_>>()
        };
        assert_eq!((bounds(&here).len(), bounds(&here)), (4, bounds(&there)));
    }
    assert_eq!(world.assert_regions_agree().await.len(), 60);
    // A session token from one region is valid in the others after a split.
    for region in [EAST, NORTH] {
        let token = world.send(WEST, HttpRequest::new("GET", "/dbs/d/colls/c")).await;
        let token = token.header("x-ms-session-token").unwrap().to_owned();
        let read = docs("GET", "1", r#"["k1"]"#).header("x-ms-session-token", token);
        assert_eq!(world.send(region, read).await.status, 200);
    }
    world.stop().await;
}

#[tokio::test]
async fn a_change_feed_continues_in_another_region_where_it_stopped() {
    let world = MultiRegion::new().await;
    let feed = |region: usize, from: Option<String>| {
        let call = docs("GET", "", "").header("a-im", "Incremental feed").header("x-ms-max-item-count", "4");
        let call = call.header("x-ms-documentdb-partitionkeyrangeid", "0");
        world.send(region, if let Some(from) = from { call.header("if-none-match", from) } else { call })
    };
    for n in 0..10 {
        world.upsert(WEST, &n.to_string(), n).await;
    }
    world.wait_for_replication().await;
    let (mut seen, mut from, mut region) = (Vec::new(), None, WEST);
    loop {
        let page = feed(region, from).await;
        from = page.header("etag").map(str::to_owned);
        if page.status == 304 {
            break;
        }
        seen.extend(ids(&documents(&page)));
        region = (region + 1) % 3;
    }
    assert_eq!(seen, (0..10).map(|n| n.to_string()).collect::<Vec<_>>());
    // The feed continues after a change of the write region, too.
    world.manage_region("regions/write", NORTH).await;
    world.upsert(NORTH, "later", 1).await;
    world.wait_for_replication().await;
    for region in [WEST, EAST, NORTH] {
        let page = feed(region, from.clone()).await;
        assert_eq!((page.status, ids(&documents(&page))), (200, vec!["later".to_owned()]));
    }
    world.stop().await;
}

#[tokio::test]
async fn reading_the_full_fidelity_feed_in_one_region_starts_it_in_every_region() {
    let world = MultiRegion::new().await;
    let feed = |region: usize, from: &str| {
        let call = docs("GET", "", "").header("a-im", "Full-Fidelity Feed").header("if-none-match", from);
        world.send(region, call.header("x-ms-documentdb-partitionkeyrangeid", "0"))
    };
    let start = feed(EAST, "*").await;
    assert_eq!(start.status, 304, "{}", start.text());
    let from = start.header("etag").unwrap().to_owned();
    world.upsert(WEST, "1", 1).await;
    world.upsert(WEST, "1", 2).await;
    world.delete(WEST, "1").await;
    world.wait_for_replication().await;
    for region in [WEST, EAST, NORTH] {
        let page = feed(region, &from).await;
        assert_eq!((page.status, documents(&page).len()), (200, 3), "{}", page.text());
    }
    world.stop().await;
}

#[tokio::test]
async fn an_expired_document_is_removed_in_every_region() {
    let world = MultiRegion::new().await;
    let container =
        json(r#"{"id":"c","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2},"defaultTtl":2}"#);
    let replaced = world.send(WEST, HttpRequest::new("PUT", "/dbs/d/colls/c").json(&container)).await;
    assert_eq!(replaced.status, 200, "{}", replaced.text());
    world.upsert(WEST, "1", 1).await;
    world.wait_for_replication().await;
    assert_eq!(world.read(EAST, "1").await.status, 200);
    // Runs maintenance until the deletion is on its way to the east or has arrived there.
    let started_at = Instant::now();
    while world.pending(WEST, EAST).await == 0 && started_at.elapsed() < Duration::from_secs(10) {
        world.manage("POST", "maintain", "").await;
        let usage = world.send(EAST, HttpRequest::new("GET", "/dbs/d/colls/c")).await;
        if usage.header("x-ms-resource-usage").unwrap().contains("documentsCount=0;") {
            break;
        }
    }
    world.wait_for_replication().await;
    for region in [WEST, EAST, NORTH] {
        let usage = world.send(region, HttpRequest::new("GET", "/dbs/d/colls/c")).await;
        assert!(usage.header("x-ms-resource-usage").unwrap().contains("documentsCount=0;"), "{region}");
    }
    world.stop().await;
}

#[tokio::test]
async fn a_read_in_another_region_never_misses_its_sessions_writes() {
    // A write in the west is read at once in the east with the session's token. The east
    // returns the write or refuses the token.
    let world = MultiRegion::new().await;
    let mut refused = 0;
    for n in 0..200u64 {
        let written = world.send(WEST, upsert("1", n)).await;
        let token = written.header("x-ms-session-token").unwrap().to_owned();
        loop {
            let call = docs("GET", "1", r#"["a"]"#).header("x-ms-session-token", token.clone());
            let read = world.send(EAST, call).await;
            if read.status == 200 {
                assert_eq!(read.json().unwrap().get("n"), Some(&(n as i64).into()));
                break;
            }
            assert_eq!((read.status, read.header("x-ms-substatus")), (404, Some("1002")));
            refused += 1;
        }
    }
    assert!(refused > 0, "no read came before its write was replicated");
    world.stop().await;
}
