//! Pages of queries and change feeds that end because their time is over. The clock of these
//! tests moves on by a second whenever it is read, so a page has time for a few documents. A page
//! ends after 5 seconds. A page that needs all documents before its first row, as an aggregate does,
//! cannot end early. It is refused after 60 seconds.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use perihelion_engine::{
    CheckpointResult, Clock, Column, Container, Engine, EngineOptions, FeedMode, FeedPage, FeedRequest,
    FeedStart, IndexScope, IndexShape, ItemOperation, NewBody, PageLimits, Precondition, QueryPage,
    QueryRequest, QueryScope, Refusal,
};
use perihelion_model::json::Value;
use perihelion_model::partition_key::{EffectiveRange, PartitionKey};
use perihelion_query::Now;

use crate::support;

/// An engine with a container and a clock that moves by a second whenever it is read.
async fn slow_engine(partitions: u32) -> (Arc<Engine>, Arc<Container>) {
    engine_with_clock_step(partitions, 1000).await
}

/// An engine with a container and a clock that moves by this many milliseconds whenever it is read.
async fn engine_with_clock_step(partitions: u32, step: u64) -> (Arc<Engine>, Arc<Container>) {
    let milliseconds = AtomicU64::new(1_700_000_000_000);
    let clock =
        Clock::from_fn(move || Duration::from_millis(milliseconds.fetch_add(step, Ordering::Relaxed)));
    let options = EngineOptions::default().with_partitions(partitions).with_clock(clock);
    let engine = support::engine(options).await;
    let container = support::container(&engine, "c").await;
    (engine, container)
}

fn key(n: usize) -> PartitionKey {
    PartitionKey::from_header(&format!("[\"k{}\"]", n % 7)).unwrap()
}

/// Creates documents with a number `v` that is not in the order of their creation, a long text
/// and an array.
async fn fill(engine: &Engine, container: &Arc<Container>, documents: usize) {
    for n in 0..documents {
        let (v, w) = ((n * 37) % documents, n % 3);
        let text = format!(
            r#"{{"id":"{n}","pk":"k{}","v":{v},"w":{w},"long":"{}{v:05}","items":[{n},0]}}"#,
            n % 7,
            "x".repeat(300)
        );
        let operation =
            ItemOperation::Create { body: NewBody::new(support::object(&text), container).unwrap() };
        engine.write_item(container, key(n), operation, Precondition::default()).await.unwrap();
    }
}

fn page(engine: &Engine, text: &str, rows: usize, token: Option<String>) -> Result<QueryPage, Refusal> {
    let container = engine.catalog().container("d", "c").unwrap().clone();
    let request = QueryRequest { continuation: token, ..request_at(NOW_MILLISECONDS, text, rows) };
    engine.query(&container, &request, &[])
}

/// The time at which most queries here run, in milliseconds since 1970.
const NOW_MILLISECONDS: i64 = 1_700_000_000_000;

/// A request for the first page of a query that runs at this time.
fn request_at(milliseconds: i64, text: &str, rows_max: usize) -> QueryRequest {
    support::query_request(text, Now::from_unix_milliseconds(milliseconds), rows_max)
}

/// The rows and counts of the pages of a query.
#[derive(Default)]
struct Pages {
    rows: Vec<Value>,
    pages: usize,
    /// The pages without rows, except the last one.
    empty_pages: usize,
    /// The documents that the pages read.
    documents: u64,
}

impl Pages {
    /// Adds a page, and returns the token of the next one.
    fn add(&mut self, page: QueryPage) -> Option<String> {
        self.rows.extend(support::rows(&page));
        self.pages += 1;
        self.documents += page.work.documents;
        self.empty_pages += usize::from(page.rows == 0 && page.continuation.is_some());
        page.continuation
    }

    /// The numbers `v` of the rows.
    fn values(&self) -> Vec<i64> {
        self.rows.iter().map(|row| row.get("v").unwrap().as_i64().unwrap()).collect()
    }
}

