//! Changing the write region: no acknowledged write is lost.

use std::sync::atomic::{AtomicBool, Ordering};

use perihelion_testkit::http_client::HttpClient;
use tokio::sync::watch;

use crate::multi_region::{EAST, MultiRegion, NAMES, NORTH, WEST, send, upsert};
use crate::world::text;

#[tokio::test]
async fn the_new_write_region_has_every_acknowledged_write() {
    let world = MultiRegion::new().await;
    world.manage("POST", "replication/delay", r#"{"milliseconds":20000}"#).await;
    for n in 0..300 {
        assert_eq!(world.upsert(WEST, &n.to_string(), n).await.status, 201);
    }
    assert_eq!(world.documents(EAST).await.len(), 0);
    world.manage_region("regions/write", EAST).await;
    assert_eq!(world.documents(EAST).await.len(), 300, "the move replicates without the delay");
    assert_eq!(world.upsert(WEST, "late", 1).await.header("x-ms-substatus"), Some("3"));
    assert_eq!(world.upsert(EAST, "late", 1).await.status, 201);
    world.manage("POST", "replication/delay", r#"{"milliseconds":0}"#).await;
    assert_eq!(world.assert_regions_agree().await.len(), 301);
    let report = world.manage("GET", "regions", "").await;
    assert_eq!(report.get("writeRegion"), Some(&"East US".into()));
    world.stop().await;
}

/// Creates documents until `must_stop` is set, and counts them. Returns the ids of the
/// acknowledged documents.
async fn write_until_told_to_stop(
    world: &MultiRegion,
    writer: usize,
    must_stop: &AtomicBool,
    count: &watch::Sender<usize>,
) -> Vec<String> {
    let clients: Vec<HttpClient> = NAMES.iter().map(|name| world.server.region_http_client(name)).collect();
    let (mut acknowledged, mut region) = (Vec::new(), WEST);
    for n in 0u64.. {
        if must_stop.load(Ordering::SeqCst) {
            break;
        }
        let id = format!("{writer}-{n}");
        loop {
            let answer = send(&clients[region], upsert(&id, n)).await;
            if answer.status == 201 {
                acknowledged.push(id);
                count.send_modify(|count| *count += 1);
                break;
            }
            assert_eq!(
                (answer.status, answer.header("x-ms-substatus")),
                (403, Some("3")),
                "{}",
                answer.text()
            );
            region = (region + 1) % NAMES.len();
        }
    }
    acknowledged
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_write_region_changes_under_load_without_losing_writes() {
    let world = MultiRegion::new().await;
    let (must_stop, count) = (AtomicBool::new(false), watch::Sender::new(0));
    let moves = async {
        let mut written = count.subscribe();
        for round in 0..12 {
            world.manage_region("regions/write", [EAST, NORTH, WEST][round % 3]).await;
            let enough_writes = *written.borrow() + 30;
            written.wait_for(|written| *written >= enough_writes).await.unwrap();
        }
        must_stop.store(true, Ordering::SeqCst);
    };
    let writers = async {
        let (a, b, c) = tokio::join!(
            write_until_told_to_stop(&world, 0, &must_stop, &count),
            write_until_told_to_stop(&world, 1, &must_stop, &count),
            write_until_told_to_stop(&world, 2, &must_stop, &count)
        );
        [a, b, c].concat()
    };
    let ((), mut acknowledged) = tokio::join!(moves, writers);
    assert!(acknowledged.len() >= 12 * 30, "{} writes", acknowledged.len());
    acknowledged.sort();
    let ids: Vec<String> =
        world.assert_regions_agree().await.iter().map(|document| text(document, "id")).collect();
    assert_eq!(ids, acknowledged);
    world.stop().await;
}

#[tokio::test]
async fn a_region_that_is_cut_off_or_offline_cannot_become_the_write_region() {
    let world = MultiRegion::new().await;
    world.manage_region("replication/cut", EAST).await;
    world.upsert(WEST, "1", 1).await;
    let refused = world.try_manage("POST", "regions/write", r#"{"region":"East US"}"#).await;
    assert_eq!(refused.status, 409, "{}", refused.text());
    assert!(refused.text().contains("cut"), "{}", refused.text());
    assert_eq!(world.upsert(WEST, "2", 1).await.status, 201, "the old write region still takes writes");
    assert_eq!(world.upsert(EAST, "2", 1).await.status, 403);

    world.manage("POST", "regions/offline", r#"{"region":"North Europe"}"#).await;
    let refused = world.try_manage("POST", "regions/write", r#"{"region":"North Europe"}"#).await;
    assert_eq!(refused.status, 409, "{}", refused.text());

    world.manage_region("replication/heal", EAST).await;
    world.manage_region("regions/write", EAST).await;
    assert_eq!(world.upsert(EAST, "3", 1).await.status, 201);
    assert_eq!(world.documents(EAST).await.len(), 3);
    world.stop().await;
}

#[tokio::test]
async fn with_multi_write_a_new_write_region_only_takes_over_catalog_changes() {
    let world = MultiRegion::with_multi_write().await;
    world.manage_region("regions/write", NORTH).await;
    assert_eq!(world.upsert(WEST, "1", 1).await.status, 201);
    assert_eq!(world.upsert(NORTH, "2", 1).await.status, 201);
    let report = world.manage("GET", "regions", "").await;
    assert_eq!(report.get("writeRegion"), Some(&"North Europe".into()));
    assert_eq!(world.assert_regions_agree().await.len(), 2);
    world.stop().await;
}
