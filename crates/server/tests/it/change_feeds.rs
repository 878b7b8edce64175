//! Tests of change feeds: order, continuation, both modes, and that no page divides a
//! batch.

use perihelion_server::ServerOptions;
use perihelion_testkit::http_client::{HttpRequest, HttpResponse};

use crate::world::{PLAIN_CONTAINER, World, batch, docs, documents, ids, json};

/// A request for the change feed of range 0.
fn feed(mode: &str) -> HttpRequest {
    docs("GET", "", "").header("a-im", mode).header("x-ms-documentdb-partitionkeyrangeid", "0")
}

/// The request for the page after this answer.
fn after(answer: &HttpResponse) -> HttpRequest {
    feed("Incremental Feed").header("if-none-match", answer.header("etag").unwrap())
}

#[tokio::test]
async fn a_document_appears_at_its_last_write() {
    let world = World::new(PLAIN_CONTAINER).await;
    for id in ["1", "2", "3"] {
        world.create(r#"["a"]"#, &format!(r#"{{"id":"{id}","pk":"a"}}"#)).await;
    }
    world.send(docs("PUT", "1", r#"["a"]"#).json(&json(r#"{"id":"1","pk":"a","n":1}"#))).await;
    world.send(docs("DELETE", "2", r#"["a"]"#)).await;
    let page = world.send(feed("Incremental Feed")).await;
    assert_eq!(ids(&documents(&page)), ["3", "1"]);
    let drained = world.send(after(&page)).await;
    assert_eq!((drained.status, drained.body.len()), (304, 0));
    assert_eq!(drained.header("etag"), page.header("etag"));
    world.create(r#"["b"]"#, r#"{"id":"4","pk":"b"}"#).await;
    assert_eq!(ids(&documents(&world.send(after(&drained)).await)), ["4"]);
    world.stop().await;
}

#[tokio::test]
async fn a_page_holds_a_batch_whole_or_not_at_all() {
    let world = World::new(PLAIN_CONTAINER).await;
    for round in 0..3 {
        let body: Vec<String> = (0..4)
            .map(|n| {
                format!(r#"{{"operationType":"Create","resourceBody":{{"id":"{round}-{n}","pk":"a"}}}}"#)
            })
            .collect();
        let call =
            batch(r#"["a"]"#, &format!("[{}]", body.join(","))).header("x-ms-cosmos-batch-atomic", "True");
        assert_eq!(world.send(call).await.status, 200);
    }
    let mut page = world.send(feed("Incremental Feed").header("x-ms-max-item-count", "3")).await;
    let mut sizes = Vec::new();
    while page.status == 200 {
        sizes.push(documents(&page).len());
        page = world.send(after(&page).header("x-ms-max-item-count", "3")).await;
    }
    assert_eq!(sizes, [4, 4, 4]);
    world.stop().await;
}

#[tokio::test]
async fn a_feed_starts_now_or_at_a_time() {
    let world = World::new(PLAIN_CONTAINER).await;
    world.create(r#"["a"]"#, r#"{"id":"1","pk":"a"}"#).await;
    let now = world.send(feed("Incremental Feed").header("if-none-match", "*")).await;
    assert_eq!(now.status, 304);
    world.create(r#"["a"]"#, r#"{"id":"2","pk":"a"}"#).await;
    assert_eq!(ids(&documents(&world.send(after(&now)).await)), ["2"]);
    let past = feed("Incremental Feed").header("if-modified-since", "Thu, 01 Jan 2026 00:00:00 GMT");
    assert_eq!(ids(&documents(&world.send(past).await)), ["1", "2"]);
    let future = feed("Incremental Feed").header("if-modified-since", "Fri, 01 Jan 2100 00:00:00 GMT");
    assert_eq!(world.send(future).await.status, 304);
    world.stop().await;
}

#[tokio::test]
async fn a_feed_of_one_partition_key_has_only_its_documents() {
    let world = World::new(PLAIN_CONTAINER).await;
    for key in ["a", "b", "a"] {
        let id = format!("{key}{}", world.query("SELECT * FROM c").await.len());
        world.create(&format!(r#"["{key}"]"#), &format!(r#"{{"id":"{id}","pk":"{key}"}}"#)).await;
    }
    let page = world.send(docs("GET", "", r#"["a"]"#).header("a-im", "Incremental Feed")).await;
    assert_eq!(ids(&documents(&page)), ["a0", "a2"]);
    world.stop().await;
}

/// Story of a bug: the two ranges of a split store their documents in one segment. A feed with
/// headers of effective keys was not limited to its range, so every answer also had the documents
/// of the other range.
#[tokio::test]
async fn a_feed_with_effective_keys_has_only_documents_of_its_range_and_ends() {
    let options = ServerOptions { management: true, ..Default::default() };
    let world = World::with_options(options, PLAIN_CONTAINER).await;
    assert_eq!(
        world.manage("POST", "split", r#"{"database":"d","container":"c","range":"0"}"#).await.status,
        200
    );
    for n in 0..20 {
        let body = format!(r#"{{"id":"{n}","pk":"k{n}"}}"#);
        assert_eq!(world.create(&format!(r#"["k{n}"]"#), &body).await.status, 201);
    }
    for mode in ["Incremental Feed", "Full-Fidelity Feed"] {
        let page = |range: &str, etag: Option<&str>| {
            let call = docs("GET", "", "")
                .header("a-im", mode)
                .header("x-ms-documentdb-partitionkeyrangeid", range)
                .header("x-ms-read-key-type", "EffectivePartitionKeyRange")
                .header("x-ms-start-epk", "")
                .header("x-ms-end-epk", "FF");
            match etag {
                Some(etag) => call.header("if-none-match", etag),
                None => call,
            }
        };
        let mut found = Vec::new();
        for range in ["1", "2"] {
            let start = (mode == "Full-Fidelity Feed").then_some("*");
            let mut answer = world.send(page(range, start)).await;
            if start.is_some() {
                // The feed of the range starts now. So all documents are written again, and the feed has
                // those of its range.
                for n in 0..20 {
                    let body = json(&format!(r#"{{"id":"{n}","pk":"k{n}","round":{range}}}"#));
                    world.send(docs("PUT", &n.to_string(), &format!(r#"["k{n}"]"#)).json(&body)).await;
                }
                answer = world.send(page(range, answer.header("etag"))).await;
            }
            assert_eq!(answer.status, 200);
            found.push(documents(&answer).len());
            let drained = world.send(page(range, answer.header("etag"))).await;
            assert_eq!(drained.status, 304, "{mode}, range {range}: {}", drained.text());
        }
        assert!(found.iter().all(|count| *count > 0), "{mode}: {found:?}");
        assert_eq!(found.iter().sum::<usize>(), 20, "{mode}: {found:?}");
    }
    world.stop().await;
}

#[tokio::test]
async fn the_full_fidelity_feed_shows_every_version_and_delete() {
    let world = World::new(PLAIN_CONTAINER).await;
    world.create(r#"["a"]"#, r#"{"id":"0","pk":"a"}"#).await;
    let start = world.send(feed("Full-Fidelity Feed").header("if-none-match", "*")).await;
    assert_eq!(start.status, 304);
    world.create(r#"["a"]"#, r#"{"id":"1","pk":"a","n":1}"#).await;
    world.send(docs("PUT", "1", r#"["a"]"#).json(&json(r#"{"id":"1","pk":"a","n":2}"#))).await;
    world.send(docs("DELETE", "1", r#"["a"]"#)).await;
    let page =
        world.send(feed("Full-Fidelity Feed").header("if-none-match", start.header("etag").unwrap())).await;
    let entries = documents(&page);
    let kinds: Vec<Option<&str>> =
        entries.iter().map(|entry| entry.get("metadata")?.get("operationType")?.as_str()).collect();
    assert_eq!(kinds, [Some("create"), Some("replace"), Some("delete")]);
    assert_eq!(entries[1].get("current").and_then(|current| current.get("n")), Some(&2i64.into()));
    assert_eq!(entries[2].get("previous").and_then(|previous| previous.get("id")), Some(&"1".into()));
    world.stop().await;
}

#[tokio::test]
async fn the_full_fidelity_feed_cannot_be_read_from_the_beginning() {
    let world = World::new(PLAIN_CONTAINER).await;
    assert_eq!(world.send(feed("Full-Fidelity Feed")).await.status, 400);
    let since = feed("Full-Fidelity Feed").header("if-modified-since", "Sun, 15 Nov 2026 06:00:00 GMT");
    assert_eq!(world.send(since).await.status, 400);
    world.stop().await;
}

#[tokio::test]
async fn invalid_modes_and_starts_are_refused() {
    let world = World::new(PLAIN_CONTAINER).await;
    assert_eq!(world.send(feed("Sideways Feed")).await.status, 400);
    assert_eq!(world.send(feed("Incremental Feed").header("if-none-match", "\"x\"")).await.status, 400);
    assert_eq!(
        world.send(feed("Incremental Feed").header("if-modified-since", "yesterday")).await.status,
        400
    );
    let gone = docs("GET", "", "")
        .header("a-im", "Incremental Feed")
        .header("x-ms-documentdb-partitionkeyrangeid", "7");
    let gone = world.send(gone).await;
    assert_eq!((gone.status, gone.header("x-ms-substatus")), (410, Some("1002")));
    world.stop().await;
}
