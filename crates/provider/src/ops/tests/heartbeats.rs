//! Heartbeats of processes that run what they have fetched, and of processes that have ended.

use std::time::Duration;

use duroxide::providers::{Provider, TagFilter};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::sick_partitions::partition_of;
use super::{LOCK, NEVER, World, activity_item};
use crate::documents::heartbeat::HEARTBEATS_KEY;
use crate::timing::{ALIVE_FOR, HEARTBEAT_INTERVAL};

/// All workers of a process run long activities, so it fetches nothing. It still writes
/// heartbeats: otherwise other processes would take it for dead, and might write documents in a
/// form that it cannot read.
#[tokio::test(start_paused = true)]
async fn a_process_whose_workers_are_all_busy_still_writes_heartbeats() {
    let world = World::open().await;
    let provider = world.provider().await;
    provider.enqueue_for_worker(activity_item("a", 1, String::new())).await.unwrap();
    let lock = Duration::from_secs(600);
    let fetched = provider.fetch_work_item(lock, Duration::from_secs(5), None, &TagFilter::default()).await;
    let (_, token, _) = fetched.unwrap().expect("the activity");
    let heartbeat = || async {
        let own_id = &provider.core.membership.own_id;
        let found = provider.core.store.container.find::<Value>(HEARTBEATS_KEY, own_id).await.unwrap();
        found.map(|found| found.into_value())
    };
    tokio::time::sleep(Duration::from_secs(60)).await;
    let first = heartbeat().await.expect("a heartbeat");
    assert_eq!((&first["turns"], &first["works"]["any"]), (&json!(false), &json!(false)), "it takes no work");
    tokio::time::sleep(Duration::from_secs(60)).await;
    let second = heartbeat().await.expect("a heartbeat");
    assert_ne!(first["_etag"], second["_etag"], "it is written again");
    provider.ack_work_item(&token, None).await.unwrap();
    tokio::time::sleep(Duration::from_secs(30)).await;
    let last = heartbeat().await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let etag = |document: Option<Value>| document.map(|document| document["_etag"].clone());
    assert_eq!(etag(heartbeat().await), etag(last), "without work it writes none");
}

/// Story of a bug: the heartbeat task waited up to a minute for the document with the layout version. It wrote
/// no heartbeat meanwhile, and other processes took the process for dead.
#[tokio::test(start_paused = true)]
async fn heartbeats_are_written_in_time_while_the_layout_version_cannot_be_read() {
    let world = World::with_partitions(16).await;
    let provider = world.provider_with_reconciler(NEVER).await;
    let layout = partition_of(&provider, 0_u64).await;
    assert_ne!(layout, partition_of(&provider, HEARTBEATS_KEY).await, "the heartbeats are elsewhere");
    world.delay("read_item", layout, 60_000).await;
    let fetch_always = async {
        loop {
            provider.fetch_orchestration_item(LOCK, Duration::from_secs(60), None).await.unwrap();
        }
    };
    let longest_gap = async {
        let (own_id, container) = (&provider.core.membership.own_id, &provider.core.store.container);
        let (begun, mut longest) = (Instant::now(), Duration::ZERO);
        let (mut written_at, mut last) = (begun, None);
        while begun.elapsed() < Duration::from_secs(240) {
            tokio::time::sleep(Duration::from_millis(500)).await;
            let heartbeat = container.find::<Value>(HEARTBEATS_KEY, own_id).await.unwrap();
            longest = longest.max(written_at.elapsed());
            let etag = heartbeat.map(|found| found.into_value()["_etag"].clone());
            if etag != last {
                (written_at, last) = (Instant::now(), etag);
            }
        }
        longest
    };
    let longest = tokio::select! {
        never = fetch_always => never,
        longest = longest_gap => longest,
    };
    assert!(longest < Duration::from_secs(15), "{longest:?}");
}

/// Story of a bug: `perihelion worker list` compared each heartbeat with the newest one. So after all
/// processes had ended, the last ones still counted as alive.
#[tokio::test]
async fn processes_that_have_ended_are_not_alive_even_if_no_other_runs() {
    let world = World::open().await;
    let provider = world.provider().await;
    let other = provider.clone();
    let poll = Duration::from_secs(20);
    let fetch = tokio::spawn(async move { other.fetch_orchestration_item(poll, poll, None).await });
    let first = async {
        while provider.workers().await.unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(poll, first).await.expect("a heartbeat");
    fetch.abort();
    let are_alive = async || provider.workers().await.unwrap().iter().any(|worker| worker.is_alive);
    assert!(are_alive().await);
    let step_ms = i64::try_from((ALIVE_FOR + HEARTBEAT_INTERVAL).as_millis()).unwrap();
    provider.core.clock.step_wall_clock(step_ms);
    assert!(!are_alive().await);
}
