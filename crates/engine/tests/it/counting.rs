//! Tests of queries that count all documents (`SELECT VALUE COUNT(1) FROM c`). A count reads no
//! document if keys and counters are enough, and it is always exact.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use perihelion_engine::{
    ApiVersion, Clock, Container, Engine, EngineOptions, ItemOperation, NewBody, Paging, ParsedDefinition,
    Precondition, QueryRequest, QueryScope, Target,
};
use perihelion_model::partition_key::{EffectiveKey, EffectiveRange, PartitionKey};
use perihelion_query::Now;

use crate::support::{self, container, fill, object, query_request, rows};

const COUNT: &str = "SELECT VALUE COUNT(1) FROM c";

/// The result of a count, and how many documents it read.
fn count_by(engine: &Engine, statement: &str, scope: QueryScope) -> (i64, u64) {
    let container = engine.catalog().container("d", "c").unwrap().clone();
    let now = Now::from_unix_milliseconds(1_700_000_000_000);
    let request = QueryRequest { scope, paging: Paging::AsService, ..query_request(statement, now, 1) };
    let page = engine.query(&container, &request, &[]).unwrap();
    assert_eq!(page.continuation, None, "{statement}");
    let counts = rows(&page).iter().map(|row| row.as_i64().unwrap()).collect::<Vec<_>>();
    assert_eq!(counts.len(), 1, "{statement}");
    (counts[0], page.work.documents)
}

fn count(engine: &Engine, scope: QueryScope) -> (i64, u64) {
    count_by(engine, COUNT, scope)
}

fn key(header: &str) -> PartitionKey {
    PartitionKey::from_header(header).unwrap()
}

fn partition(container: &Arc<Container>, header: &str) -> QueryScope {
    QueryScope::Partition(Target::resolve(container, key(header)).unwrap())
}

/// The newest version of the container `c`.
fn current(engine: &Engine) -> Arc<Container> {
    engine.catalog().container("d", "c").unwrap().clone()
}

/// Each physical partition of the container as a scope.
fn each_range(engine: &Engine) -> Vec<QueryScope> {
    let container = current(engine);
    let scope =
        |range: &perihelion_engine::PartitionRange| QueryScope::Ranges(vec![(range.id, range.keys.clone())]);
    container.ranges.iter().map(scope).collect()
}

async fn write(engine: &Engine, container: &Arc<Container>, header: &str, operation: ItemOperation) {
    engine.write_item(container, key(header), operation, Precondition::default()).await.unwrap();
}

async fn create(engine: &Engine, container: &Arc<Container>, header: &str, text: &str) {
    let operation = ItemOperation::Create { body: NewBody::new(object(text), container).unwrap() };
    write(engine, container, header, operation).await;
}