/// Reads all pages of a query. Splits the first range after `split_after` pages.
async fn read(engine: &Engine, text: &str, rows_max: usize, split_after: Option<usize>) -> Pages {
    let (mut all, mut token) = (Pages::default(), None);
    loop {
        token = all.add(page(engine, text, rows_max, token).unwrap());
        let Some(next) = &token else { return all };
        // The smallest limit of a token that a client can set is 1,024 bytes.
        assert!(next.len() <= 1024, "{} bytes: {next}", next.len());
        if Some(all.pages) == split_after {
            let container = engine.catalog().container("d", "c").unwrap().clone();
            engine.split(&container, container.ranges[0].id).await.unwrap();
        }
        assert!(all.pages < 5000, "{text} does not end");
    }
}

#[tokio::test]
async fn a_scan_without_a_matching_row_ends_its_pages_and_reads_every_document_once() {
    for partitions in [1, 4] {
        let (engine, container) = slow_engine(partitions).await;
        fill(&engine, &container, 100).await;
        let all = read(&engine, "SELECT * FROM c WHERE c.v = -1", 100, None).await;
        assert_eq!((all.rows.len(), all.documents), (0, 100));
        assert!(all.empty_pages > 10, "{}", all.empty_pages);
    }
}

#[tokio::test]
async fn a_scan_in_short_pages_returns_every_row_once_even_across_a_split() {
    for text in [
        "SELECT c.v FROM c",
        "SELECT c.v FROM c WHERE c.w = 1",
        "SELECT c.v FROM c JOIN x IN c.items WHERE x > 0",
        "SELECT c.v FROM c OFFSET 20 LIMIT 30",
    ] {
        let quick = support::engine(EngineOptions::default()).await;
        let quick_container = support::container(&quick, "c").await;
        fill(&quick, &quick_container, 100).await;
        let mut expected = read(&quick, text, 1000, None).await.values();
        for (partitions, split_after) in [(1, None), (1, Some(3)), (3, Some(2))] {
            let (engine, container) = slow_engine(partitions).await;
            fill(&engine, &container, 100).await;
            let all = read(&engine, text, 10, split_after).await;
            let mut found = all.values();
            if text.contains("OFFSET") {
                // Which rows are in the window depends on the ranges.
                assert_eq!(found.len(), expected.len());
                continue;
            }
            found.sort_unstable();
            expected.sort_unstable();
            assert_eq!(found, expected, "{text}, {partitions} ranges, split after {split_after:?}");
        }
    }
}

fn index(paths: &[&str]) -> IndexShape {
    let column = |path: &&str| Column { path: vec![(*path).to_owned()], is_descending: false };
    IndexShape { scope: IndexScope::Segment, columns: paths.iter().map(column).collect() }
}

#[tokio::test]
async fn order_by_in_short_pages_returns_every_row_once_in_order() {
    for (text, is_descending) in [
        ("SELECT c.v FROM c ORDER BY c.v", false),
        ("SELECT c.v FROM c ORDER BY c.v DESC", true),
        ("SELECT c.v FROM c ORDER BY c.long", false),
        ("SELECT c.v FROM c ORDER BY c.long DESC", true),
        ("SELECT c.v FROM c JOIN x IN c.items WHERE x = 0 AND c.v > 0 ORDER BY c.v", false),
        ("SELECT c.v FROM c WHERE c.v % 10 = 3 ORDER BY c.v", false),
    ] {
        for indexes in [&[][..], &["v", "long"]] {
            for (partitions, split_after) in [(1, None), (1, Some(4)), (3, None)] {
                let (engine, container) = slow_engine(partitions).await;
                fill(&engine, &container, 40).await;
                for path in indexes {
                    engine.build_index(&container, index(&[path])).await.unwrap();
                }
                let all = read(&engine, text, 100, split_after).await;
                let mut expected: Vec<i64> = match text {
                    text if text.contains('%') => vec![3, 13, 23, 33],
                    text if text.contains("c.v > 0") => (1..40).collect(),
                    _ => (0..40).collect(),
                };
                if is_descending {
                    expected.reverse();
                }
                let context = format!("{text}, {indexes:?}, {partitions} ranges, split {split_after:?}");
                assert_eq!(all.values(), expected, "{context}");
                // A token has only the first bytes of an index key. So a page cannot end between two
                // entries whose keys have the same first bytes.
                let can_end = indexes.is_empty() || !text.contains("long");
                assert!(all.pages > 5 || !can_end, "{context}: {}", all.pages);
            }
        }
    }
}

