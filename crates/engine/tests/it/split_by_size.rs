//! A partition that grows too large is split by maintenance.

use perihelion_engine::EngineOptions;

use crate::support::{self, fill, missing};

const DOCUMENTS: usize = 200;
const BYTES_MAX: u64 = 20_000;

#[tokio::test]
async fn a_partition_over_its_size_is_split_until_each_part_fits() {
    let engine = support::engine(EngineOptions::default().with_partition_bytes_max(BYTES_MAX)).await;
    let container = support::container(&engine, "c").await;
    fill(&engine, &container, DOCUMENTS, DOCUMENTS).await;
    let bytes = engine.state(&container).unwrap().bytes();
    assert!(bytes > 4 * BYTES_MAX, "{bytes}");

    // Each round splits the ranges that are too large.
    for _ in 0..8 {
        engine.maintain().await.unwrap();
    }
    let catalog = engine.catalog();
    let split = catalog.container("d", "c").unwrap();
    let state = engine.state(split).unwrap();
    assert!(split.ranges.len() >= 5, "{:?}", split.ranges);
    assert!(state.ranges.iter().all(|range| range.bytes <= BYTES_MAX as i64), "{state:?}");
    assert_eq!((state.documents(), state.bytes()), (DOCUMENTS as u64, bytes));
    assert!(split.was_split(0) && split.range(0).is_none());
    assert_eq!(missing(&engine, split, DOCUMENTS, DOCUMENTS), Vec::<usize>::new());
}
