//! Pages that end where the service's gateway ends them (the option `strict_gateway`), continuation
//! tokens of the real service, and ids with a question mark.

use std::time::SystemTime;

use perihelion_server::ServerOptions;
use perihelion_testkit::http_client::HttpRequest;
use perihelion_wire::date;
use perihelion_wire::signature::{MasterKey, SignedDate};

use crate::world::{PLAIN_CONTAINER, World, docs, documents, ids, query};

/// A server with four ranges and twelve documents, each with a partition key of its own.
async fn world(is_strict: bool) -> World {
    let mut options = ServerOptions::default();
    options.account.partitions = 4;
    options.account.strict_gateway = is_strict;
    let world = World::with_options(options, PLAIN_CONTAINER).await;
    for n in 0..12 {
        let created = world.create(&format!(r#"["k{n}"]"#), &format!(r#"{{"id":"{n}","pk":"k{n}"}}"#)).await;
        assert_eq!(created.status, 201);
    }
    world
}

fn cross_partition() -> HttpRequest {
    query("SELECT * FROM c").header("x-ms-documentdb-query-enablecrosspartition", "true")
}

/// The ids on each page of an answer. Reads at most 20 pages, so that an endless answer fails the test.
async fn pages(world: &World, call: impl Fn() -> HttpRequest) -> Vec<Vec<String>> {
    let (mut pages, mut continuation) = (Vec::new(), None::<String>);
    loop {
        let next = continuation.take();
        let call = next.into_iter().fold(call(), |call, token| call.header("x-ms-continuation", token));
        let page = world.send(call).await;
        assert_eq!(page.status, 200, "{}", page.text());
        pages.push(ids(&documents(&page)));
        match page.header("x-ms-continuation") {
            Some(token) if pages.len() < 20 => continuation = Some(token.to_owned()),
            _ => return pages,
        }
    }
}

#[tokio::test]
async fn the_strict_gateway_answers_one_range_with_each_page() {
    for is_feed in [false, true] {
        let call =
            || if is_feed { HttpRequest::new("GET", "/dbs/d/colls/c/docs") } else { cross_partition() };
        let strict = world(true).await;
        let by_range = pages(&strict, call).await;
        assert_eq!(by_range.len(), 4);
        for (range, page) in by_range.iter().enumerate() {
            let call = call().header("x-ms-documentdb-partitionkeyrangeid", range.to_string());
            assert_eq!(ids(&documents(&strict.send(call).await)), *page, "{range}");
        }
        let lenient = world(false).await;
        let at_once = pages(&lenient, call).await;
        assert_eq!(at_once, [by_range.concat()]);
        strict.stop().await;
        lenient.stop().await;
    }
}

/// The JavaScript SDK's suite counts three pages for four documents in pages of two.
#[tokio::test]
async fn a_full_last_page_of_the_strict_gateway_is_followed_by_an_empty_page() {
    for is_strict in [false, true] {
        let mut options = ServerOptions::default();
        options.account.strict_gateway = is_strict;
        let world = World::with_options(options, PLAIN_CONTAINER).await;
        for n in 0..4 {
            world.create(r#"["a"]"#, &format!(r#"{{"id":"{n}","pk":"a"}}"#)).await;
        }
        let sizes = |pages: Vec<Vec<String>>| pages.iter().map(Vec::len).collect::<Vec<_>>();
        for call in [
            cross_partition(),
            query("SELECT * FROM c").header("x-ms-documentdb-partitionkey", r#"["a"]"#),
            HttpRequest::new("GET", "/dbs/d/colls/c/docs"),
            docs("GET", "", r#"["a"]"#),
        ] {
            let twos = pages(&world, || call.clone().header("x-ms-max-item-count", "2")).await;
            assert_eq!(sizes(twos), if is_strict { vec![2, 2, 0] } else { vec![2, 2] });
            let threes = pages(&world, || call.clone().header("x-ms-max-item-count", "3")).await;
            assert_eq!(sizes(threes), [3, 1]);
        }
        let top = query("SELECT TOP 2 * FROM c").header("x-ms-documentdb-partitionkey", r#"["a"]"#);
        assert_eq!(sizes(pages(&world, || top.clone().header("x-ms-max-item-count", "2")).await), [2]);
        world.stop().await;
    }
}

/// The Python SDK's suite counts two answers for two ranges, of which the first has no rows.
#[tokio::test]
async fn the_strict_gateway_answers_a_range_without_rows_with_an_empty_page() {
    let world = world(true).await;
    let one = || {
        query("SELECT * FROM c WHERE c.id = '5'").header("x-ms-documentdb-query-enablecrosspartition", "true")
    };
    let found = pages(&world, one).await;
    assert_eq!((found.len(), found.concat()), (4, vec!["5".to_owned()]));
    world.stop().await;
}

#[tokio::test]
async fn small_pages_of_the_strict_gateway_have_every_row_once() {
    let world = world(true).await;
    let paged = pages(&world, || cross_partition().header("x-ms-max-item-count", "2")).await;
    let mut found = paged.concat();
    found.sort_by_key(|id| id.parse::<u32>().expect("a number"));
    assert_eq!(found, (0..12).map(|n| n.to_string()).collect::<Vec<_>>());
    assert!(paged.iter().all(|page| page.len() <= 2));
    world.stop().await;
}

/// Tokens of the service have the service's `_rid`s, which mean nothing in a container of this
/// server. So they are refused, and so is a token of this server that was changed.
#[tokio::test]
async fn continuation_tokens_of_the_service_are_refused() {
    let world = world(false).await;
    let own = world.send(cross_partition().header("x-ms-max-item-count", "1")).await;
    let own = own.header("x-ms-continuation").expect("a token").to_owned();
    for foreign in [
        "-RID:~a0NPAOszCpOChB4AAAAAAA==#RT:1#TRC:2#ISV:2#IEO:65567#QCF:8".to_owned(),
        r#"{"token":"-RID:~a0NPAOszCpOChB4AAAAAAA==#RT:1#TRC:1000#ISV:2#IEO:65599#QCF:8","range":{"min":"","max":"FF"}}"#.to_owned(),
        r#"[{"token":"+RID:~a0NPAOszCpOChB4AAAAAAA==#RT:2#TRC:20","range":{"min":"","max":"05C1DFFFFFFFFC"}}]"#.to_owned(),
        r#"[{"compositeToken":{"token":null,"range":{"min":"","max":"FF"}},"orderByItems":[{"item":1}],"rid":"x","skipCount":0}]"#.to_owned(),
        r#"{"v":1,"rid":"a0NPAOszCpM=","continuation":[]}"#.to_owned(),
        "a0NPAOszCpM=".to_owned(),
        own.replacen("#PKR", "#PKS", 1),
    ] {
        let is_changed = foreign != own;
        for call in [cross_partition(), HttpRequest::new("GET", "/dbs/d/colls/c/docs")] {
            let refused = world.send(call.header("x-ms-continuation", foreign.clone())).await;
            assert_eq!((refused.status, is_changed), (400, true), "{foreign}: {}", refused.text());
            assert!(refused.text().contains("Invalid Continuation Token"), "{}", refused.text());
        }
    }
    world.stop().await;
}

/// A raw question mark begins the query string of the URL, as everywhere in HTTP. SDKs encode it. A
/// client that signs the path without the query string gets the document before the question mark. A
/// client that signs the whole id is refused, because it signed the path of another document.
#[tokio::test]
async fn an_id_with_a_question_mark_is_found_only_if_it_is_encoded() {
    let world = World::new(PLAIN_CONTAINER).await;
    for id in ["a", "a?b"] {
        let created = world.create(r#"["p"]"#, &format!(r#"{{"id":"{id}","pk":"p"}}"#)).await;
        assert_eq!(created.status, 201, "{}", created.text());
    }
    let encoded = world.read(r#"["p"]"#, "a%3Fb").await;
    assert!(encoded.text().contains(r#""id":"a?b""#), "{}", encoded.text());
    let raw = || docs("GET", "a?b", r#"["p"]"#);
    let found = world.send(raw()).await;
    assert_eq!(found.status, 200, "{}", found.text());
    assert!(found.text().contains(r#""id":"a","#), "{}", found.text());
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("a time after 1970");
    let date = date::format(since_1970.as_secs());
    for (link, status) in [("dbs/d/colls/c/docs/a", 200), ("dbs/d/colls/c/docs/a?b", 401)] {
        let signature = MasterKey::emulator().authorization("GET", "docs", link, SignedDate::MsDate(&date));
        let signed = raw().header("x-ms-date", date.clone()).header("authorization", signature);
        assert_eq!(world.send(signed).await.status, status, "{link}");
    }
    world.stop().await;
}
