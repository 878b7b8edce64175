//! Tests of the number of indexes and of their ids.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use perihelion_model::json::{Object, parse_str};

use super::*;
use crate::storage::MemoryStore;
use crate::{ApiVersion, Clock, Engine, EngineOptions, ParsedDefinition};

fn object(text: &str) -> Object {
    match parse_str(text) {
        Ok(Value::Object(object)) => object,
        other => panic!("{text}: {other:?}"),
    }
}

/// The definition of a container with composite indexes. Their paths begin with `name`, so
/// definitions with different names declare different indexes. The engine keeps two indexes for each
/// composite index, one for each [`IndexScope`](crate::IndexScope).
fn definition(name: &str, composites: usize) -> ParsedDefinition {
    let composites: Vec<String> =
        (0..composites).map(|n| format!(r#"[{{"path":"/{name}{n}"}},{{"path":"/q"}}]"#)).collect();
    let body = format!(
        r#"{{"id":"c","partitionKey":{{"paths":["/pk"],"kind":"Hash","version":2}},
            "indexingPolicy":{{"compositeIndexes":[{}]}}}}"#,
        composites.join(",")
    );
    ParsedDefinition::parse(object(&body), ApiVersion::Current).unwrap()
}

/// An engine with a container that has composite indexes, and a clock that the test sets.
async fn engine_with(composites: usize) -> (Engine, Arc<Container>, Arc<AtomicU64>) {
    let seconds = Arc::new(AtomicU64::new(1_700_000_000));
    let clock = Arc::clone(&seconds);
    let clock = Clock::from_fn(move || Duration::from_secs(clock.load(Ordering::Relaxed)));
    let engine = Engine::open(MemoryStore::new(), EngineOptions::default().with_clock(clock)).unwrap();
    engine.create_database(object(r#"{"id":"d"}"#), None).await.unwrap();
    let container = engine.create_container("d", definition("p", composites), None).await.unwrap();
    (engine, container, seconds)
}

/// Story of a bug: an index that was dropped from the policy was maintained for ever.
#[tokio::test]
async fn indexes_that_the_policy_no_longer_declares_are_removed_down_to_a_limit() {
    let (engine, container, seconds) = engine_with(40).await;
    assert_eq!(container.indexes.len(), 80);
    let container = engine.replace_container(&container, definition("p", 0), None).await.unwrap();
    assert_eq!(requested_indexes(&container).len(), REQUESTED_MAX);
    seconds.fetch_add(RETIRED_SECONDS, Ordering::Relaxed);
    engine.maintain().await.unwrap();
    let container = engine.catalog().container("d", "c").unwrap().clone();
    assert_eq!(container.indexes.len(), REQUESTED_MAX);
}

/// Story of a bug: queries that asked for retired indexes brought all of them back, however many there
/// were.
#[tokio::test]
async fn retired_indexes_come_back_only_while_there_is_room() {
    let (engine, container, seconds) = engine_with(40).await;
    let container = engine.replace_container(&container, definition("p", 0), None).await.unwrap();
    let current = || engine.catalog().container("d", "c").unwrap().clone();
    let is_retired = |shape: &IndexShape| current().index(shape).is_some_and(|index| index.is_retired);
    let retired: Vec<IndexShape> =
        container.indexes.iter().filter(|index| index.is_retired).map(|index| index.shape.clone()).collect();
    for shape in &retired {
        engine.build_index(&container, shape.clone()).await.unwrap();
        assert!(requested_indexes(&current()).len() <= REQUESTED_MAX);
    }
    // The first `REQUESTED_MAX` indexes replaced indexes that no query had used. For the others
    // there was no room, because all indexes were in use.
    let (replaced, others) = retired.split_at(REQUESTED_MAX);
    assert!(!replaced.iter().any(is_retired) && !others.is_empty() && others.iter().all(is_retired));
    seconds.fetch_add(UNUSED_SECONDS_MIN, Ordering::Relaxed);
    engine.build_index(&container, others[0].clone()).await.unwrap();
    assert!(!is_retired(&others[0]));
    assert_eq!(requested_indexes(&current()).len(), REQUESTED_MAX);
}

#[tokio::test]
async fn an_index_that_the_policy_declares_is_not_retired() {
    let (engine, container, _) = engine_with(40).await;
    let container = engine.replace_container(&container, definition("p", 30), None).await.unwrap();
    let declared = declared_indexes(&container);
    let is_used = |shape: &IndexShape| container.index(shape).is_some_and(|index| !index.is_retired);
    assert!(declared.len() == 60 && declared.iter().all(is_used));
}

/// Story of a bug: after 65,535 indexes all further indexes had the same id, and each of them lost
/// entries when another was removed.
#[tokio::test]
async fn no_two_indexes_have_the_same_id() {
    let (_, container, _) = engine_with(0).await;
    let mut container = Container { index_next: u16::MAX - 1, ..Container::clone(&container) };
    let definition = definition("p", 2).definition;
    assert_eq!(check_declared_indexes(&container, &definition).unwrap_err().status, 400);
    container.definition = definition;
    // The definition declares four indexes, but only one id is left.
    add_declared_indexes(&mut container, false);
    let ids: HashSet<u16> = container.indexes.iter().map(|index| index.id).collect();
    assert_eq!((container.indexes.len(), ids.len()), (1, 1));
}

/// Indexes that were dropped from the policy are maintained for some minutes. Until they are removed,
/// they count towards [`INDEXES_MAX`].
#[tokio::test]
async fn a_policy_that_changes_all_the_time_is_refused() {
    let (engine, mut container, seconds) = engine_with(100).await;
    let mut refused = None;
    for n in 0..10 {
        match engine.replace_container(&container, definition(&format!("p{n}x"), 100), None).await {
            Ok(replaced) => container = replaced,
            Err(refusal) => refused = Some(refusal),
        }
        assert!(container.indexes.len() <= INDEXES_MAX);
    }
    assert_eq!(refused.map(|refusal| refusal.status), Some(400));
    seconds.fetch_add(RETIRED_SECONDS, Ordering::Relaxed);
    engine.maintain().await.unwrap();
    engine.replace_container(&container, definition("later", 100), None).await.unwrap();
}
