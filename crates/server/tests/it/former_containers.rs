//! Tests with session tokens, change feeds and `_rid`s of a former container: the container does not
//! exist any more, and a new container has its name. That happens after a restart of a server in
//! memory, and after a delete.

use perihelion_testkit::http_client::{HttpRequest, HttpResponse};

use crate::world::{PLAIN_CONTAINER, World, docs, documents, ids, json, text};

/// What a client remembers of a container.
struct Remembered {
    token: String,
    feed_etag: String,
    rid: String,
}

fn feed() -> HttpRequest {
    docs("GET", "", "").header("a-im", "Incremental Feed").header("x-ms-documentdb-partitionkeyrangeid", "0")
}

/// Writes documents into the container. Returns what a client remembers of the container.
async fn use_container(world: &World, documents: usize) -> Remembered {
    for n in 0..documents {
        let created = world.create(r#"["a"]"#, &format!(r#"{{"id":"{n}","pk":"a"}}"#)).await;
        assert_eq!(created.status, 201);
    }
    let header = |answer: HttpResponse, name: &str| answer.header(name).unwrap().to_owned();
    Remembered {
        token: header(world.read(r#"["a"]"#, "0").await, "x-ms-session-token"),
        feed_etag: header(world.send(feed()).await, "etag"),
        rid: text(&world.send(HttpRequest::new("GET", "/dbs/d/colls/c")).await.json().unwrap(), "_rid"),
    }
}

/// Writes four documents into the new container, and uses there what a client remembers of the
/// former container.
async fn check_successor(world: &World, remembered: &Remembered) {
    world.create(r#"["a"]"#, r#"{"id":"new","pk":"a"}"#).await;
    for n in 0..3 {
        world.create(r#"["b"]"#, &format!(r#"{{"id":"{n}","pk":"b"}}"#)).await;
    }
    let read = docs("GET", "new", r#"["a"]"#);
    let refused = world.send(read.header("x-ms-session-token", &remembered.token)).await;
    assert_eq!(
        (refused.status, refused.header("x-ms-substatus")),
        (404, Some("1002")),
        "{}",
        remembered.token
    );
    let page = world.send(feed().header("if-none-match", &remembered.feed_etag)).await;
    assert_eq!(
        page.status, 200,
        "a feed with the etag {} of the former container did not start over",
        remembered.feed_etag
    );
    assert_eq!(ids(&documents(&page)), ["new", "0", "1", "2"]);
    let stale = docs("GET", "new", r#"["a"]"#).header("x-ms-cosmos-intended-collection-rid", &remembered.rid);
    let stale = world.send(stale).await;
    assert_eq!((stale.status, stale.header("x-ms-substatus")), (400, Some("1024")));
}

#[tokio::test]
async fn after_a_restart_in_memory_old_tokens_are_refused_and_old_feeds_start_over() {
    // Fewer and more documents than the new container has.
    for documents in [2, 20] {
        let world = World::new(PLAIN_CONTAINER).await;
        let remembered = use_container(&world, documents).await;
        world.stop().await;
        let world = World::new(PLAIN_CONTAINER).await;
        check_successor(&world, &remembered).await;
        world.stop().await;
    }
}

#[tokio::test]
async fn tokens_of_a_deleted_container_are_refused_by_its_successor_and_feeds_start_over() {
    // Fewer and more documents than the new container has.
    for documents in [2, 20] {
        let world = World::new(PLAIN_CONTAINER).await;
        let remembered = use_container(&world, documents).await;
        assert_eq!(world.send(HttpRequest::new("DELETE", "/dbs/d/colls/c")).await.status, 204);
        let created = HttpRequest::new("POST", "/dbs/d/colls").json(&json(PLAIN_CONTAINER));
        assert_eq!(world.send(created).await.status, 201);
        check_successor(&world, &remembered).await;
        world.stop().await;
    }
}