/// The token of a paused page has only a few of the smallest rows. A small page drops the other rows
/// that it has read. A larger page after it must not return a row before a smaller row that was dropped.
#[tokio::test]
async fn pages_of_different_sizes_lose_no_row_of_a_paused_order_by() {
    let (engine, container) = slow_engine(1).await;
    fill(&engine, &container, 40).await;
    let (mut all, mut token) = (Pages::default(), None);
    for size in [1, 100, 1, 3, 100, 2].into_iter().cycle().take(1000) {
        token = all.add(page(&engine, "SELECT c.v FROM c ORDER BY c.v", size, token).unwrap());
        if token.is_none() {
            break;
        }
    }
    assert_eq!((all.values(), token), ((0..40).collect(), None));
}

#[tokio::test]
async fn a_paused_order_by_goes_on_when_its_smallest_row_is_deleted() {
    let (engine, container) = slow_engine(1).await;
    fill(&engine, &container, 20).await;
    let text = "SELECT c.v FROM c ORDER BY c.v";
    let first = page(&engine, text, 100, None).unwrap();
    assert_eq!((first.rows, first.continuation.is_some()), (0, true));
    // The document 0 has the smallest value, and was read.
    delete(&engine, &container, 0).await;
    assert_eq!(read_on(&engine, text, 100, first.continuation), (1..20).collect::<Vec<i64>>());
}

/// Reads the rest of a query, from a token on, and returns the numbers `v` of its rows.
fn read_on(engine: &Engine, text: &str, rows_max: usize, mut token: Option<String>) -> Vec<i64> {
    let mut rest = Pages::default();
    for _ in 0..1000 {
        let Some(next) = token else { return rest.values() };
        token = rest.add(page(engine, text, rows_max, Some(next)).unwrap());
    }
    panic!("{text} does not end");
}

async fn delete(engine: &Engine, container: &Arc<Container>, n: usize) {
    let operation = ItemOperation::Delete { id: n.to_string() };
    engine.write_item(container, key(n), operation, Precondition::default()).await.unwrap();
}

