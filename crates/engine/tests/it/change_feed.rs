//! Tests of the change feed and splits.

use perihelion_engine::{EngineOptions, FeedMode, FeedRequest, FeedStart};
use perihelion_model::partition_key::EffectiveRange;

use crate::support::{self, container, fill};

/// Story of a bug: a reader found its range in a snapshot of the catalog, and then the range was
/// split. The counters had no such range, so "now" was LSN 0, and the feed continued from the
/// beginning.
#[tokio::test]
async fn a_feed_from_now_that_races_a_split_is_refused() {
    let engine = support::engine(EngineOptions::default()).await;
    let before = container(&engine, "c").await;
    fill(&engine, &before, 10, 2).await;
    let range = before.ranges[0].id;
    let read = || {
        let (keys, mode, start) = (EffectiveRange::whole(), FeedMode::LatestVersion, FeedStart::Now);
        let request = FeedRequest { range, keys, partition_key: None, start, mode, items_max: 100 };
        engine.change_feed(&before, &request, &[])
    };
    assert!(read().unwrap().continuation > 0);
    engine.split(&before, range).await.unwrap();
    let refused = read().unwrap_err();
    assert_eq!((refused.status, refused.sub_status), (410, Some(1002)));
}
