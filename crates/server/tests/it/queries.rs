//! Tests of queries: order, paging, indexes, subqueries, the size of pages, the form of
//! numbers, and query plans.

use perihelion_model::json::Value;
use perihelion_server::ServerOptions;

use crate::world::{PLAIN_CONTAINER, World, batch, documents, json, query};

/// A server with `count` documents in the partition `a`. `document` prints one of them.
async fn with_documents(container: &str, count: usize, document: impl Fn(usize) -> String) -> World {
    let options = ServerOptions { management: true, ..Default::default() };
    let world = World::with_options(options, container).await;
    for start in (0..count).step_by(100) {
        let operations: Vec<String> = (start..count.min(start + 100))
            .map(|n| format!(r#"{{"operationType":"Create","resourceBody":{}}}"#, document(n)))
            .collect();
        let call = batch(r#"["a"]"#, &format!("[{}]", operations.join(",")))
            .header("x-ms-cosmos-batch-atomic", "True");
        let done = world.send(call).await;
        assert_eq!(done.status, 200, "{}", done.text());
    }
    world
}

#[tokio::test]
async fn order_by_sorts_by_type_and_then_by_value() {
    let values = [r#""b""#, "null", "2", "true", r#"{"x":1}"#, "false", r#""a""#, "[1]", "-1.5", "1"];
    let world = with_documents(PLAIN_CONTAINER, values.len() + 1, |n| match values.get(n) {
        Some(value) => format!(r#"{{"id":"{n}","pk":"a","v":{value}}}"#),
        None => format!(r#"{{"id":"{n}","pk":"a"}}"#),
    })
    .await;
    let ordered = world.query("SELECT VALUE c.v FROM c ORDER BY c.v").await;
    let expected: Vec<Value> =
        ["null", "false", "true", "-1.5", "1", "2", r#""a""#, r#""b""#, "[1]", r#"{"x":1}"#]
            .map(json)
            .to_vec();
    assert_eq!(ordered, expected);
    // A document without the value comes before all others, so it is last in DESC.
    let ids = world.query("SELECT VALUE c.id FROM c ORDER BY c.v DESC").await;
    assert_eq!(ids.len(), values.len() + 1);
    assert_eq!(ids.last(), Some(&Value::from(values.len().to_string().as_str())));
    world.stop().await;
}

/// Reads every page of a query over one partition. Returns the rows and the number
/// of documents that were read.
async fn read_all_pages(world: &World, text: &str, page_rows: usize) -> (Vec<Value>, u64) {
    read_all_pages_in(world, text, page_rows, ("x-ms-documentdb-partitionkey", r#"["a"]"#)).await
}

/// Reads every page of a query in a scope, which is one header. Returns the rows and
/// the number of documents that were read.
async fn read_all_pages_in(
    world: &World,
    text: &str,
    page_rows: usize,
    scope: (&'static str, &'static str),
) -> (Vec<Value>, u64) {
    let (mut rows, mut documents_read, mut continuation) = (Vec::new(), 0, None::<String>);
    loop {
        let mut call = query(text)
            .header(scope.0, scope.1)
            .header("x-ms-documentdb-populatequerymetrics", "True")
            .header("x-ms-max-item-count", page_rows.to_string());
        if let Some(token) = &continuation {
            call = call.header("x-ms-continuation", token);
        }
        let answer = world.send(call).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        rows.extend(documents(&answer));
        let metrics = answer.header("x-ms-documentdb-query-metrics").unwrap().to_owned();
        let retrieved =
            metrics.split(';').find_map(|part| part.strip_prefix("retrievedDocumentCount=")).unwrap();
        documents_read += retrieved.parse::<u64>().unwrap();
        continuation = answer.header("x-ms-continuation").map(str::to_owned);
        if continuation.is_none() {
            return (rows, documents_read);
        }
    }
}

#[tokio::test]
async fn an_ordered_poll_reads_only_what_it_returns_once_it_is_indexed() {
    let world = with_documents(PLAIN_CONTAINER, 3000, |n| {
        format!(r#"{{"id":"{n}","pk":"a","type":"t{}","visibleAt":{}}}"#, n % 3, (n * 7919) % 3000)
    })
    .await;
    for text in [
        "SELECT VALUE c.visibleAt FROM c WHERE c.type = 't1' AND c.visibleAt <= 60 ORDER BY c.visibleAt",
        "SELECT VALUE c.visibleAt FROM c WHERE c.type = 't1' AND c.visibleAt <= 60 ORDER BY c.visibleAt DESC",
    ] {
        let (first, scanned) = read_all_pages(&world, text, 1000).await;
        world.manage("POST", "maintain", "").await;
        let (again, documents_read) = read_all_pages(&world, text, 4).await;
        assert_eq!(first, again, "{text}");
        let mut sorted: Vec<i64> = first.iter().map(|value| value.as_i64().unwrap()).collect();
        // The first query scans all 3000 documents. The second query may use the index of the
        // first, and then it reads fewer than 100 documents.
        assert!(sorted.len() > 10 && !(100..3000).contains(&scanned));
        let returned = sorted.clone();
        sorted.sort_unstable();
        if text.ends_with("DESC") {
            sorted.reverse();
        }
        assert_eq!(returned, sorted);
        // Each page reads one row ahead, and may read the last row of the page before.
        assert!(
            documents_read <= 2 * again.len() as u64 + 4,
            "{documents_read} documents for {} rows",
            again.len()
        );
    }
    world.stop().await;
}

#[tokio::test]
async fn filters_without_order_use_an_index_too_and_keep_the_order_of_creation() {
    let world = with_documents(PLAIN_CONTAINER, 2000, |n| {
        format!(r#"{{"id":"{n}","pk":"a","kind":"k{}","size":{}}}"#, n % 100, n % 500)
    })
    .await;
    for text in
        ["SELECT VALUE c.id FROM c WHERE c.kind = 'k7'", "SELECT VALUE c.id FROM c WHERE c.size > 497"]
    {
        let (first, _) = read_all_pages(&world, text, 1000).await;
        world.manage("POST", "maintain", "").await;
        let (again, documents_read) = read_all_pages(&world, text, 1000).await;
        assert_eq!(first, again, "{text}");
        assert_eq!(documents_read, again.len() as u64, "{text}");
    }
    world.stop().await;
}

/// The poll that the published provider `duroxide-cdb` sends: an equality, a long IN list and an upper
/// bound.
#[tokio::test]
async fn an_indexed_poll_by_slots_reads_only_what_it_returns() {
    let world = with_documents(PLAIN_CONTAINER, 3000, |n| {
        let (slot, due) = (n % 256, (n * 7919) % 3000);
        format!(r#"{{"id":"{n}","pk":"a","type":"t{}","dispatchSlot":{slot},"visibleAt":{due}}}"#, n % 3)
    })
    .await;
    let slots: Vec<String> = (0..256).filter(|slot| slot % 3 == 0).map(|slot| slot.to_string()).collect();
    // A repeated value counts once, and 9.0 equals 9.
    let slots = format!("{},3,9.0", slots.join(","));
    let poll = format!(
        "SELECT VALUE c.id FROM c WHERE c.type = 't1' AND c.dispatchSlot IN ({slots}) AND c.visibleAt <= 900"
    );
    let by_type = "SELECT VALUE c.id FROM c WHERE c.type IN ('t0', 't2') AND c.visibleAt < 40";
    let unbounded = "SELECT VALUE c.id FROM c WHERE c.dispatchSlot IN (7, 5, 255)";
    for scope in
        [("x-ms-documentdb-partitionkey", r#"["a"]"#), ("x-ms-documentdb-query-enablecrosspartition", "True")]
    {
        for text in [poll.as_str(), by_type, unbounded] {
            let (first, _) = read_all_pages_in(&world, text, 1000, scope).await;
            assert!(first.len() > 10, "{text}");
            // The second run may use the index of another query and ask for an index of its
            // own.
            world.manage("POST", "maintain", "").await;
            read_all_pages_in(&world, text, 1000, scope).await;
            world.manage("POST", "maintain", "").await;
            let (again, documents_read) = read_all_pages_in(&world, text, 1000, scope).await;
            assert_eq!(first, again, "{text}");
            assert_eq!(documents_read, again.len() as u64, "{text}");
            // Small pages read one row ahead, and the last row of the page before.
            let (paged, documents_read) = read_all_pages_in(&world, text, 7, scope).await;
            assert_eq!(paged, first, "{text}");
            assert!(documents_read <= paged.len() as u64 * 9 / 7 + 2, "{documents_read} for {}", paged.len());
        }
    }
    // ORDER BY returns the same rows, sorted.
    let ordered = format!("{poll} ORDER BY c.visibleAt");
    let (rows, _) = read_all_pages(&world, &ordered, 20).await;
    let due = |id: &Value| (id.as_str().unwrap().parse::<usize>().unwrap() * 7919) % 3000;
    assert!(rows.is_sorted_by_key(due) && rows.len() == read_all_pages(&world, &poll, 1000).await.0.len());
    world.stop().await;
}

#[tokio::test]
async fn an_index_follows_every_change() {
    let world = with_documents(PLAIN_CONTAINER, 600, |n| format!(r#"{{"id":"{n}","pk":"a","n":{n}}}"#)).await;
    let text = "SELECT VALUE c.id FROM c WHERE c.n < 3 ORDER BY c.n";
    read_all_pages(&world, text, 100).await;
    world.manage("POST", "maintain", "").await;
    let edits = r#"[{"operationType":"Delete","id":"0"},
      {"operationType":"Patch","id":"1","resourceBody":{"operations":[{"op":"set","path":"/n","value":900}]}},
      {"operationType":"Replace","id":"500","resourceBody":{"id":"500","pk":"a","n":1.5}},
      {"operationType":"Create","resourceBody":{"id":"new","pk":"a","n":-1}}]"#;
    let done = world.send(batch(r#"["a"]"#, edits).header("x-ms-cosmos-batch-atomic", "True")).await;
    assert_eq!(done.status, 200, "{}", done.text());
    let (rows, documents_read) = read_all_pages(&world, text, 100).await;
    assert_eq!(rows, ["new", "500", "2"].map(Value::from));
    assert_eq!(documents_read, 3);
    world.stop().await;
}

#[tokio::test]
async fn a_page_of_a_join_may_end_within_a_document() {
    let world =
        with_documents(PLAIN_CONTAINER, 5, |n| format!(r#"{{"id":"{n}","pk":"a","tags":[0,1,2,3,4,5,6]}}"#))
            .await;
    let (rows, _) = read_all_pages(&world, "SELECT VALUE t FROM c JOIN t IN c.tags", 3).await;
    let expected: Vec<Value> = (0..5).flat_map(|_| (0..7i64).map(Value::from)).collect();
    assert_eq!(rows, expected);
    world.stop().await;
}

#[tokio::test]
async fn top_and_offset_count_across_pages() {
    let world =
        with_documents(PLAIN_CONTAINER, 50, |n| format!(r#"{{"id":"{n}","pk":"a","n":{n},"g":{}}}"#, n % 5))
            .await;
    let numbers = |range: std::ops::Range<i64>| range.map(Value::from).collect::<Vec<_>>();
    assert_eq!(read_all_pages(&world, "SELECT TOP 12 VALUE c.n FROM c", 5).await.0, numbers(0..12));
    assert_eq!(
        read_all_pages(&world, "SELECT VALUE c.n FROM c OFFSET 7 LIMIT 11", 4).await.0,
        numbers(7..18)
    );
    assert_eq!(
        read_all_pages(&world, "SELECT VALUE c.n FROM c ORDER BY c.n OFFSET 40 LIMIT 100", 4).await.0,
        numbers(40..50)
    );
    assert_eq!(read_all_pages(&world, "SELECT DISTINCT VALUE c.g FROM c", 2).await.0, numbers(0..5));
    assert_eq!(
        read_all_pages(&world, "SELECT DISTINCT VALUE c.g FROM c ORDER BY c.g DESC", 2).await.0,
        [4i64, 3, 2, 1, 0].map(Value::from)
    );
    let (groups, _) =
        read_all_pages(&world, "SELECT c.g, COUNT(1) AS k, MAX(c.n) AS m FROM c GROUP BY c.g", 2).await;
    assert_eq!(groups.len(), 5);
    assert_eq!(groups[1], json(r#"{"g":1,"k":10,"m":46}"#));
    world.stop().await;
}

#[tokio::test]
async fn a_subquery_over_all_documents_is_evaluated_before_the_outer_query() {
    let world =
        with_documents(PLAIN_CONTAINER, 600, |n| format!(r#"{{"id":"{n}","pk":"a","n":{n},"g":{}}}"#, n % 3))
            .await;
    let numbers = |range: std::ops::Range<i64>| range.map(Value::from).collect::<Vec<_>>();
    let (count, documents_read) =
        read_all_pages(&world, "SELECT VALUE COUNT(1) FROM (SELECT DISTINCT VALUE c.g FROM c)", 10).await;
    assert_eq!((count, documents_read), (vec![Value::from(3i64)], 600));
    // Pages divide the outer result.
    let groups =
        "SELECT g.g, g.k FROM (SELECT c.g, COUNT(1) AS k FROM c GROUP BY c.g) AS g ORDER BY g.g DESC";
    let expected: Vec<Value> = (0..3).rev().map(|g| json(&format!(r#"{{"g":{g},"k":200}}"#))).collect();
    assert_eq!(read_all_pages(&world, groups, 2).await.0, expected);
    // The windows (TOP, OFFSET, LIMIT) of nested subqueries are independent.
    let nested = "SELECT VALUE x FROM (SELECT TOP 7 VALUE y FROM \
                  (SELECT TOP 9 VALUE c.n FROM c ORDER BY c.n DESC) y ORDER BY y) x OFFSET 1 LIMIT 4";
    assert_eq!(read_all_pages(&world, nested, 3).await.0, numbers(592..596));
    // An inner window without ORDER BY ends the scan early. A filter uses its index.
    let (top, documents_read) =
        read_all_pages(&world, "SELECT VALUE MAX(x) FROM (SELECT TOP 5 VALUE c.n FROM c) x", 10).await;
    assert_eq!((top, documents_read), (vec![Value::from(4i64)], 5));
    let filtered =
        "SELECT VALUE COUNT(1) FROM (SELECT DISTINCT VALUE c.n FROM c WHERE c.g = 1) x WHERE x < 30";
    read_all_pages(&world, filtered, 10).await;
    world.manage("POST", "maintain", "").await;
    assert_eq!(read_all_pages(&world, filtered, 10).await, (vec![Value::from(10i64)], 200));
    world.stop().await;
}

/// A client can forge the numbers in a continuation token. The server must answer such a request with
/// a page or with 400.
#[tokio::test]
async fn a_continuation_with_the_greatest_numbers_is_answered() {
    let world = with_documents(PLAIN_CONTAINER, 3, |n| format!(r#"{{"id":"{n}","pk":"a","n":{n}}}"#)).await;
    let page = |token: Option<&str>| {
        let call = query("SELECT VALUE c.n FROM c ORDER BY c.n OFFSET 0 LIMIT 9")
            .header("x-ms-documentdb-partitionkey", r#"["a"]"#)
            .header("x-ms-max-item-count", "1");
        token.map_or(call.clone(), |token| call.header("x-ms-continuation", token))
    };
    let first = world.send(page(None)).await;
    let token = first.header("x-ms-continuation").expect("there are more rows").to_owned();
    // The rows still to skip (OFFSET) and to take (LIMIT), the pages and the rows so far.
    let number_names = ["SKP", "TAK", "RT", "TRC"];
    let names: Vec<_> = number_names.into_iter().filter(|name| token.contains(&format!("{name}:"))).collect();
    assert!(names.contains(&"SKP") && names.contains(&"TAK"), "{token}");
    for name in names {
        let (before, rest) = token.split_once(&format!("{name}:")).expect("the token has the name");
        let after = rest.trim_start_matches(|letter: char| letter.is_ascii_digit());
        let forged = format!("{before}{name}:{}{after}", u64::MAX);
        let answer = world.send(page(Some(&forged))).await;
        assert!([200, 400].contains(&answer.status), "{forged}: {}", answer.text());
    }
    world.stop().await;
}

/// The sizes of the bodies of a query's pages, in bytes.
async fn page_sizes(world: &World, text: &str) -> Vec<usize> {
    let (mut sizes, mut continuation) = (Vec::new(), None::<String>);
    loop {
        let mut call = query(text)
            .header("x-ms-documentdb-partitionkey", r#"["a"]"#)
            .header("x-ms-max-item-count", "-1");
        if let Some(token) = &continuation {
            call = call.header("x-ms-continuation", token);
        }
        let answer = world.send(call).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        sizes.push(answer.text().len());
        continuation = answer.header("x-ms-continuation").map(str::to_owned);
        if continuation.is_none() {
            return sizes;
        }
    }
}

#[tokio::test]
async fn a_page_ends_before_four_mebibytes() {
    const PAGE_BYTES: usize = 4 * 1024 * 1024;
    // The members of the body around the rows.
    const ENVELOPE_BYTES: usize = 200;
    let world = World::new(PLAIN_CONTAINER).await;
    // A control character is printed with six bytes. So a page size that is estimated from
    // the characters would be wrong.
    let (plain, escaped) = ("x".repeat(1_000_000), "\\u0001".repeat(150_000));
    for n in 0..9 {
        let body = format!(r#"{{"id":"{n}","pk":"a","s":"{}"}}"#, if n < 5 { &plain } else { &escaped });
        assert_eq!(world.create(r#"["a"]"#, &body).await.status, 201);
    }
    for text in ["SELECT * FROM c", "SELECT c.s FROM c", "SELECT c.s, c.id FROM c ORDER BY c.id"] {
        let sizes = page_sizes(&world, text).await;
        assert!(sizes.iter().all(|size| *size < PAGE_BYTES + ENVELOPE_BYTES), "{text}: {sizes:?}");
        assert_eq!(sizes.len(), 3, "{text}: {sizes:?}");
    }
    // A single row that exceeds the limit gets a page of its own.
    let sizes = page_sizes(&world, "SELECT VALUE [c.s, c.s, c.s, c.s, c.s] FROM c WHERE c.id < '3'").await;
    assert!(sizes.len() == 3 && sizes.iter().all(|size| *size > 5_000_000), "{sizes:?}");
    world.stop().await;
}

#[tokio::test]
async fn a_query_prints_the_numbers_of_whole_documents_in_the_form_of_queries() {
    let world = World::new(PLAIN_CONTAINER).await;
    for (id, in_point_read, in_query) in [
        ("a", "1e+019", "1e+19"),
        ("b", "[1,2.5e-007]", "[1,2.5e-07]"),
        ("c", "18446744073709551615", "1.8446744073709552e+19"),
        ("d", "9223372036854775807", "9223372036854775807"),
        ("e", "[0.1,1e+300,\"1e+019\"]", "[0.1,1e+300,\"1e+019\"]"),
    ] {
        let body = format!(r#"{{"id":"{id}","pk":"a","n":{in_point_read}}}"#);
        assert_eq!(world.create(r#"["a"]"#, &body).await.status, 201);
        let read = world.read(r#"["a"]"#, id).await;
        assert!(read.text().contains(&format!(r#""n":{in_point_read},"#)), "{}", read.text());
        for text in [format!("SELECT * FROM c WHERE c.id = '{id}'"), "SELECT * FROM c".to_owned()] {
            let call = query(&text).header("x-ms-documentdb-partitionkey", r#"["a"]"#);
            let page = world.send(call).await;
            assert!(page.text().contains(&format!(r#""n":{in_query},"#)), "{text}: {}", page.text());
        }
        // The other members are the same, such as the etag.
        let rows = world.query(&format!("SELECT * FROM c WHERE c.id = '{id}'")).await;
        assert_eq!(rows[0].get("_etag"), read.json().unwrap().get("_etag"));
    }
    world.stop().await;
}

#[tokio::test]
async fn a_plan_names_the_partition_keys_that_a_filter_allows() {
    let world = World::new(PLAIN_CONTAINER).await;
    let ranges = |text: &'static str| {
        let call = query(text).header("x-ms-cosmos-is-query-plan-request", "True");
        let features = "OrderBy, Aggregate, Top, Distinct";
        let answer = world.send(call.header("x-ms-cosmos-supported-query-features", features));
        async move { answer.await.json().unwrap().get("queryRanges").unwrap().clone() }
    };
    let point =
        |key: &str| format!(r#"{{"min":"{key}","max":"{key}","isMinInclusive":true,"isMaxInclusive":true}}"#);
    let one = ranges("SELECT * FROM c WHERE c.pk = 'A' ORDER BY c.n").await;
    assert_eq!(one, json(&format!("[{}]", point("14F53A0810CE6727EB1CD722D321216F"))));
    let two = ranges("SELECT * FROM c WHERE c.pk IN ('', 'A')").await;
    let points = [point("14F53A0810CE6727EB1CD722D321216F"), point("32E9366E637A71B4E710384B2F4970A0")];
    assert_eq!(two, json(&format!("[{}]", points.join(","))));
    let all = r#"[{"min":"","max":"FF","isMinInclusive":true,"isMaxInclusive":false}]"#;
    assert_eq!(ranges("SELECT * FROM c WHERE c.n = 1").await, json(all));
    world.stop().await;
}
