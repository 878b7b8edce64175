//! Pages of queries while documents change and ranges split between two pages.
//!
//! DISTINCT, GROUP BY and statements in stages had a bug: every page computed the whole answer
//! again and continued at a row number. A delete between two pages made rows vanish, and an
//! insert or a split made rows come twice. ORDER BY had another bug: its tokens held whole strings,
//! and clients refused headers of that length.

use std::sync::Arc;

use perihelion_engine::{
    Column, Container, Engine, EngineOptions, IndexScope, IndexShape, ItemOperation, NewBody, Precondition,
    QueryPage, QueryRequest, QueryScope, Target,
};
use perihelion_model::json::Value;
use perihelion_model::partition_key::PartitionKey;
use perihelion_query::Now;

use crate::support::{self, rows};

async fn engine(partitions: u32) -> (Arc<Engine>, Arc<Container>) {
    let engine = support::engine(EngineOptions::default().with_partitions(partitions)).await;
    let container = support::container(&engine, "c").await;
    (engine, container)
}

/// The partition key of the document with this number.
fn key(n: usize) -> PartitionKey {
    PartitionKey::from_header(&format!("[\"k{}\"]", n % 7)).unwrap()
}

/// Creates a document with these members, besides `id` and `pk`.
async fn create(engine: &Engine, container: &Arc<Container>, n: usize, members: &str) {
    let body = support::object(&format!(r#"{{"id":"{n}","pk":"k{}",{members}}}"#, n % 7));
    let operation = ItemOperation::Create { body: NewBody::new(body, container).unwrap() };
    engine.write_item(container, key(n), operation, Precondition::default()).await.unwrap();
}

async fn delete(engine: &Engine, container: &Arc<Container>, n: usize) {
    let operation = ItemOperation::Delete { id: n.to_string() };
    engine.write_item(container, key(n), operation, Precondition::default()).await.unwrap();
}

/// The time of the next query, in milliseconds since 1970.
static CLOCK: std::sync::atomic::AtomicI64 = std::sync::atomic::AtomicI64::new(1_700_000_000_000);

fn page(engine: &Engine, text: &str, rows_max: usize, continuation: Option<String>) -> QueryPage {
    let container = engine.catalog().container("d", "c").unwrap().clone();
    // The clock moves on between two pages.
    let milliseconds = CLOCK.fetch_add(1000, std::sync::atomic::Ordering::Relaxed);
    let first = continuation.as_deref().and_then(perihelion_engine::now_of_continuation);
    let now = first.map_or(Now::from_unix_milliseconds(milliseconds), Now::from_unix_ticks);
    let request = QueryRequest { continuation, ..support::query_request(text, now, rows_max) };
    engine.query(&container, &request, &[]).unwrap()
}

/// The remaining rows, in pages of this size, and the longest token.
fn rest(engine: &Engine, text: &str, rows_max: usize, mut token: Option<String>) -> (Vec<Value>, usize) {
    let (mut all, mut longest) = (Vec::new(), 0);
    for _ in 0..1000 {
        let Some(continuation) = token else { return (all, longest) };
        longest = longest.max(continuation.len());
        let page = page(engine, text, rows_max, Some(continuation));
        all.extend(rows(&page));
        token = page.continuation;
    }
    panic!("{text} does not end");
}

fn sorted(mut rows: Vec<Value>) -> Vec<String> {
    rows.sort_by(|one, other| perihelion_query::compare_values(Some(one), Some(other)));
    rows.iter()
        .map(|row| perihelion_model::json::to_text(row, perihelion_model::json::Style::Query))
        .collect()
}

/// Statements that need all their documents before the first row: DISTINCT, GROUP BY, stages.
const GATHERED: [&str; 6] = [
    "SELECT DISTINCT VALUE c.v FROM c",
    "SELECT DISTINCT VALUE c.v FROM c ORDER BY c.v DESC",
    "SELECT DISTINCT c.v, c.w FROM c",
    "SELECT c.v, COUNT(1) AS n FROM c GROUP BY c.v",
    "SELECT x.v FROM (SELECT DISTINCT c.v FROM c) AS x",
    "SELECT VALUE x.n FROM (SELECT c.v, COUNT(1) AS n FROM c GROUP BY c.v) AS x",
];

/// Twenty values, each in three documents.
async fn fill(engine: &Engine, container: &Arc<Container>) {
    for n in 0..60 {
        create(engine, container, n, &format!(r#""v":{},"w":"x{}""#, n % 20, n % 20)).await;
    }
}

#[tokio::test]
async fn gathered_rows_neither_vanish_nor_repeat_when_documents_of_returned_rows_are_deleted() {
    for text in GATHERED {
        let (engine, container) = engine(2).await;
        fill(&engine, &container).await;
        let whole = sorted(rows(&page(&engine, text, 1000, None)));
        let first = page(&engine, text, 7, None);
        let mut found = rows(&first);
        if text.contains("x.n") {
            // These rows do not name their group. Groups come in the order of their values, so the
            // documents that are deleted belong to the groups of the first page.
            for n in 0..found.len() {
                delete(&engine, &container, n).await;
            }
            found.extend(rest(&engine, text, 7, first.continuation).0);
            assert_eq!(sorted(found), whole, "{text}");
            continue;
        }
        for row in &found {
            let value = row.get("v").unwrap_or(row).as_i64().unwrap() as usize;
            for n in [value, value + 20, value + 40] {
                delete(&engine, &container, n).await;
            }
        }
        found.extend(rest(&engine, text, 7, first.continuation).0);
        assert_eq!(sorted(found), whole, "{text}");
    }
}

#[tokio::test]
async fn gathered_rows_neither_vanish_nor_repeat_when_a_range_splits_and_documents_move_between_pages() {
    for text in GATHERED {
        let (engine, container) = engine(1).await;
        fill(&engine, &container).await;
        let whole = sorted(rows(&page(&engine, text, 1000, None)));
        let first = page(&engine, text, 3, None);
        let mut found = rows(&first);
        engine.split(&container, container.ranges[0].id).await.unwrap();
        let split = engine.catalog().container("d", "c").unwrap().clone();
        if !text.contains("COUNT") {
            // The first document of every value is created again, and so moves to the end. Each value
            // then appears first in another document. Statements with COUNT are tested only with the split.
            for n in 0..20 {
                delete(&engine, &split, n).await;
                create(&engine, &split, n, &format!(r#""v":{n},"w":"x{n}""#)).await;
            }
        }
        found.extend(rest(&engine, text, 3, first.continuation).0);
        assert_eq!(sorted(found), whole, "{text}");
    }
}

#[tokio::test]
async fn rows_that_fit_on_one_page_come_in_the_order_in_which_they_appear() {
    let (engine, container) = engine(1).await;
    for (n, value) in [5, 3, 5, 9, 1, 3].into_iter().enumerate() {
        create(&engine, &container, n, &format!(r#""v":{value}"#)).await;
    }
    let values = |text: &str| numbers_in_order(&rows(&page(&engine, text, 100, None)));
    assert_eq!(values("SELECT DISTINCT VALUE c.v FROM c"), "5 3 9 1");
    assert_eq!(values("SELECT VALUE COUNT(1) FROM c GROUP BY c.v"), "2 2 1 1");
    // With OFFSET and LIMIT the rows are sorted by their values even if they fit on one page.
    assert_eq!(values("SELECT DISTINCT VALUE c.v FROM c OFFSET 0 LIMIT 2"), "1 3");
    assert_eq!(values("SELECT DISTINCT VALUE c.v FROM c OFFSET 2 LIMIT 2"), "5 9");
}

/// The numbers of the rows as text, in the order of the rows.
fn numbers_in_order(rows: &[Value]) -> String {
    rows.iter().map(|row| row.as_i64().unwrap().to_string()).collect::<Vec<_>>().join(" ")
}

#[tokio::test]
async fn equal_rows_of_a_stage_are_returned_as_often_as_they_occur() {
    let (engine, container) = engine(2).await;
    fill(&engine, &container).await;
    let text = "SELECT VALUE x.n FROM (SELECT c.v, COUNT(1) AS n FROM c GROUP BY c.v) AS x";
    for page_rows in [1, 7] {
        let first = page(&engine, text, page_rows, None);
        let mut found = rows(&first);
        found.extend(rest(&engine, text, page_rows, first.continuation).0);
        assert_eq!(sorted(found), vec!["3"; 20]);
    }
}

/// All rows of a statement in pages of this size.
fn all(engine: &Engine, text: &str, rows_max: usize) -> Vec<Value> {
    let first = page(engine, text, rows_max, None);
    let mut found = rows(&first);
    found.extend(rest(engine, text, rows_max, first.continuation).0);
    found
}

/// The rows have equal values, and keys that a token has no room for.
#[tokio::test]
async fn paging_ends_when_groups_with_equal_rows_are_sorted_by_long_keys() {
    let (engine, container) = engine(1).await;
    for n in 0..5 {
        create(&engine, &container, n, &format!(r#""s":"{}{n}""#, "x".repeat(300))).await;
    }
    let text = "SELECT VALUE COUNT(1) FROM c GROUP BY c.s ORDER BY c.s";
    assert_eq!(numbers_in_order(&all(&engine, text, 1)), "1 1 1 1 1");
}

#[tokio::test]
async fn the_order_of_an_inner_stage_does_not_depend_on_the_size_of_pages() {
    let (engine, container) = engine(2).await;
    for n in 0..12 {
        create(&engine, &container, n, &format!(r#""i":{n}"#)).await;
    }
    let text = "SELECT TOP 2 VALUE x FROM (SELECT TOP 3 VALUE c.i FROM c ORDER BY c.i DESC) AS x";
    for page_rows in [1, 7, 1000] {
        assert_eq!(numbers_in_order(&all(&engine, text, page_rows)), "11 10");
    }
}

#[tokio::test]
async fn every_page_sees_the_time_of_the_first_page() {
    let (engine, container) = engine(1).await;
    for n in 0..5 {
        create(&engine, &container, n, r#""v":1"#).await;
    }
    let text = "SELECT DISTINCT GetCurrentTimestamp() AS at, c.id FROM c";
    let found = all(&engine, text, 1);
    assert_eq!(found.len(), 5, "{found:?}");
    assert!(found.iter().all(|row| row.get("at") == found[0].get("at")), "{found:?}");
}

#[tokio::test]
async fn a_group_that_was_returned_does_not_come_again_when_it_grows() {
    for text in [
        "SELECT c.v, COUNT(1) AS n FROM c GROUP BY c.v ORDER BY c.v",
        "SELECT VALUE x FROM (SELECT c.v, COUNT(1) AS n FROM c GROUP BY c.v) AS x",
        "SELECT VALUE x FROM (SELECT c.v, MAKELIST(c.id) AS ids FROM c GROUP BY c.v) AS x",
    ] {
        let (engine, container) = engine(1).await;
        fill(&engine, &container).await;
        let first = page(&engine, text, 3, None);
        let mut found = rows(&first);
        for row in &found {
            let value = row.get("v").unwrap().as_i64().unwrap();
            create(&engine, &container, 100 + value as usize, &format!(r#""v":{value}"#)).await;
        }
        engine.split(&container, container.ranges[0].id).await.unwrap();
        found.extend(rest(&engine, text, 3, first.continuation).0);
        let mut values: Vec<i64> = found.iter().map(|row| row.get("v").unwrap().as_i64().unwrap()).collect();
        values.sort_unstable();
        assert_eq!(values, (0..20).collect::<Vec<i64>>(), "{text}");
    }
}

#[tokio::test]
async fn groups_over_a_join_of_large_keys_have_a_second_page() {
    let (engine, container) = engine(1).await;
    let tags: Vec<String> = (0..300).map(|n| n.to_string()).collect();
    let big = "x".repeat(400_000);
    create(&engine, &container, 0, &format!(r#""big":"{big}","tags":[{}]"#, tags.join(","))).await;
    let text = "SELECT VALUE COUNT(1) FROM c JOIN t IN c.tags GROUP BY t, c.big";
    let found = all(&engine, text, 60);
    assert_eq!(found.len(), 300);
}

/// A token that names a document of another logical partition reveals nothing about it.
#[tokio::test]
async fn a_forged_token_cannot_read_a_document_of_another_partition() {
    let (engine, container) = engine(1).await;
    fill_long(&engine, &container).await;
    let text = "SELECT VALUE c.id FROM c ORDER BY c.s";
    let read = |n: usize, continuation: Option<String>| {
        let scope = QueryScope::Partition(Target::resolve(&container, key(n)).unwrap());
        let whole = support::query_request(text, Now::from_unix_milliseconds(0), 1);
        engine.query(&container, &QueryRequest { scope, continuation, ..whole }, &[]).unwrap()
    };
    // A token of partition 1 after its first long string. `#NXD` names the document of the next row.
    let mut token = read(1, None).continuation;
    for _ in 0..10 {
        if token.as_ref().is_none_or(|token| token.contains("#NXD:")) {
            break;
        }
        token = read(1, token).continuation;
    }
    let foreign = token.expect("a token that names the next row");
    assert!(foreign.contains("#NXD:"), "{foreign}");
    // Partition 2 does not find the document, so the page starts at the beginning of the long strings.
    let own = read(2, Some(foreign));
    assert_eq!(own.rows_text, "\"2\"");
}

/// Story of a bug: a page forgot how far a range had been read before it was split. This happened
/// if a page after the split ended in one half of the range, nothing was left in the other half, and
/// the first row that the page had no room for was in a later range. The rows of the other half then
/// came again.
#[tokio::test]
async fn a_split_range_is_not_read_again_after_a_page_that_ended_before_a_later_range() {
    let (engine, container) = engine(2).await;
    // In a second engine the range is split already. It shows to which half a key belongs.
    let (split_engine, whole) = self::engine(2).await;
    let [low_range, high_range] = split_engine.split(&whole, whole.ranges[0].id).await.unwrap();
    let split = split_engine.catalog().container("d", "c").unwrap().clone();
    let range_of = |n: &usize| Target::resolve(&split, key(*n)).unwrap().range.id;
    let find = |wanted: &dyn Fn(u32) -> bool| (0..7).find(|n| wanted(range_of(n))).unwrap();
    let (low, high) = (find(&|id| id == low_range), find(&|id| id == high_range));
    let later = find(&|id| id != low_range && id != high_range);
    for n in [high, low, low + 7, later] {
        create(&engine, &container, n, r#""v":1"#).await;
    }
    let text = "SELECT VALUE c.id FROM c";
    let first = page(&engine, text, 2, None);
    engine.split(&container, container.ranges[0].id).await.unwrap();
    let mut found = rows(&first);
    found.extend(rest(&engine, text, 1, first.continuation).0);
    let expected: Vec<Value> = [high, low, low + 7, later].iter().map(|n| n.to_string().into()).collect();
    assert_eq!(found, expected);
}

/// Twenty long strings that begin alike, so that the beginning of a string does not tell them apart, and
/// ten shorter ones, which sort before them. Returns the ids of the documents.
async fn fill_long(engine: &Engine, container: &Arc<Container>) -> Vec<String> {
    for n in 0..30 {
        let text =
            format!("{}{:02}{}", "x".repeat(if n % 3 == 0 { 50 } else { 20_000 }), n / 2, "y".repeat(300));
        create(engine, container, n, &format!(r#""s":"{text}","tags":[1,2]"#)).await;
    }
    (0..30).map(|n| n.to_string()).collect()
}

/// The most bytes of a token: the smallest limit that a client can set.
const TOKEN_BYTES_MAX: usize = 1024;

#[tokio::test]
async fn an_order_by_token_stays_short_and_continues_however_long_the_strings_are() {
    for (text, copies) in [
        ("SELECT VALUE c.id FROM c ORDER BY c.s", 1),
        ("SELECT VALUE c.id FROM c ORDER BY c.s DESC", 1),
        ("SELECT VALUE c.id FROM c JOIN t IN c.tags ORDER BY c.s", 2),
        ("SELECT DISTINCT c.id, c.s FROM c ORDER BY c.s", 1),
        ("SELECT c.id, c.s FROM c GROUP BY c.id, c.s", 1),
    ] {
        for page_rows in [1, 7] {
            let (engine, container) = engine(2).await;
            let ids = fill_long(&engine, &container).await;
            let first = page(&engine, text, page_rows, None);
            let mut found = rows(&first);
            // The document of the last returned row is deleted before the next page is read, unless the
            // document has a second row.
            let last = found.last().unwrap();
            let last: usize = last.get("id").unwrap_or(last).as_str().unwrap().parse().unwrap();
            if copies == 1 {
                delete(&engine, &container, last).await;
            }
            let (others, longest) = rest(&engine, text, page_rows, first.continuation);
            found.extend(others);
            let mut found: Vec<String> =
                found.iter().map(|row| row.get("id").unwrap_or(row).as_str().unwrap().to_owned()).collect();
            found.sort_by_key(|id| id.parse::<usize>().unwrap());
            let expected: Vec<String> =
                ids.iter().flat_map(|id| std::iter::repeat_n(id.clone(), copies)).collect();
            assert_eq!(found, expected, "{text}, pages of {page_rows}");
            assert!(longest <= TOKEN_BYTES_MAX, "{text}: a token of {longest} bytes");
        }
    }
}

/// The keys of these documents in the index are equal, because a key holds 1,024 bytes of a string.
#[tokio::test]
async fn strings_that_differ_after_the_end_of_their_index_keys_are_returned_in_order() {
    let (engine, container) = engine(1).await;
    for (n, end) in ["b", "c", "d", "a", "h", "e", "f", "g"].into_iter().enumerate() {
        create(&engine, &container, n, &format!(r#""s":"{}{end}","end":"{end}""#, "x".repeat(1024))).await;
    }
    let column = Column { path: vec!["s".to_owned()], is_descending: false };
    let shape = IndexShape { scope: IndexScope::Segment, columns: vec![column] };
    engine.build_index(&container, shape).await.unwrap();
    for (direction, expected) in [("ASC", "abcdefgh"), ("DESC", "hgfedcba")] {
        let text = format!("SELECT VALUE c[\"end\"] FROM c ORDER BY c.s {direction}");
        let (mut found, mut token) = (String::new(), None);
        for _ in 0..8 {
            let page = page(&engine, &text, 1, token);
            assert!(page.used_index, "{direction}");
            found.extend(rows(&page).iter().map(|row| row.as_str().unwrap()));
            token = page.continuation;
        }
        assert_eq!((found.as_str(), token), (expected, None), "{direction}");
    }
}

/// All rows of a query, and the number of its pages.
fn all_rows(engine: &Engine, text: &str, rows_max: usize) -> (Vec<Value>, usize) {
    let (mut all, mut token, mut pages) = (Vec::new(), None, 0);
    loop {
        let page = page(engine, text, rows_max, token);
        all.extend(rows(&page));
        pages += 1;
        match page.continuation {
            Some(next) => {
                assert!(next.len() <= TOKEN_BYTES_MAX, "{next}");
                token = Some(next);
            }
            None => return (all, pages),
        }
        assert!(pages < 10_000, "{text} does not end");
    }
}

/// Story of a bug: the rows of one document were all made before the first one was returned, and
/// a document whose rows were too many or too large was refused.
#[tokio::test]
async fn a_join_over_one_large_document_is_paged() {
    let (engine, container) = engine(1).await;
    let numbers: Vec<String> = (0..1000).map(|n| n.to_string()).collect();
    let large = format!(r#""pad":"{}","items":[{}]"#, "x".repeat(100_000), numbers.join(","));
    create(&engine, &container, 0, r#""items":[-2,-1]"#).await;
    create(&engine, &container, 1, &large).await;
    create(&engine, &container, 2, r#""items":[1000]"#).await;
    // A thousand copies of the long string are more than one evaluation may make.
    let text = "SELECT c.pad, x AS v FROM c JOIN x IN c.items";
    let (all, pages) = all_rows(&engine, text, 1000);
    let values: Vec<i64> = all.iter().map(|row| row.get("v").unwrap().as_i64().unwrap()).collect();
    assert_eq!(values, (-2..=1000).collect::<Vec<i64>>());
    assert!(pages > 20, "{pages}");
    for order in ["ASC", "DESC"] {
        let ordered = format!("SELECT c.pad, x AS v FROM c JOIN x IN c.items ORDER BY c.id {order}");
        assert_eq!(all_rows(&engine, &ordered, 1000).0.len(), 1003);
    }
    assert_eq!(all_rows(&engine, "SELECT DISTINCT c.pad, x FROM c JOIN x IN c.items", 2000).0.len(), 1003);
}

#[tokio::test]
async fn a_join_without_a_matching_row_is_paged() {
    let (engine, container) = engine(1).await;
    let numbers: Vec<String> = (0..4000).map(|n| n.to_string()).collect();
    create(&engine, &container, 1, &format!(r#""items":[{}]"#, numbers.join(","))).await;
    // Only the last of 16 million pairs matches.
    let text = "SELECT VALUE [x, y] FROM c JOIN x IN c.items JOIN y IN c.items WHERE x + y = 7998";
    let first = page(&engine, text, 10, None);
    assert_eq!((first.rows, first.continuation.is_some()), (0, true));
    let (all, pages) = all_rows(&engine, text, 10);
    assert_eq!(sorted(all), ["[3999,3999]"]);
    assert!(pages > 1, "{pages}");
}

#[tokio::test]
async fn a_page_that_ends_within_a_document_continues_after_a_split() {
    let (engine, container) = engine(1).await;
    for n in 0..7 {
        create(&engine, &container, n, r#""items":[0,1,2,3,4,5,6]"#).await;
    }
    let text = "SELECT c.id, x, y FROM c JOIN x IN c.items JOIN y IN c.items WHERE x != y";
    let whole = sorted(rows(&page(&engine, text, 10_000, None)));
    assert_eq!(whole.len(), 7 * 42);
    let first = page(&engine, text, 100, None);
    let mut found = rows(&first);
    engine.split(&container, container.ranges[0].id).await.unwrap();
    found.extend(rest(&engine, text, 5, first.continuation).0);
    assert_eq!(sorted(found), whole);
}

/// Story of a bug: each page of DISTINCT and GROUP BY read all documents again.
#[tokio::test]
async fn a_later_page_of_distinct_or_group_by_reads_only_the_documents_of_its_rows() {
    const DOCUMENTS: usize = 600;
    for partitions in [1, 3] {
        let (engine, container) = engine(partitions).await;
        // A hundred values of all types, six documents each. The long strings differ at their ends.
        let long = "x".repeat(2000);
        for n in 0..DOCUMENTS {
            let value = match n % 100 {
                0 => r#""w":0"#.to_owned(),
                1 => r#""v":null"#.to_owned(),
                2 => r#""v":true"#.to_owned(),
                m @ 3..60 => format!(r#""v":{}.5"#, m as i64 - 30),
                m @ 60..80 => format!(r#""v":"text {m}""#),
                m @ 80..83 => format!(r#""v":"{long}{m}""#),
                m @ 83..86 => format!(r#""v":[{m}]"#),
                m @ 86..89 => format!(r#""v":{{"m":{m}}}"#),
                m => format!(r#""v":{m}"#),
            };
            create(&engine, &container, n, &value).await;
        }
        for text in [
            "SELECT DISTINCT VALUE c.v FROM c",
            "SELECT DISTINCT c.v FROM c",
            "SELECT c.v, COUNT(1) AS n FROM c GROUP BY c.v",
        ] {
            let first = page(&engine, text, 5, None);
            assert_eq!(first.work.documents, DOCUMENTS as u64, "{text}");
            let scan = all(&engine, text, 1000);
            assert!(scan.len() >= 99, "{text}: {}", scan.len());
            // The first page asked for the missing index, unless an earlier statement did.
            engine.maintain().await.unwrap();
            let (mut found, mut token, mut pages) = (rows(&first), first.continuation, 1);
            while let Some(continuation) = token {
                let next = page(&engine, text, 5, Some(continuation));
                // The long strings, the arrays and the objects are three kinds of values. All eighteen
                // documents of a kind have the same index key, so a page may read all of them. Besides,
                // it reads the six documents of each of six values (its five rows and the next row), and
                // a few more documents in each range.
                let most = 3 * 18 + 6 * 6 + 10 * u64::from(partitions);
                assert!(next.work.documents <= most, "{text}: {} documents", next.work.documents);
                found.extend(rows(&next));
                (token, pages) = (next.continuation, pages + 1);
            }
            assert!(pages >= 20, "{text}: {pages} pages");
            assert_eq!(sorted(found), sorted(scan), "{text}");
        }
    }
}
