//! Tests of the version log: old versions are removed, and a reader that is too late is refused.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use perihelion_engine::{
    Clock, Container, Engine, EngineOptions, FeedMode, FeedRequest, FeedStart, ItemOperation, NewBody,
    Precondition,
};
use perihelion_model::partition_key::{EffectiveRange, PartitionKey};

use crate::support::{self, ObservedStore, container, fill, object};

const DAY: u64 = 24 * 60 * 60;
/// The first byte of the keys of logged versions (`keys.rs`).
const LOGGED_VERSION: u8 = 0x14;

/// An engine with a container that logs versions, and its clock in seconds since 1970.
async fn logging_engine() -> (Arc<Engine>, Arc<Container>, Arc<AtomicU64>) {
    let now = Arc::new(AtomicU64::new(1_800_000_000));
    let clock = Clock::from_fn({
        let now = Arc::clone(&now);
        move || Duration::from_secs(now.load(Ordering::SeqCst))
    });
    let engine = support::engine(EngineOptions::default().with_clock(clock)).await;
    let created = container(&engine, "c").await;
    engine.start_version_log(&created).await.unwrap();
    let created = engine.catalog().container("d", "c").cloned().unwrap();
    (engine, created, now)
}

/// Story of a bug: the log of the full-fidelity change feed grew for ever.
#[tokio::test]
async fn versions_are_removed_after_seven_days_and_a_late_reader_is_refused() {
    let (engine, created, now) = logging_engine().await;
    // The document has a member `crts`. The engine must not take it for the time of the version, which
    // has the same name in the metadata of the version.
    let write = |n: u32| {
        let body = object(&format!(r#"{{"id":"1","pk":"p","n":{n},"crts":{n}}}"#));
        let operation = ItemOperation::Upsert { body: NewBody::new(body, &created).unwrap() };
        let key = PartitionKey::from_header(r#"["p"]"#).unwrap();
        engine.write_item(&created, key, operation, Precondition::default())
    };
    let range = created.ranges[0].id;
    let read = |start: FeedStart| {
        let (keys, mode) = (EffectiveRange::whole(), FeedMode::AllVersionsAndDeletes);
        engine.change_feed(
            &created,
            &FeedRequest { range, keys, partition_key: None, start, mode, items_max: 100 },
            &[],
        )
    };
    let first = read(FeedStart::Now).unwrap().continuation;
    write(1).await.unwrap();
    write(2).await.unwrap();
    let second = read(FeedStart::After(first)).unwrap();
    assert_eq!(second.items.len(), 2);
    now.fetch_add(6 * DAY, Ordering::SeqCst);
    write(3).await.unwrap();
    engine.maintain().await.unwrap();
    assert_eq!(read(FeedStart::After(first)).unwrap().items.len(), 3, "six days are kept");

    now.fetch_add(2 * DAY, Ordering::SeqCst);
    engine.maintain().await.unwrap();
    assert_eq!(read(FeedStart::After(first)).unwrap_err().status, 400, "two versions were removed");
    assert_eq!(read(FeedStart::After(second.continuation)).unwrap().items.len(), 1);
}

/// For each range the store has a record with the LSN up to which versions were removed. Story of a bug:
/// this record stayed in the store after the container was deleted.
#[tokio::test]
async fn a_deleted_container_leaves_no_record_of_its_removed_versions() {
    let now = Arc::new(AtomicU64::new(1_800_000_000));
    let clock_now = Arc::clone(&now);
    let clock = Clock::from_fn(move || Duration::from_secs(clock_now.load(Ordering::SeqCst)));
    let store = ObservedStore::new(|_| {});
    let engine = Engine::open(store.clone(), EngineOptions::default().with_clock(clock)).unwrap();
    engine.create_database(object(r#"{"id":"d"}"#), None).await.unwrap();
    let mut logging = Vec::new();
    for name in ["c", "kept"] {
        let created = container(&engine, name).await;
        engine.start_version_log(&created).await.unwrap();
        let created = engine.catalog().container("d", name).cloned().unwrap();
        fill(&engine, &created, 3, 1).await;
        logging.push(created);
    }
    now.fetch_add(8 * DAY, Ordering::SeqCst);
    engine.maintain().await.unwrap();
    let records = || store.keys(b"\x08pruned-versions/").len();
    assert_eq!(records(), 2);
    engine.delete_container(&logging[0], None).await.unwrap();
    engine.maintain().await.unwrap();
    assert_eq!(records(), 1, "only the record of the other container is left");
}

/// Story of a bug: the ranges of a split share a log and count their LSNs separately. When versions of
/// the busy range were removed, the same LSNs counted as removed in the quiet range too, so the readers
/// of the quiet range were refused.
#[tokio::test]
async fn readers_of_a_quiet_range_are_not_refused_after_a_split() {
    let (engine, created, now) = logging_engine().await;
    let children = engine.split(&created, created.ranges[0].id).await.unwrap();
    let created = engine.catalog().container("d", "c").cloned().unwrap();
    for n in 0..20 {
        let body = object(&format!(r#"{{"id":"1","pk":"p","n":{n}}}"#));
        let operation = ItemOperation::Upsert { body: NewBody::new(body, &created).unwrap() };
        let key = PartitionKey::from_header(r#"["p"]"#).unwrap();
        engine.write_item(&created, key, operation, Precondition::default()).await.unwrap();
    }
    let read = |range, start: FeedStart| {
        let keys = created.ranges.iter().find(|known| known.id == range).unwrap().keys.clone();
        let mode = FeedMode::AllVersionsAndDeletes;
        let request = FeedRequest { range, keys, partition_key: None, start, mode, items_max: 100 };
        engine.change_feed(&created, &request, &[])
    };
    now.fetch_add(8 * DAY, Ordering::SeqCst);
    engine.maintain().await.unwrap();
    for range in children {
        let caught_up = read(range, FeedStart::Now).unwrap().continuation;
        assert_eq!(read(range, FeedStart::After(caught_up)).unwrap().items.len(), 0);
    }
}

/// Writes a new version of the document `1` of a partition key.
async fn write(engine: &Engine, container: &Arc<Container>, pk: &str) {
    let body = object(&format!(r#"{{"id":"1","pk":"{pk}"}}"#));
    let operation = ItemOperation::Upsert { body: NewBody::new(body, container).unwrap() };
    let key = PartitionKey::from_header(&format!(r#"["{pk}"]"#)).unwrap();
    engine.write_item(container, key, operation, Precondition::default()).await.unwrap();
}

/// Story of a bug: the version log of ranges that came from a split grew for ever.
#[tokio::test]
async fn versions_of_split_ranges_are_removed_and_readers_within_the_retention_lose_nothing() {
    let now = Arc::new(AtomicU64::new(1_800_000_000));
    let clock_now = Arc::clone(&now);
    let clock = Clock::from_fn(move || Duration::from_secs(clock_now.load(Ordering::SeqCst)));
    let store = ObservedStore::new(|_| {});
    let engine = Engine::open(store.clone(), EngineOptions::default().with_clock(clock)).unwrap();
    let engine = support::with_database(engine).await;
    let created = container(&engine, "c").await;
    engine.start_version_log(&created).await.unwrap();
    let created = engine.catalog().container("d", "c").cloned().unwrap();
    let versions = || store.keys(&[LOGGED_VERSION]).len();
    let parent = created.ranges[0].id;
    let children = engine.split(&created, parent).await.unwrap();
    let created = engine.catalog().container("d", "c").cloned().unwrap();
    let range_of = |pk: &str| {
        let key = PartitionKey::from_header(&format!(r#"["{pk}"]"#)).unwrap();
        created.range_of(&created.partition_key.effective(&key)).id
    };
    let pk_in = |child| (0..).map(|n| n.to_string()).find(|pk| range_of(pk) == child).unwrap();
    let [busy, quiet] = children.map(pk_in);
    let read = |range, start: FeedStart| {
        let keys = created.ranges.iter().find(|known| known.id == range).unwrap().keys.clone();
        let mode = FeedMode::AllVersionsAndDeletes;
        let request = FeedRequest { range, keys, partition_key: None, start, mode, items_max: 10_000 };
        engine.change_feed(&created, &request, &[])
    };
    let ends = || children.map(|range| read(range, FeedStart::Now).unwrap().continuation);
    let before = ends();
    for _ in 0..1500 {
        write(&engine, &created, &busy).await;
    }
    write(&engine, &created, &quiet).await;
    write(&engine, &created, &quiet).await;
    let old = ends();
    now.fetch_add(6 * DAY, Ordering::SeqCst);
    write(&engine, &created, &busy).await;
    write(&engine, &created, &quiet).await;
    engine.maintain().await.unwrap();
    assert_eq!(versions(), 1504, "six days are kept");

    // The two ranges share one log, in the order of LSNs. There the new version of the quiet range is
    // among the old versions of the busy range. The quiet range is split once more.
    engine.split(&created, children[1]).await.unwrap();
    let created = engine.catalog().container("d", "c").cloned().unwrap();
    now.fetch_add(2 * DAY, Ordering::SeqCst);
    engine.maintain().await.unwrap();
    assert_eq!(versions(), 2, "1502 old versions are removed");
    let read = |pk: &str, after: u64| {
        let key = PartitionKey::from_header(&format!(r#"["{pk}"]"#)).unwrap();
        let range = created.range_of(&created.partition_key.effective(&key));
        let (keys, mode, start) =
            (range.keys.clone(), FeedMode::AllVersionsAndDeletes, FeedStart::After(after));
        let request = FeedRequest { range: range.id, keys, partition_key: None, start, mode, items_max: 100 };
        engine.change_feed(&created, &request, &[])
    };
    for (pk, before, old) in [(&busy, before[0], old[0]), (&quiet, before[1], old[1])] {
        assert_eq!(read(pk, old).unwrap().items.len(), 1, "{pk}: within the retention");
        assert_eq!(read(pk, old - 1).unwrap_err().status, 400, "{pk}: one version was removed");
        assert_eq!(read(pk, before).unwrap_err().status, 400, "{pk}: all were removed");
    }
}