/// Story of a bug: a client deleted all rows that a token named. The next page was paused too, and its
/// token said that there were no rows before this second pause. So the query never returned them.
#[tokio::test]
async fn a_paused_order_by_loses_no_row_when_all_rows_of_its_token_are_deleted() {
    let (engine, container) = slow_engine(1).await;
    for n in 0..40 {
        let text = format!(r#"{{"id":"{n}","pk":"k{}","v":{n}}}"#, n % 7);
        let body = NewBody::new(support::object(&text), &container).unwrap();
        let operation = ItemOperation::Create { body };
        engine.write_item(&container, key(n), operation, Precondition::default()).await.unwrap();
    }
    let text = "SELECT c.v FROM c ORDER BY c.v";
    let first = page(&engine, text, 1, None).unwrap();
    assert_eq!((first.rows, first.continuation.is_some()), (0, true));
    assert!(first.work.documents > 2, "the first page reads more rows than those that are deleted");
    // The token of a page of one row names two rows. Both are deleted.
    delete(&engine, &container, 0).await;
    delete(&engine, &container, 1).await;
    assert_eq!(read_on(&engine, text, 1, first.continuation), (2..40).collect::<Vec<i64>>());
}

/// The key up to which a paused page has read is shortened in the token. Story of a bug: in a descending
/// order the shortened key had no valid `_rid`, and the next page refused the token.
#[tokio::test]
async fn a_paused_order_by_descending_goes_on_when_its_rows_with_long_keys_are_deleted() {
    let (engine, container) = slow_engine(1).await;
    fill(&engine, &container, 20).await;
    let text = "SELECT c.v FROM c ORDER BY c.long DESC";
    let first = page(&engine, text, 100, None).unwrap();
    let read = first.work.documents as usize;
    assert!(first.rows == 0 && first.continuation.is_some() && (1..20).contains(&read));
    for n in 0..read {
        delete(&engine, &container, n).await;
    }
    let mut expected: Vec<i64> = (read..20).map(|n| (n * 37 % 20) as i64).collect();
    expected.sort_unstable();
    expected.reverse();
    assert_eq!(read_on(&engine, text, 100, first.continuation), expected);
}

/// Story of a bug: whenever one of the first rows changed, the query started over.
#[tokio::test]
async fn a_paused_order_by_ends_while_its_smallest_rows_change() {
    const DOCUMENTS: usize = 30;
    // The number of documents that change between two pages. It is larger than the number of rows in a
    // token. The rows of these documents are always the smallest.
    const HOT: usize = 8;
    let (engine, container) = slow_engine(1).await;
    fill(&engine, &container, DOCUMENTS).await;
    let cold: Vec<i64> = (HOT..DOCUMENTS).map(|n| (n * 37 % DOCUMENTS) as i64).collect();
    let (mut all, mut token) = (Pages::default(), None);
    for round in 0..400 {
        for n in 0..HOT {
            let v = -(n as i64) - if round % 2 == 0 { 1 } else { 100 };
            let text = format!(r#"{{"id":"{n}","pk":"k{}","v":{v}}}"#, n % 7);
            let body = NewBody::new(support::object(&text), &container).unwrap();
            let operation = ItemOperation::Upsert { body };
            engine.write_item(&container, key(n), operation, Precondition::default()).await.unwrap();
        }
        token = all.add(page(&engine, "SELECT c.v FROM c ORDER BY c.v", 100, token).unwrap());
        if token.is_none() {
            break;
        }
    }
    let mut found = all.values();
    assert_eq!(token, None, "the query ends; found {found:?}");
    found.retain(|v| *v >= 0);
    let mut expected = cold;
    expected.sort_unstable();
    assert_eq!(found, expected);
}

/// Story of a bug: the order keys depend on the current time, so they changed from page to page, and
/// the query started over on each page.
#[tokio::test]
async fn a_paused_order_by_the_current_time_ends() {
    let (engine, container) = slow_engine(1).await;
    fill(&engine, &container, 12).await;
    let text = "SELECT c.v FROM c JOIN (SELECT VALUE GetCurrentTimestamp() + c.v) AS t ORDER BY t";
    let (mut all, mut token): (_, Option<String>) = (Pages::default(), None);
    for time in 1..200 {
        let now = token.as_deref().and_then(perihelion_engine::now_of_continuation).map(Now::from_unix_ticks);
        let now = now.unwrap_or_else(|| Now::from_unix_milliseconds(NOW_MILLISECONDS + 1000 * time));
        let request = QueryRequest { continuation: token, ..support::query_request(text, now, 100) };
        token = all.add(engine.query(&container, &request, &[]).unwrap());
        if token.is_none() {
            break;
        }
    }
    assert_eq!((all.values(), token), ((0..12).collect(), None));
}

/// Story of a bug: the clock was set back between two pages. The second page sorted by other keys, did
/// not recognize the rows of its token, and did not return them.
#[tokio::test]
async fn a_paused_order_by_the_current_time_loses_no_row_when_the_clock_is_set_back() {
    let (engine, container) = slow_engine(1).await;
    fill(&engine, &container, 12).await;
    let text = "SELECT c.v FROM c JOIN (SELECT VALUE c.v + GetCurrentTimestamp()) AS t ORDER BY t";
    let mut all = Pages::default();
    let mut token = all.add(page(&engine, text, 100, None).unwrap());
    assert!(all.rows.is_empty() && token.is_some(), "the first page is paused");
    // All other pages run at a time that is an hour before the first page.
    while token.is_some() {
        let earlier = request_at(NOW_MILLISECONDS - 3_600_000, text, 100);
        let request = QueryRequest { continuation: token, ..earlier };
        token = all.add(engine.query(&container, &request, &[]).unwrap());
        assert!(all.pages < 200);
    }
    assert_eq!(all.values(), (0..12).collect::<Vec<i64>>());
}

/// Story of a bug: only the first part of the rows of a document was searched for the row at which a
/// page continues, and rows came again.
#[tokio::test]
async fn a_page_continues_far_within_the_rows_of_one_document() {
    let engine = support::engine(EngineOptions::default()).await;
    let container = support::container(&engine, "c").await;
    let items: Vec<String> = (0..150).map(|n| n.to_string()).collect();
    // Each row takes a hundredth of the budget of one evaluation, so the 150 rows are read in two parts.
    let text = format!(
        r#"{{"id":"1","pk":"k0","long":"{}","text":"{}","items":[{}]}}"#,
        "x".repeat(300),
        "y".repeat(1_600_000),
        items.join(",")
    );
    let operation = ItemOperation::Create { body: NewBody::new(support::object(&text), &container).unwrap() };
    engine.write_item(&container, key(0), operation, Precondition::default()).await.unwrap();
    let text = "SELECT i AS v FROM c JOIN i IN c.items WHERE NOT CONTAINS(c.text, 'z') ORDER BY c.long";
    let (mut all, mut token) = (Pages::default(), None);
    for _ in 0..10 {
        token = all.add(page(&engine, text, 40, token).unwrap());
        if token.is_none() {
            break;
        }
    }
    assert_eq!((all.values(), token), ((0..150).collect(), None));
}

/// Story of a bug: the entries of an index were read without a check whether other reads wait.
#[tokio::test]
async fn a_read_of_many_index_entries_lets_other_reads_run() {
    let engine = support::engine(EngineOptions::default()).await;
    let container = support::container(&engine, "c").await;
    support::fill(&engine, &container, 3000, 1).await;
    engine.build_index(&container, index(&["pad"])).await.unwrap();
    let container = engine.catalog().container("d", "c").unwrap().clone();
    let request = request_at(NOW_MILLISECONDS, "SELECT c.id FROM c WHERE c.pad >= ''", 1);
    let (page, checks) = page_with_checks(&engine, &container, &request);
    assert_eq!((page.rows, page.used_index), (1, true));
    // One check for each of the two documents that a page of one row reads, and one for every 1,024
    // index entries.
    assert_eq!(checks, 2 + 3000 / 1024);
}

/// A page, and how often the engine checked whether other reads wait.
fn page_with_checks(engine: &Engine, container: &Arc<Container>, request: &QueryRequest) -> (QueryPage, u64) {
    let checks = AtomicU64::new(0);
    let checkpoint = |_| {
        checks.fetch_add(1, Ordering::Relaxed);
        Ok(CheckpointResult::GoOn)
    };
    let limits = PageLimits { checkpoint: &checkpoint, ..PageLimits::default() };
    let page = engine.query_within(container, request, &[], limits).unwrap();
    (page, checks.load(Ordering::Relaxed))
}

/// Story of a bug: an aggregate over a small part of the effective keys read all documents of the physical
/// partition without a check, because documents outside of this part did not count.
#[tokio::test]
async fn an_aggregate_without_documents_in_its_keys_lets_other_reads_run() {
    let engine = support::engine(EngineOptions::default()).await;
    let container = support::container(&engine, "c").await;
    support::fill(&engine, &container, 2000, 1).await;
    let used = container.partition_key.effective_range(&key(0));
    let parts = EffectiveRange::whole().split_evenly(64, container.partition_key.version);
    let keys = parts.into_iter().find(|keys| !keys.overlaps(&used)).unwrap();
    let scope = QueryScope::Ranges(vec![(container.ranges[0].id, keys)]);
    let request = QueryRequest { scope, ..request_at(NOW_MILLISECONDS, "SELECT VALUE COUNT(1) FROM c", 1) };
    let (page, checks) = page_with_checks(&engine, &container, &request);
    assert_eq!((page.rows_text.as_str(), checks), ("0", 2000));
}

/// Story of a bug: a page that took a minute within index entries with the same short string was refused,
/// although these entries are in order. Entries with equal keys can be out of order only if their strings
/// are cut.
#[tokio::test]
async fn a_page_within_equal_index_keys_is_refused_only_if_their_strings_are_cut() {
    for (length, is_refused) in [(5, false), (300, false), (2000, true)] {
        let (engine, container) = slow_engine(1).await;
        for n in 0..80 {
            let text = format!(r#"{{"id":"{n}","pk":"k{}","s":"{}"}}"#, n % 7, "x".repeat(length));
            let body = NewBody::new(support::object(&text), &container).unwrap();
            let operation = ItemOperation::Create { body };
            engine.write_item(&container, key(n), operation, Precondition::default()).await.unwrap();
        }
        engine.build_index(&container, index(&["s"])).await.unwrap();
        let text = "SELECT VALUE c.id FROM c ORDER BY c.s";
        let first = page(&engine, text, 1000, None).unwrap();
        assert!(first.used_index && first.rows == 0 && first.continuation.is_some(), "{length}");
        if is_refused {
            assert_eq!(page(&engine, text, 1000, first.continuation).unwrap_err().status, 408, "{length}");
        } else {
            let found = read(&engine, text, 1000, None).await.rows;
            let expected: Vec<Value> = (0..80).map(|n| n.to_string().into()).collect();
            assert_eq!(found, expected, "{length}");
        }
    }
}

#[tokio::test]
async fn an_aggregate_that_takes_too_long_is_refused_as_a_timeout() {
    let (engine, container) = slow_engine(1).await;
    fill(&engine, &container, 20).await;
    let count = |engine: &Engine| page(engine, "SELECT VALUE COUNT(c.id) FROM c", 10, None);
    assert_eq!(count(&engine).unwrap().rows_text, "20");
    let (engine, container) = slow_engine(1).await;
    fill(&engine, &container, 80).await;
    assert_eq!(count(&engine).unwrap_err().status, 408);
    assert_eq!(page(&engine, "SELECT DISTINCT c.v FROM c", 10, None).unwrap_err().status, 408);
}

/// A query that sorts by a distance cannot end its first page early. The rows of one document are read
/// in parts, and the limit of time holds between these parts.
#[tokio::test]
async fn a_query_by_distance_over_the_rows_of_one_document_that_takes_too_long_is_refused() {
    let (engine, container) = engine_with_clock_step(1, 20_000).await;
    let numbers = (0..1000).map(|n| n.to_string()).collect::<Vec<_>>().join(",");
    let text = format!(r#"{{"id":"1","pk":"k","vector":[1,2],"items":[{numbers}]}}"#);
    let operation = ItemOperation::Create { body: NewBody::new(support::object(&text), &container).unwrap() };
    let key = PartitionKey::from_header("[\"k\"]").unwrap();
    engine.write_item(&container, key, operation, Precondition::default()).await.unwrap();
    let query = "SELECT TOP 3 VALUE a + b + c2 FROM c JOIN a IN c.items JOIN b IN c.items JOIN c2 IN c.items \
                 ORDER BY VectorDistance(c.vector, [1, 1])";
    assert_eq!(page(&engine, query, 3, None).unwrap_err().status, 408);
}

fn feed(engine: &Engine, mode: FeedMode, start: FeedStart) -> FeedPage {
    let container = engine.catalog().container("d", "c").unwrap().clone();
    let request = FeedRequest {
        range: container.ranges[0].id,
        keys: EffectiveRange::whole(),
        partition_key: Some(key(6)),
        start,
        mode,
        items_max: 100,
    };
    engine.change_feed(&container, &request, &[]).unwrap()
}

#[tokio::test]
async fn a_change_feed_without_an_item_goes_on_where_its_time_was_over() {
    for mode in [FeedMode::LatestVersion, FeedMode::AllVersionsAndDeletes] {
        let (engine, container) = slow_engine(1).await;
        engine.start_version_log(&container).await.unwrap();
        let start = engine.state(&container).unwrap().lsn(container.ranges[0].id);
        fill(&engine, &container, 70).await;
        let (mut after, mut items, mut pages) = (start, 0, 0);
        loop {
            let page = feed(&engine, mode, FeedStart::After(after));
            pages += 1;
            items += page.items.len();
            assert!(page.is_at_end || page.continuation > after, "{mode:?}: page {pages} makes progress");
            after = page.continuation;
            if page.is_at_end {
                break;
            }
        }
        assert_eq!((items, after), (10, start + 70), "{mode:?}");
        assert!(pages > 8, "{mode:?}: {pages}");
    }
}

#[tokio::test]
async fn a_change_feed_since_a_time_never_returns_older_documents() {
    let (engine, container) = slow_engine(1).await;
    fill(&engine, &container, 70).await;
    let now = engine.clock().seconds();
    fill_later(&engine, &container).await;
    let page = feed(&engine, FeedMode::LatestVersion, FeedStart::Since(now));
    assert_eq!(page.items.len(), 1, "the page reads past the older documents");
}

/// Creates one more document with the key of the feed.
async fn fill_later(engine: &Engine, container: &Arc<Container>) {
    let body = support::object(r#"{"id":"later","pk":"k6"}"#);
    let operation = ItemOperation::Create { body: NewBody::new(body, container).unwrap() };
    engine.write_item(container, key(6), operation, Precondition::default()).await.unwrap();
}
