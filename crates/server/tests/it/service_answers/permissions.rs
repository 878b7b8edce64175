//! The limits of resource tokens: requests that have the headers of a query and are not queries,
//! containers that are created again, and requests that wait while their permission is deleted.

use perihelion_server::ServerOptions;
use perihelion_testkit::http_client::HttpRequest;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::users::{
    CONTAINER, body, post, status, text, with_token, world_with_options, world_with_permission,
};
use crate::world::{PLAIN_CONTAINER, World, batch, docs, json, query};

const PLAN: &str = "x-ms-cosmos-is-query-plan-request";
const KEY: &str = "x-ms-documentdb-partitionkey";
const PROCEDURE: &str = r#"{"id":"s","body":"function () {}"}"#;

/// The members of a permission to read the container, without its id.
fn read_permission() -> String {
    format!(r#""permissionMode":"Read","resource":"{CONTAINER}""#)
}

fn delete_partition(key: &str) -> HttpRequest {
    HttpRequest::new("POST", "/dbs/d/colls/c/operations/partitionkeydelete").header(KEY, key)
}

fn as_query(call: HttpRequest) -> HttpRequest {
    call.header("content-type", "application/query+json").body(r#"{"query":"SELECT * FROM c"}"#)
}

/// Adds a permission, with a request that is signed with the master key. Returns its token.
async fn token_of(world: &World, permission: &str) -> String {
    let created = world.send(post("/dbs/d/users/u/permissions", permission)).await;
    assert_eq!(created.status, 201, "{permission}: {}", created.text());
    text(&body(&created), "_token").to_owned()
}

/// Story of a bug: with the headers of a query, every POST counted as a read.
#[tokio::test]
async fn a_read_token_cannot_write_with_the_headers_of_a_query() {
    let (world, token) = world_with_permission(&read_permission()).await;
    let scripts = |kind: &str| HttpRequest::new("POST", format!("/dbs/d/colls/c/{kind}"));
    let create = r#"[{"operationType":"Create","resourceBody":{"id":"9","pk":"a"}}]"#;
    for call in [
        delete_partition(r#"["a"]"#).header(PLAN, "true"),
        as_query(delete_partition(r#"["a"]"#)),
        scripts("sprocs").json(&json(PROCEDURE)).header(PLAN, "true"),
        scripts("udfs").json(&json(PROCEDURE)).header(PLAN, "true"),
        as_query(scripts("sprocs/s")),
        batch(r#"["a"]"#, create).header(PLAN, "true"),
        query("SELECT * FROM c").header(KEY, r#"["a"]"#).header("x-ms-cosmos-is-batch-request", "true"),
        as_query(docs("PUT", "1", r#"["a"]"#)),
        as_query(docs("POST", "1", r#"["a"]"#)),
    ] {
        assert_eq!(status(&world, call.clone(), &token).await, 403, "{call:?}");
    }
    for call in [
        as_query(docs("POST", "", "")).header(PLAN, "true"),
        as_query(docs("POST", "", r#"["a"]"#)),
        as_query(scripts("sprocs")),
        as_query(scripts("conflicts")).header("x-ms-documentdb-query-enablecrosspartition", "true"),
    ] {
        assert_eq!(status(&world, call.clone(), &token).await, 200, "{call:?}");
    }
    assert_eq!(world.query("SELECT * FROM c").await.len(), 2);
    let procedures = world.send(HttpRequest::new("GET", "/dbs/d/colls/c/sprocs")).await;
    assert!(procedures.text().contains(r#""StoredProcedures":[]"#), "{}", procedures.text());
    world.stop().await;
}

/// Story of a bug: with the header of a query plan, a token was not limited to its partition key.
#[tokio::test]
async fn a_token_with_a_partition_key_is_limited_to_that_key_in_requests_with_the_plan_header() {
    let members = format!(r#""permissionMode":"All","resource":"{CONTAINER}","resourcePartitionKey":["a"]"#);
    let (world, token) = world_with_permission(&members).await;
    let create = |key: &str| {
        batch(
            &format!(r#"["{key}"]"#),
            &format!(r#"[{{"operationType":"Create","resourceBody":{{"id":"9","pk":"{key}"}}}}]"#),
        )
    };
    for call in [
        create("b").header(PLAN, "true"),
        delete_partition(r#"["b"]"#).header(PLAN, "true"),
        docs("GET", "1", r#"["b"]"#).header(PLAN, "true"),
        docs("DELETE", "1", r#"["b"]"#).header(PLAN, "true"),
    ] {
        assert_eq!(status(&world, call.clone(), &token).await, 403, "{call:?}");
    }
    assert_eq!(status(&world, as_query(docs("POST", "", "")).header(PLAN, "true"), &token).await, 200);
    assert_eq!(status(&world, create("a"), &token).await, 200);
    assert_eq!(world.query("SELECT * FROM c WHERE c.pk = 'b'").await.len(), 1);
    assert_eq!(status(&world, delete_partition(r#"["a"]"#), &token).await, 200);
    world.stop().await;
}

#[tokio::test]
async fn a_token_with_a_partition_key_may_run_procedures_but_not_change_them() {
    let members = format!(r#""permissionMode":"All","resource":"{CONTAINER}","resourcePartitionKey":["a"]"#);
    let (world, token) = world_with_permission(&members).await;
    assert_eq!(world.send(post("/dbs/d/colls/c/sprocs", PROCEDURE)).await.status, 201);
    let permission = format!(
        r#"{{"id":"q","permissionMode":"All","resource":"{CONTAINER}/sprocs/s","resourcePartitionKey":["a"]}}"#
    );
    let of_procedure = token_of(&world, &permission).await;
    let call = |method: &str| {
        HttpRequest::new(method, "/dbs/d/colls/c/sprocs/s").header(KEY, r#"["a"]"#).json(&json(PROCEDURE))
    };
    for token in [&token, &of_procedure] {
        for method in ["GET", "PUT", "DELETE"] {
            assert_eq!(status(&world, call(method), token).await, 403, "{method}");
        }
        let run = world.send(with_token(call("POST"), token)).await;
        assert_eq!(run.status, 400, "{}", run.text());
        assert!(run.text().contains("executions are not supported"), "{}", run.text());
    }
    assert_eq!(world.send(HttpRequest::new("GET", "/dbs/d/colls/c/sprocs/s")).await.status, 200);
    world.stop().await;
}

/// Story of a bug: a permission for a container also gave access to the next container with the same
/// name. A permission ends with its container, and its container is in the database of its user.
#[tokio::test]
async fn a_permission_ends_with_its_container_and_cannot_name_another_database() {
    let (world, token) = world_with_permission(&read_permission()).await;
    let read = || HttpRequest::new("GET", "/dbs/d/colls/c");
    // A permission for a container that does not exist yet is stored. It allows nothing, also after
    // the container was created.
    let early =
        token_of(&world, r#"{"id":"early","permissionMode":"Read","resource":"dbs/d/colls/later"}"#).await;
    let later = PLAIN_CONTAINER.replace(r#""id":"c""#, r#""id":"later""#);
    assert_eq!(world.send(post("/dbs/d/colls", &later)).await.status, 201);
    assert_eq!(status(&world, HttpRequest::new("GET", "/dbs/d/colls/later"), &early).await, 403);
    assert_eq!(status(&world, read(), &token).await, 200);
    assert_eq!(world.send(HttpRequest::new("DELETE", "/dbs/d/colls/c")).await.status, 204);
    assert_eq!(status(&world, read(), &token).await, 403);
    assert_eq!(world.send(post("/dbs/d/colls", PLAIN_CONTAINER)).await.status, 201);
    assert_eq!(status(&world, read(), &token).await, 403);
    // A permission that is written again is about the container that has the name now. Answers do
    // not show that container's `_rid`.
    let again = post("/dbs/d/users/u/permissions", &format!(r#"{{"id":"p",{}}}"#, read_permission()))
        .header("x-ms-documentdb-is-upsert", "True");
    let again = world.send(again).await;
    assert_eq!(again.status, 200);
    assert_eq!(status(&world, read(), text(&body(&again), "_token")).await, 200);
    let listed = world.send(HttpRequest::new("GET", "/dbs/d/users/u/permissions")).await;
    let one = world.send(HttpRequest::new("GET", "/dbs/d/users/u/permissions/p")).await;
    for answer in [again, listed, one] {
        // The stored permission has the member `_containerRid`, which clients must not see.
        assert!(!answer.text().contains("ontainerRid"), "{}", answer.text());
    }
    let other = body(&world.send(post("/dbs", r#"{"id":"other"}"#)).await);
    assert_eq!(world.send(post("/dbs/other/colls", PLAIN_CONTAINER)).await.status, 201);
    for database in ["other", text(&other, "_rid")] {
        let link = format!("dbs/{database}/colls/c");
        let bad = format!(r#"{{"id":"x","permissionMode":"All","resource":"{link}"}}"#);
        let refused = world.send(post("/dbs/d/users/u/permissions", &bad)).await;
        assert_eq!(refused.status, 400, "{link}: {}", refused.text());
    }
    world.stop().await;
}

/// A permission on a document without a partition key is for the documents with that id in all
/// partitions.
#[tokio::test]
async fn a_document_permission_without_a_key_holds_in_every_partition_and_allows_no_rename() {
    let members = format!(r#""permissionMode":"All","resource":"{CONTAINER}/docs/1""#);
    let (world, token) = world_with_permission(&members).await;
    let replace = |key: &str, id: &str| {
        docs("PUT", "1", &format!(r#"["{key}"]"#)).json(&json(&format!(r#"{{"id":"{id}","pk":"{key}"}}"#)))
    };
    for key in ["a", "b"] {
        assert_eq!(status(&world, replace(key, "1"), &token).await, 200, "{key}");
        assert_eq!(status(&world, replace(key, "2"), &token).await, 403, "{key}");
    }
    let patch = docs("PATCH", "1", r#"["a"]"#)
        .header("content-type", "application/json-patch+json")
        .body(r#"{"operations":[{"op":"set","path":"/id","value":"2"}]}"#);
    assert_eq!(status(&world, patch, &token).await, 400);
    // The document cannot be renamed through its link of `_rid`s either.
    let link = text(&body(&world.read(r#"["a"]"#, "1").await), "_self").trim_end_matches('/').to_owned();
    for (id, expected) in [("1", 200), ("2", 403)] {
        let call = HttpRequest::new("PUT", format!("/{link}"))
            .header(KEY, r#"["a"]"#)
            .json(&json(&format!(r#"{{"id":"{id}","pk":"a"}}"#)));
        assert_eq!(status(&world, call, &token).await, expected, "{id}");
    }
    assert_eq!(world.read(r#"["a"]"#, "2").await.status, 404);
    world.stop().await;
}

#[tokio::test]
async fn a_stale_etag_or_a_large_body_of_a_user_or_a_permission_is_refused() {
    let (world, _) = world_with_permission(&read_permission()).await;
    let permission = format!(r#"{{"id":"p",{}}}"#, read_permission());
    for (feed, id, entry) in
        [("/dbs/d/users", "u", r#"{"id":"u"}"#), ("/dbs/d/users/u/permissions", "p", permission.as_str())]
    {
        let path = format!("{feed}/{id}");
        let replace =
            |etag: &str| HttpRequest::new("PUT", path.clone()).json(&json(entry)).header("if-match", etag);
        let upsert =
            post(feed, entry).header("x-ms-documentdb-is-upsert", "True").header("if-match", "\"x\"");
        let old = text(&body(&world.send(HttpRequest::new("GET", path.clone())).await), "_etag").to_owned();
        assert_eq!(world.send(upsert).await.status, 412, "{path}");
        assert_eq!(world.send(replace("\"x\"")).await.status, 412, "{path}");
        let replaced = world.send(replace(&old)).await;
        assert_eq!(replaced.status, 200, "{path}");
        assert_eq!(world.send(replace(&old)).await.status, 412, "{path}");
        let delete = |etag: &str| HttpRequest::new("DELETE", path.clone()).header("if-match", etag);
        assert_eq!(world.send(delete(&old)).await.status, 412, "{path}");
        let long = entry.replacen('{', &format!(r#"{{"more":"{}","#, "x".repeat(8 * 1024)), 1);
        assert_eq!(world.send(HttpRequest::new("PUT", path.clone()).json(&json(&long))).await.status, 413);
    }
    let path = "/dbs/d/users/u/permissions/p";
    let etag = text(&body(&world.send(HttpRequest::new("GET", path)).await), "_etag").to_owned();
    let delete = HttpRequest::new("DELETE", path).header("if-match", etag);
    assert_eq!(world.send(delete).await.status, 204);
    world.stop().await;
}

/// Story of a bug: a request that waited was still served after its permission had been deleted.
#[tokio::test]
async fn a_request_that_waits_while_its_permission_is_deleted_is_refused() {
    let options = ServerOptions { management: true, ..Default::default() };
    let (world, token) = world_with_options(options, &read_permission()).await;
    world.manage("POST", "faults", r#"{"operation":"read_item","count":1,"delayMs":5000}"#).await;
    let client = world.other_client();
    let call = with_token(docs("GET", "1", r#"["a"]"#), &token).header("x-ms-version", "2020-07-15");
    let read = tokio::spawn(async move { client.send(&call).await });
    while !world.manage("GET", "faults", "").await.text().contains(r#""hits":1"#) {
        tokio::task::yield_now().await;
    }
    assert_eq!(world.send(HttpRequest::new("DELETE", "/dbs/d/users/u/permissions/p")).await.status, 204);
    let answer = read.await.unwrap().unwrap();
    assert_eq!(answer.status, 403, "{}", answer.text());
    world.stop().await;
}

/// Sends this text, which may be only the beginning of a request. Returns the HTTP version and the
/// status of the response.
async fn first_line(world: &World, request: &str) -> String {
    let mut stream = TcpStream::connect(world.address()).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut start = [0; 12];
    stream.read_exact(&mut start).await.unwrap();
    String::from_utf8_lossy(&start).into_owned()
}

/// Story of a bug: every client could make the server read large bodies under `/_perihelion/`. A
/// client with a resource token could also make the server read the large body of a request that the
/// token does not permit.
#[tokio::test]
async fn a_large_body_for_management_or_without_permission_is_refused_unread() {
    let options = ServerOptions { management: true, ..Default::default() };
    let (world, token) = world_with_options(options, &read_permission()).await;
    let escaped = token.replace('+', "%2B").replace('/', "%2F").replace('=', "%3D").replace('&', "%26");
    let large = "content-length: 3000000\r\n\r\n{";
    let manage = "POST /_perihelion/resume HTTP/1.1\r\nhost: localhost\r\n";
    let docs = format!(
        "POST /dbs/d/colls/c/docs HTTP/1.1\r\nhost: localhost\r\nx-ms-version: 2020-07-15\r\n\
        x-ms-documentdb-partitionkey: [\"a\"]\r\nauthorization: {escaped}\r\n"
    );
    for (request, expected) in [
        (format!("{manage}{large}"), "HTTP/1.1 413"),
        (format!("{manage}origin: http://page\r\n{large}"), "HTTP/1.1 403"),
        (format!("{manage}origin: http://page\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{{"), "HTTP/1.1 403"),
        (format!("{docs}{large}"), "HTTP/1.1 403"),
        // A body of unknown length is read if its sender may send it.
        (format!("{manage}transfer-encoding: chunked\r\n\r\n2\r\n{{}}\r\n0\r\n\r\n"), "HTTP/1.1 200"),
    ] {
        assert_eq!(first_line(&world, &request).await, expected, "{request}");
    }
    world.stop().await;
}
