//! Change feeds under difficult conditions: writers and splits at the same time,
//! failed requests, dropped calls, containers that are created again.

use std::collections::BTreeSet;
use std::time::Duration;

use perihelion_client::{ChangeFeed, ChangeFeedOptions, Container, ContainerProperties, ErrorKind};
use serde::Deserialize;
use serde_json::json;

use crate::world::World;

const PARTITION_KEY: &str = r#"{"paths":["/pk"],"kind":"Hash","version":2}"#;

#[derive(Debug, Deserialize)]
struct Document {
    n: u32,
}

/// Creates one document per number.
async fn write(container: &Container, numbers: std::ops::Range<u32>) {
    for n in numbers {
        let key = format!("key-{}", n % 32);
        container.create(key.as_str(), &json!({"id": n.to_string(), "pk": key, "n": n})).await.unwrap();
    }
}

/// Reads all changes up to now, and adds their numbers to `seen`. No document is written
/// twice, so no number may come twice.
async fn drain(feed: &mut ChangeFeed<Document>, seen: &mut BTreeSet<u32>) {
    while let Some(page) = feed.next_page().await.unwrap() {
        for document in page.items {
            assert!(seen.insert(document.n), "{} came twice", document.n);
        }
    }
}

#[tokio::test]
async fn concurrent_writes_and_splits_lose_and_repeat_no_change() {
    const WRITERS: u32 = 4;
    const DOCUMENTS_PER_WRITER: u32 = 150;
    let world = World::new(2).await;
    let container = world.container("c", PARTITION_KEY).await;
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let container = container.clone();
            let first = writer * DOCUMENTS_PER_WRITER;
            tokio::spawn(async move { write(&container, first..first + DOCUMENTS_PER_WRITER).await })
        })
        .collect();
    let mut feed = container.change_feed::<Document>(ChangeFeedOptions::from_beginning().with_max_items(7));
    let mut seen = BTreeSet::new();
    for range in ["0", "1", "2"] {
        drain(&mut feed, &mut seen).await;
        world.split("c", range).await;
        // Continue from the token, as another process would.
        feed = container.change_feed(ChangeFeedOptions::resume(feed.token()).with_max_items(7));
        tokio::task::yield_now().await;
    }
    for writer in writers {
        writer.await.unwrap();
    }
    drain(&mut feed, &mut seen).await;
    assert_eq!(seen, (0..WRITERS * DOCUMENTS_PER_WRITER).collect());
    assert_eq!(container.feed_ranges().await.unwrap().len(), 5);
}

#[tokio::test]
async fn the_feed_continues_after_a_failed_request() {
    let world = World::new(2).await;
    let container = world.container("c", PARTITION_KEY).await;
    write(&container, 0..50).await;
    let mut feed = container.change_feed::<Document>(ChangeFeedOptions::from_beginning().with_max_items(5));
    let (mut seen, mut failures) = (BTreeSet::new(), 0);
    for call in 0.. {
        let token = feed.token();
        if call % 3 == 0 {
            world.fault(r#"{"operation":"change_feed","count":1,"status":400}"#).await;
        }
        match feed.next_page().await {
            Ok(None) => break,
            Ok(Some(page)) => {
                assert!(page.items.iter().all(|document| seen.insert(document.n)));
                assert_ne!(feed.token(), token);
            }
            Err(error) => {
                assert_eq!(error.status().unwrap().code, 400);
                failures += 1;
            }
        }
    }
    assert_eq!(seen, (0..50).collect());
    assert!(failures >= 4, "{failures}");
}

#[tokio::test]
async fn a_dropped_call_loses_no_change() {
    let world = World::new(3).await;
    let container = world.container("c", PARTITION_KEY).await;
    write(&container, 0..30).await;
    let mut feed = container.change_feed::<Document>(ChangeFeedOptions::from_beginning());
    world.fault(r#"{"operation":"change_feed","count":3,"delayMs":2000}"#).await;
    for _ in 0..3 {
        let dropped = tokio::time::timeout(Duration::from_millis(30), feed.next_page()).await;
        assert!(dropped.is_err());
    }
    let mut seen = BTreeSet::new();
    drain(&mut feed, &mut seen).await;
    assert_eq!(seen, (0..30).collect());
}

#[tokio::test]
async fn a_feed_ends_with_an_error_when_its_container_is_created_again() {
    let world = World::new(1).await;
    let container = world.container("c", PARTITION_KEY).await;
    write(&container, 0..5).await;
    let mut feed = container.change_feed::<Document>(ChangeFeedOptions::from_beginning());
    drain(&mut feed, &mut BTreeSet::new()).await;
    let token = feed.token();
    // Another client creates the container again, so the metadata in the cache of the
    // first client is stale.
    let other = world.client().await.database("shop");
    other.container("c").delete_container().await.unwrap();
    other.create_container(&ContainerProperties::new("c", "/pk")).await.unwrap();
    write(&other.container("c"), 10..12).await;
    let refused = feed.next_page().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Input, "{refused}");
    let mut resumed = container.change_feed::<Document>(ChangeFeedOptions::resume(token));
    assert_eq!(resumed.next_page().await.unwrap_err().kind(), ErrorKind::Input);
    let mut restarted = container.change_feed::<Document>(ChangeFeedOptions::from_beginning());
    let mut seen = BTreeSet::new();
    drain(&mut restarted, &mut seen).await;
    assert_eq!(seen, (10..12).collect());
}
