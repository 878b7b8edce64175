//! Tests of physical partitions: ranges, splits, sessions, hierarchical keys,
//! throttling.

use perihelion_model::json::Value;
use perihelion_server::ServerOptions;
use perihelion_testkit::http_client::{HttpRequest, HttpResponse};

use crate::world::{PLAIN_CONTAINER, World, docs, documents, ids, json, query, text};

/// The ranges in an answer.
fn ranges_in(response: &HttpResponse) -> Vec<Value> {
    let body = response.json().unwrap();
    body.get("PartitionKeyRanges").and_then(Value::as_array).unwrap().to_vec()
}

fn ranges_request() -> HttpRequest {
    HttpRequest::new("GET", "/dbs/d/colls/c/pkranges").header("a-im", "Incremental Feed")
}

/// A server with forty documents, each with a partition key of its own.
async fn with_forty_documents(partitions: u32) -> World {
    let mut options = ServerOptions::default();
    options.account.partitions = partitions;
    options.management = true;
    let world = World::with_options(options, PLAIN_CONTAINER).await;
    for n in 0..40 {
        let created =
            world.create(&format!(r#"["k{n}"]"#), &format!(r#"{{"id":"{n}","pk":"k{n}","n":{n}}}"#)).await;
        assert_eq!(created.status, 201);
    }
    world
}

#[tokio::test]
async fn ranges_cover_all_keys_and_are_unchanged_until_a_split() {
    let world = with_forty_documents(4).await;
    let answer = world.send(ranges_request()).await;
    let ranges = ranges_in(&answer);
    assert_eq!(ranges.len(), 4);
    assert_eq!(
        (text(&ranges[0], "minInclusive"), text(&ranges[3], "maxExclusive")),
        (String::new(), "FF".to_owned())
    );
    assert!(ranges.windows(2).all(|pair| text(&pair[0], "maxExclusive") == text(&pair[1], "minInclusive")));
    let again = world.send(ranges_request().header("if-none-match", answer.header("etag").unwrap())).await;
    assert_eq!((again.status, again.body.len()), (304, 0));
    world.stop().await;
}

/// One range takes up to 10,000 RU/s. A new container with a higher throughput has one range per
/// 6,000 RU/s, rounded up.
#[tokio::test]
async fn a_container_with_high_throughput_starts_with_several_ranges() {
    let world = World::new(PLAIN_CONTAINER).await;
    for (name, header, value, expected) in [
        ("m", "x-ms-offer-throughput", "10000", 1),
        ("n", "x-ms-offer-throughput", "11000", 2),
        ("a", "x-ms-cosmos-offer-autopilot-settings", r#"{"maxThroughput":25000}"#, 5),
    ] {
        let body = json(&PLAIN_CONTAINER.replace(r#""id":"c""#, &format!(r#""id":"{name}""#)));
        let created =
            world.send(HttpRequest::new("POST", "/dbs/d/colls").json(&body).header(header, value)).await;
        assert_eq!(created.status, 201, "{}", created.text());
        let ranges =
            ranges_in(&world.send(HttpRequest::new("GET", format!("/dbs/d/colls/{name}/pkranges"))).await);
        assert_eq!(ranges.len(), expected, "{value}");
    }
    world.stop().await;
}

#[tokio::test]
async fn a_query_over_all_ranges_is_ordered_paged_and_counted_as_over_one_range() {
    let world = with_forty_documents(4).await;
    let expected: Vec<Value> = (0..40i64).rev().map(Value::from).collect();
    let (mut seen, mut continuation) = (Vec::new(), None::<String>);
    loop {
        let mut call = query("SELECT VALUE c.n FROM c ORDER BY c.n DESC")
            .header("x-ms-documentdb-query-enablecrosspartition", "True")
            .header("x-ms-max-item-count", "7");
        if let Some(token) = &continuation {
            call = call.header("x-ms-continuation", token);
        }
        let page = world.send(call).await;
        assert_eq!(page.status, 200, "{}", page.text());
        seen.extend(documents(&page));
        continuation = page.header("x-ms-continuation").map(str::to_owned);
        if continuation.is_none() {
            break;
        }
    }
    assert_eq!(seen, expected);
    assert_eq!(world.query("SELECT VALUE COUNT(1) FROM c").await, [Value::from(40i64)]);
    assert_eq!(world.query("SELECT VALUE SUM(c.n) FROM c").await, [Value::from(780i64)]);
    assert_eq!(
        world.query("SELECT TOP 3 VALUE c.n FROM c ORDER BY c.n").await,
        [0i64, 1, 2].map(Value::from)
    );
    assert_eq!(
        world.query("SELECT VALUE c.n FROM c ORDER BY c.n OFFSET 10 LIMIT 2").await,
        [10i64, 11].map(Value::from)
    );
    world.stop().await;
}

#[tokio::test]
async fn a_split_keeps_every_document_and_retires_the_parent() {
    let world = with_forty_documents(1).await;
    let before = world.send(ranges_request()).await;
    let feed = |range: &str| {
        docs("GET", "", "")
            .header("a-im", "Incremental Feed")
            .header("x-ms-documentdb-partitionkeyrangeid", range)
    };
    let first_page = world.send(feed("0").header("x-ms-max-item-count", "20")).await;
    let seen_before: Vec<String> = ids(&documents(&first_page));

    let split = world.manage("POST", "split", r#"{"database":"d","container":"c","range":"0"}"#).await;
    assert_eq!(split.text(), r#"{"children":["1","2"]}"#);
    let after = world.send(ranges_request().header("if-none-match", before.header("etag").unwrap())).await;
    assert_eq!(after.status, 200);
    let ranges = ranges_in(&after);
    assert_eq!(ranges.iter().map(|range| text(range, "id")).collect::<Vec<_>>(), ["1", "2"]);
    assert!(ranges.iter().all(|range| range.get("parents") == Some(&json(r#"["0"]"#))));

    // The parent no longer exists. Its keys and continuations are valid in the children.
    let gone = world.send(query("SELECT * FROM c").header("x-ms-documentdb-partitionkeyrangeid", "0")).await;
    assert_eq!((gone.status, gone.header("x-ms-substatus")), (410, Some("1002")));
    assert_eq!(world.query("SELECT VALUE COUNT(1) FROM c").await, [Value::from(40i64)]);
    for n in 0..40 {
        assert_eq!(world.read(&format!(r#"["k{n}"]"#), &n.to_string()).await.status, 200);
    }
    let mut rest = Vec::new();
    for child in ["1", "2"] {
        let page = world.send(feed(child).header("if-none-match", first_page.header("etag").unwrap())).await;
        rest.extend(ids(&documents(&page)));
    }
    let mut all: Vec<String> = seen_before.into_iter().chain(rest).collect();
    all.sort_by_key(|id| id.parse::<u32>().unwrap());
    assert_eq!(all, (0..40).map(|n| n.to_string()).collect::<Vec<_>>());
    assert_eq!(world.create(r#"["k0"]"#, r#"{"id":"new","pk":"k0"}"#).await.status, 201);
    world.stop().await;
}

/// The interval `[x, x)` at the boundary `x` between two ranges has no keys, so it
/// overlaps neither range.
#[tokio::test]
async fn a_query_over_an_empty_interval_of_keys_is_compiled_and_returns_no_rows() {
    let world = with_forty_documents(4).await;
    let boundary = text(&ranges_in(&world.send(ranges_request()).await)[1], "minInclusive");
    let over_nothing = |call: HttpRequest| {
        call.header("x-ms-start-epk", boundary.as_str()).header("x-ms-end-epk", boundary.as_str())
    };
    let everything = query("SELECT * FROM c").header("x-ms-end-epk", "FF");
    assert_eq!(documents(&world.send(everything).await).len(), 40);
    for call in [query("SELECT * FROM c"), query("SELECT * FROM c ORDER BY c.n"), docs("GET", "", "")] {
        let answer = world.send(over_nothing(call)).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert!(documents(&answer).is_empty(), "{}", answer.text());
        assert_eq!(answer.header("x-ms-continuation"), None);
    }
    let count = world.send(over_nothing(query("SELECT VALUE COUNT(1) FROM c"))).await;
    assert_eq!(documents(&count), [Value::from(0i64)]);
    let feed = || docs("GET", "", "").header("a-im", "Incremental feed");
    let changes = world.send(over_nothing(feed())).await;
    assert_eq!((changes.status, changes.body.len()), (304, 0), "{}", changes.text());
    let etag = changes.header("etag").unwrap();
    let later = world.send(over_nothing(feed()).header("if-none-match", etag)).await;
    assert_eq!(later.status, 304, "{}", later.text());
    let reversed = feed().header("x-ms-start-epk", "FF").header("x-ms-end-epk", "");
    assert_eq!(world.send(reversed).await.status, 304);
    let unknown_function = world.send(over_nothing(query("SELECT VALUE NOPE(c.n) FROM c"))).await;
    assert_eq!(unknown_function.status, 400, "{}", unknown_function.text());
    world.stop().await;
}

/// The values that a query returns page by page, with a split of range 0 after the
/// first page.
async fn query_across_a_split(world: &World, text: &str, headers: &[(&str, &str)]) -> Vec<i64> {
    let (mut seen, mut continuation) = (Vec::new(), None::<String>);
    loop {
        let mut call = query(text).header("x-ms-max-item-count", "3");
        for (name, value) in headers {
            call = call.header(name, *value);
        }
        if let Some(token) = &continuation {
            call = call.header("x-ms-continuation", token);
        }
        let page = world.send(call).await;
        assert_eq!(page.status, 200, "{}", page.text());
        seen.extend(documents(&page).iter().map(|value| value.as_i64().unwrap()));
        if continuation.is_none() {
            world.manage("POST", "split", r#"{"database":"d","container":"c","range":"0"}"#).await;
        }
        continuation = page.header("x-ms-continuation").map(str::to_owned);
        if continuation.is_none() {
            return seen;
        }
    }
}

#[tokio::test]
async fn a_query_continues_after_a_split_where_it_stopped() {
    // In the third query all rows are equal, so that only their `_rid`s order them.
    let texts = [
        "SELECT VALUE c.n FROM c",
        "SELECT VALUE c.n FROM c ORDER BY c.n",
        "SELECT VALUE c.n FROM c ORDER BY c.none",
        "SELECT VALUE c.n FROM c ORDER BY c.n DESC",
    ];
    for (partitions, text) in [1, 4].into_iter().flat_map(|n| texts.map(|text| (n, text))) {
        let world = with_forty_documents(partitions).await;
        let mut seen =
            query_across_a_split(&world, text, &[("x-ms-documentdb-query-enablecrosspartition", "True")])
                .await;
        seen.sort_unstable();
        assert_eq!(seen, (0..40).collect::<Vec<_>>(), "{text} over {partitions}");
        world.stop().await;
    }
}

#[tokio::test]
async fn a_query_of_one_partition_does_not_notice_a_split() {
    for text in ["SELECT VALUE c.n FROM c", "SELECT VALUE c.n FROM c ORDER BY c.n"] {
        let options = ServerOptions { management: true, ..Default::default() };
        let world = World::with_options(options, PLAIN_CONTAINER).await;
        for n in 0..10 {
            world.create(r#"["a"]"#, &format!(r#"{{"id":"{n}","pk":"a","n":{n}}}"#)).await;
        }
        let seen = query_across_a_split(&world, text, &[("x-ms-documentdb-partitionkey", r#"["a"]"#)]).await;
        assert_eq!(seen, (0..10).collect::<Vec<_>>(), "{text}");
        world.stop().await;
    }
}

/// SDKs store the session token of an answer or a refusal under the container. With
/// the account's LSN as a token they could not read their data any more.
#[tokio::test]
async fn no_answer_about_a_container_has_a_session_token_ahead_of_its_data() {
    let options = ServerOptions { management: true, ..Default::default() };
    let world = World::with_options(options, PLAIN_CONTAINER).await;
    world.create(r#"["a"]"#, r#"{"id":"1","pk":"a"}"#).await;
    for n in 0..20 {
        let created =
            world.send(HttpRequest::new("POST", "/dbs").json(&json(&format!(r#"{{"id":"d{n}"}}"#)))).await;
        assert_eq!(created.status, 201);
    }
    world.manage("POST", "faults", r#"{"operation":"replace_item","status":503}"#).await;
    let item = || json(r#"{"id":"1","pk":"a"}"#);
    for call in [
        HttpRequest::new("GET", "/dbs/d/colls/c"),
        docs("PUT", "1", r#"["a"]"#).json(&item()),
        docs("POST", "", r#"["a"]"#).json(&item()),
        docs("GET", "missing", r#"["a"]"#),
    ] {
        let answer = world.send(call).await;
        let token = answer.header("x-ms-session-token").unwrap().to_owned();
        let read = docs("GET", "1", r#"["a"]"#).header("x-ms-session-token", &token);
        assert_eq!(world.send(read).await.status, 200, "{token} of an answer {}", answer.status);
    }
    world.stop().await;
}

#[tokio::test]
async fn a_read_with_a_session_token_ahead_of_the_data_is_refused() {
    let world = World::new(PLAIN_CONTAINER).await;
    let created = world.create(r#"["a"]"#, r#"{"id":"1","pk":"a"}"#).await;
    let token = created.header("x-ms-session-token").unwrap().to_owned();
    let read = |token: &str| docs("GET", "1", r#"["a"]"#).header("x-ms-session-token", token);
    assert_eq!(world.send(read(&token)).await.status, 200);
    let ahead = world.send(read("0:-1#999999")).await;
    assert_eq!((ahead.status, ahead.header("x-ms-substatus")), (404, Some("1002")));
    let queried = query("SELECT * FROM c").header("x-ms-documentdb-partitionkey", r#"["a"]"#);
    assert_eq!(world.send(queried.header("x-ms-session-token", "0:-1#999999")).await.status, 404);
    assert_eq!(world.send(read("nonsense")).await.status, 400);
    world.stop().await;
}

#[tokio::test]
async fn hierarchical_keys_are_read_whole_and_queried_by_prefix() {
    let container = r#"{"id":"c","partitionKey":{"paths":["/t","/u","/s"],"kind":"MultiHash","version":2}}"#;
    let mut options = ServerOptions::default();
    options.account.partitions = 4;
    let world = World::with_options(options, container).await;
    for (t, u, s) in [("a", "x", 1), ("a", "x", 2), ("a", "y", 1), ("b", "x", 1)] {
        let id = format!("{t}{u}{s}");
        let created = world
            .create(
                &format!(r#"["{t}","{u}",{s}]"#),
                &format!(r#"{{"id":"{id}","t":"{t}","u":"{u}","s":{s}}}"#),
            )
            .await;
        assert_eq!(created.status, 201, "{}", created.text());
    }
    assert_eq!(world.read(r#"["a","y",1]"#, "ay1").await.status, 200);
    let scoped = |key: &str| query("SELECT * FROM c").header("x-ms-documentdb-partitionkey", key);
    let count = |response: HttpResponse| documents(&response).len();
    assert_eq!(count(world.send(scoped(r#"["a"]"#)).await), 3);
    assert_eq!(count(world.send(scoped(r#"["a","x"]"#)).await), 2);
    assert_eq!(count(world.send(scoped(r#"["a","x",2]"#)).await), 1);
    assert_eq!(count(world.send(scoped(r#"["c"]"#)).await), 0);
    let short = world.create(r#"["a","x"]"#, r#"{"id":"z","t":"a","u":"x","s":1}"#).await;
    assert_eq!((short.status, short.header("x-ms-substatus")), (400, Some("1001")));
    world.stop().await;
}

#[tokio::test]
async fn requests_beyond_the_throughput_are_throttled() {
    let mut options = ServerOptions::default();
    options.account.throughput = Some(10);
    let world = World::with_options(options, PLAIN_CONTAINER).await;
    let mut throttled = None;
    for n in 0..60 {
        let created = world.create(r#"["a"]"#, &format!(r#"{{"id":"{n}","pk":"a"}}"#)).await;
        if created.status == 429 {
            throttled = Some(created);
            break;
        }
        assert_eq!(created.status, 201);
    }
    let refused = throttled.expect("60 creates cost more than 300 units; the container has 10 per second");
    assert_eq!(refused.header("x-ms-substatus"), Some("3200"));
    let wait_ms: u64 = refused.header("x-ms-retry-after-ms").unwrap().parse().unwrap();
    tokio::time::sleep(std::time::Duration::from_millis(wait_ms + 5)).await;
    assert_eq!(world.read(r#"["a"]"#, "0").await.status, 200);
    world.stop().await;
}

/// Story of a bug: reads that were refused cost nothing, so reads of missing documents were never
/// throttled.
#[tokio::test]
async fn reads_of_missing_documents_use_up_the_throughput() {
    let mut options = ServerOptions::default();
    options.account.throughput = Some(1);
    let world = World::with_options(options, PLAIN_CONTAINER).await;
    let container = world.send(HttpRequest::new("GET", "/dbs/d/colls/c")).await.json().unwrap();
    let path_of_rids = format!("/{}docs/AAAAAAAAAAAAAAAAAAAAAA==", text(&container, "_self"));
    for path in ["/dbs/d/colls/c/docs/missing", &path_of_rids] {
        let is_throttled = async {
            for _ in 0..60 {
                let read = HttpRequest::new("GET", path).header("x-ms-documentdb-partitionkey", r#"["a"]"#);
                let refused = world.send(read).await;
                if refused.status == 429 {
                    return true;
                }
                assert_eq!((refused.status, refused.header("x-ms-request-charge")), (404, Some("1")));
            }
            false
        };
        assert!(is_throttled.await, "60 reads of {path} cost 60 units; the container has 1 per second");
    }
    world.stop().await;
}
