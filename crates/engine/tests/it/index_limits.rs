//! Tests of the number of indexes of a container, and of the indexes that make room for others.
//!
//! An index that no query has used for ten minutes makes room for another: it is retired, so new
//! queries do not use it. After another five minutes it is removed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use perihelion_engine::{
    ApiVersion, Clock, Column, Container, Engine, EngineOptions, IndexScope, IndexShape, ItemOperation,
    NewBody, ParsedDefinition, Precondition, QueryPage,
};
use perihelion_model::partition_key::PartitionKey;
use perihelion_query::Now;

use crate::support::{self, object, query_request};

/// The most indexes that a container has because queries asked for them, besides those of its policy.
const REQUESTED_MAX: usize = 32;

/// An engine whose clock a test sets, in seconds.
async fn engine_with_clock() -> (Arc<Engine>, Arc<AtomicU64>) {
    let seconds = Arc::new(AtomicU64::new(1_700_000_000));
    let clock = Arc::clone(&seconds);
    let clock = Clock::from_fn(move || Duration::from_secs(clock.load(Ordering::Relaxed)));
    (support::engine(EngineOptions::default().with_clock(clock)).await, seconds)
}

/// Creates ten documents with the members `p0`, `p1`, ....
async fn fill(engine: &Engine, container: &Arc<Container>) {
    for n in 0..10 {
        let members: Vec<String> = (0..REQUESTED_MAX + 10).map(|path| format!(r#""p{path}":{n}"#)).collect();
        let body = object(&format!(r#"{{"id":"{n}","pk":"k",{}}}"#, members.join(",")));
        let operation = ItemOperation::Create { body: NewBody::new(body, container).unwrap() };
        let key = PartitionKey::from_header(r#"["k"]"#).unwrap();
        engine.write_item(container, key, operation, Precondition::default()).await.unwrap();
    }
}

async fn build(engine: &Engine, path: usize) {
    let columns = vec![Column { path: vec![format!("p{path}")], is_descending: false }];
    let shape = IndexShape { scope: IndexScope::Segment, columns };
    let container = engine.catalog().container("d", "c").unwrap().clone();
    engine.build_index(&container, shape).await.unwrap();
}

fn query(engine: &Engine, text: &str) -> QueryPage {
    let container = engine.catalog().container("d", "c").unwrap().clone();
    let request = query_request(text, Now::from_unix_milliseconds(1_700_000_000_000), 100);
    engine.query(&container, &request, &[]).unwrap()
}

/// Whether a query by this path uses an index. The query must find its document in any case.
fn uses_index(engine: &Engine, path: usize) -> bool {
    let page = query(engine, &format!("SELECT VALUE c.id FROM c WHERE c.p{path} = 7"));
    assert_eq!(page.rows_text, "\"7\"");
    page.used_index
}

/// Story of a bug: once a container had 32 indexes, no other index was ever built.
#[tokio::test]
async fn an_unused_index_makes_room_for_another_index() {
    let (engine, seconds) = engine_with_clock().await;
    let container = support::container(&engine, "c").await;
    fill(&engine, &container).await;
    for path in 0..REQUESTED_MAX {
        build(&engine, path).await;
    }
    // All indexes were built a moment ago.
    build(&engine, 32).await;
    assert!(!uses_index(&engine, 32));
    seconds.fetch_add(700, Ordering::Relaxed);
    for path in (0..REQUESTED_MAX).filter(|path| *path != 5) {
        assert!(uses_index(&engine, path));
    }
    build(&engine, 32).await;
    assert!(uses_index(&engine, 32) && !uses_index(&engine, 5));
    // All other indexes were used a moment ago.
    build(&engine, 33).await;
    assert!(!uses_index(&engine, 33));
    // The retired index is removed later. Then it can be built again.
    seconds.fetch_add(301, Ordering::Relaxed);
    engine.maintain().await.unwrap();
    create_and_delete(&engine).await;
    seconds.fetch_add(700, Ordering::Relaxed);
    build(&engine, 5).await;
    assert!(uses_index(&engine, 5));
}

/// Creates a document that a query by `p5` must find, and deletes it again. If the query used an
/// index that writes no longer maintain, it would not find the document.
async fn create_and_delete(engine: &Engine) {
    let container = engine.catalog().container("d", "c").unwrap().clone();
    let body = object(r#"{"id":"more","pk":"k","p5":7}"#);
    let operation = ItemOperation::Create { body: NewBody::new(body, &container).unwrap() };
    let key = PartitionKey::from_header(r#"["k"]"#).unwrap();
    engine.write_item(&container, key.clone(), operation, Precondition::default()).await.unwrap();
    assert_eq!(query(engine, "SELECT VALUE c.id FROM c WHERE c.p5 = 7").rows_text, r#""7","more""#);
    let delete = ItemOperation::Delete { id: "more".to_owned() };
    engine.write_item(&container, key, delete, Precondition::default()).await.unwrap();
}

/// Writes still maintain a retired index for some time, because a query that has begun may use it. So
/// a retired index can be used again without being filled.
#[tokio::test]
async fn a_retired_index_that_is_needed_again_is_used_at_once() {
    let (engine, seconds) = engine_with_clock().await;
    let container = support::container(&engine, "c").await;
    fill(&engine, &container).await;
    for path in 0..REQUESTED_MAX {
        build(&engine, path).await;
    }
    seconds.fetch_add(700, Ordering::Relaxed);
    (2..REQUESTED_MAX).for_each(|path| assert!(uses_index(&engine, path)));
    build(&engine, 32).await;
    assert!(!uses_index(&engine, 0));
    create_and_delete(&engine).await;
    // The other index that was not used makes room.
    build(&engine, 0).await;
    assert!(uses_index(&engine, 0) && !uses_index(&engine, 1));
    // Now all indexes are in use.
    build(&engine, 1).await;
    assert!(!uses_index(&engine, 1) && uses_index(&engine, 0));
}

fn definition(composites: usize) -> Result<ParsedDefinition, perihelion_engine::Refusal> {
    let composites: Vec<String> =
        (0..composites).map(|n| format!(r#"[{{"path":"/p{n}"}},{{"path":"/q"}}]"#)).collect();
    let body = format!(
        r#"{{"id":"c","partitionKey":{{"paths":["/pk"],"kind":"Hash","version":2}},
            "indexingPolicy":{{"compositeIndexes":[{}]}}}}"#,
        composites.join(",")
    );
    ParsedDefinition::parse(object(&body), ApiVersion::Current)
}

/// Story of a bug: each composite index counted twice, and those beyond sixteen had no effect.
#[tokio::test]
async fn every_composite_index_of_the_policy_exists() {
    let (engine, _) = engine_with_clock().await;
    let container = engine.create_container("d", definition(40).unwrap(), None).await.unwrap();
    fill(&engine, &container).await;
    for path in [0, 15, 16, 39] {
        let text = format!("SELECT VALUE c.id FROM c WHERE c.p{path} = 7 ORDER BY c.p{path}, c.q");
        let page = query(&engine, &text);
        assert_eq!((page.rows_text.as_str(), page.used_index), ("\"7\"", true), "{path}");
    }
    // The declared indexes leave room for the indexes that queries ask for.
    let columns = vec![Column { path: vec!["id".to_owned()], is_descending: false }];
    let container = engine.catalog().container("d", "c").unwrap().clone();
    engine.build_index(&container, IndexShape { scope: IndexScope::Segment, columns }).await.unwrap();
    assert!(query(&engine, "SELECT VALUE c.id FROM c WHERE c.id = '7'").used_index);
}

#[tokio::test]
async fn more_composite_indexes_than_the_service_allows_are_refused() {
    assert!(definition(100).is_ok());
    assert_eq!(definition(101).unwrap_err().status, 400);
}