/// Story of a bug: a count of all documents parsed each of them.
#[tokio::test]
async fn a_count_of_all_documents_reads_none_of_them() {
    for partitions in [1, 4] {
        let engine = support::engine(EngineOptions::default().with_partitions(partitions)).await;
        let created = container(&engine, "c").await;
        assert_eq!(count(&engine, QueryScope::All), (0, 0));
        fill(&engine, &created, 70, 7).await;
        for n in (0..70).step_by(5) {
            let operation = ItemOperation::Delete { id: n.to_string() };
            write(&engine, &created, &format!(r#"["k{}"]"#, n % 7), operation).await;
        }
        for statement in [COUNT, "SELECT VALUE COUNT(c) FROM c", "SELECT VALUE COUNT('x') FROM ROOT AS r"] {
            assert_eq!(count_by(&engine, statement, QueryScope::All), (56, 0), "{statement}");
        }
        assert_eq!(count_by(&engine, "SELECT VALUE COUNT(undefined) FROM c", QueryScope::All), (0, 0));
        for n in 0..7 {
            let scope = partition(&created, &format!(r#"["k{n}"]"#));
            assert_eq!(count(&engine, scope), (8, 0), "{partitions} partitions, k{n}");
        }
        assert_eq!(count(&engine, partition(&created, r#"["other"]"#)), (0, 0));
        let ranges: Vec<_> = each_range(&engine).into_iter().map(|scope| count(&engine, scope)).collect();
        assert_eq!(ranges.iter().map(|(count, _)| count).sum::<i64>(), 56);
        assert!(ranges.iter().all(|(_, documents)| *documents == 0), "{ranges:?}");
    }
}

/// A count that depends on the contents of documents reads them.
#[tokio::test]
async fn a_count_with_a_filter_or_of_a_member_reads_documents() {
    let engine = support::engine(EngineOptions::default()).await;
    let created = container(&engine, "c").await;
    for n in 0..4 {
        let tags = if n < 3 { r#","tags":[1,2]"# } else { "" };
        create(&engine, &created, r#"["a"]"#, &format!(r#"{{"id":"{n}","pk":"a"{tags}}}"#)).await;
    }
    for (statement, expected) in [
        ("SELECT VALUE COUNT(1) FROM c WHERE c.id > '1'", 2),
        ("SELECT VALUE COUNT(c.tags) FROM c", 3),
        ("SELECT VALUE COUNT(1) FROM c.tags", 3),
        ("SELECT VALUE COUNT(1) FROM t IN c.tags", 6),
        ("SELECT VALUE COUNT(1) FROM c JOIN t IN c.tags", 6),
    ] {
        assert_eq!(count_by(&engine, statement, QueryScope::All), (expected, 4), "{statement}");
    }
}

/// After a split only the sum of the counters of the ranges is exact. The count of one range must be
/// exact all the same.
#[tokio::test]
async fn a_count_is_exact_after_splits_and_for_parts_of_ranges() {
    let engine = support::engine(EngineOptions::default()).await;
    let created = container(&engine, "c").await;
    fill(&engine, &created, 60, 20).await;
    let [first, _] = engine.split(&created, created.ranges[0].id).await.unwrap();
    engine.split(&current(&engine), first).await.unwrap();
    let created = current(&engine);
    for n in 0..9 {
        let operation = ItemOperation::Delete { id: n.to_string() };
        write(&engine, &created, &format!(r#"["k{}"]"#, n % 20), operation).await;
    }
    assert_eq!(count(&engine, QueryScope::All), (51, 0));
    assert_eq!(count(&engine, partition(&created, r#"["k3"]"#)), (2, 0));
    let all = created.ranges.iter().map(|range| (range.id, range.keys.clone())).collect();
    assert_eq!(count(&engine, QueryScope::Ranges(all)), (51, 0));
    // The count of each range is the number of rows that `SELECT *` finds in it.
    let found = |scope: &QueryScope| {
        let now = Now::from_unix_milliseconds(1_700_000_000_000);
        let request = QueryRequest { scope: scope.clone(), ..query_request("SELECT * FROM c", now, 1000) };
        engine.query(&created, &request, &[]).unwrap().rows as i64
    };
    for scope in each_range(&engine) {
        assert_eq!(count(&engine, scope.clone()).0, found(&scope), "{scope:?}");
    }
    let narrow = EffectiveRange { min: EffectiveKey(vec![0x08]), max: EffectiveKey(vec![0x2A]) };
    let parts = created.ranges.iter().filter(|range| range.keys.overlaps(&narrow));
    let narrowed =
        QueryScope::Ranges(parts.map(|range| (range.id, range.keys.intersection(&narrow))).collect());
    let expected = found(&narrowed);
    assert!(0 < expected && expected < 51, "{expected}");
    assert_eq!(count(&engine, narrowed).0, expected);
}

/// An engine with a container of hierarchical keys and a TTL, and its clock in seconds since 1970.
async fn engine_with_ttl() -> (Arc<Engine>, Arc<Container>, Arc<AtomicU64>) {
    let seconds = Arc::new(AtomicU64::new(1_800_000_000));
    let clock_seconds = Arc::clone(&seconds);
    let clock = Clock::from_fn(move || Duration::from_secs(clock_seconds.load(Ordering::SeqCst)));
    let options = EngineOptions::default().with_partitions(3).with_clock(clock);
    let engine = support::engine(options).await;
    let created = engine.create_container("d", definition("-1"), None).await.unwrap();
    (engine, created, seconds)
}

fn definition(ttl: &str) -> ParsedDefinition {
    let key = r#"{"paths":["/tenant","/user"],"kind":"MultiHash","version":2}"#;
    let body = object(&format!(r#"{{"id":"c","defaultTtl":{ttl},"partitionKey":{key}}}"#));
    ParsedDefinition::parse(body, ApiVersion::Current).unwrap()
}

#[tokio::test]
async fn a_count_leaves_out_expired_documents_that_are_still_stored() {
    let (engine, created, seconds) = engine_with_ttl().await;
    for n in 0..30 {
        let (tenant, user) = (n % 2, n % 3);
        let ttl = if n < 12 { r#","ttl":5"# } else { "" };
        let text = format!(r#"{{"id":"{n}","tenant":"t{tenant}","user":"u{user}"{ttl}}}"#);
        create(&engine, &created, &format!(r#"["t{tenant}","u{user}"]"#), &text).await;
    }
    let prefix = || {
        let first_level = key(r#"["t1"]"#);
        let keys = created.partition_key.effective_range(&first_level);
        let ranges = created.ranges.iter().filter(|range| range.keys.overlaps(&keys));
        QueryScope::Prefix { key: first_level, ranges: ranges.map(|range| range.id).collect() }
    };
    let counts = || {
        let scopes = [QueryScope::All, prefix(), partition(&created, r#"["t1","u1"]"#)];
        scopes.map(|scope| count(&engine, scope).0)
    };
    assert_eq!(counts(), [30, 15, 5]);
    seconds.fetch_add(10, Ordering::SeqCst);
    assert_eq!(counts(), [18, 9, 3]);
    assert_eq!(engine.state(&created).unwrap().documents(), 30, "maintenance has not run");
    let ranges: Vec<_> = each_range(&engine).into_iter().map(|scope| count(&engine, scope).0).collect();
    assert_eq!(ranges.iter().sum::<i64>(), 18);
    engine.maintain().await.unwrap();
    assert_eq!(counts(), [18, 9, 3]);

    // The TTL of the container changes, and maintenance has not visited the documents.
    engine.replace_container(&created, definition("15"), None).await.unwrap();
    assert_eq!(count(&engine, QueryScope::All).0, 18);
    seconds.fetch_add(10, Ordering::SeqCst);
    assert_eq!(count(&engine, QueryScope::All).0, 0);
}
