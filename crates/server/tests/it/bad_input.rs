//! Tests that bad input gets the error of the service and changes nothing.

use perihelion_testkit::http_client::HttpRequest;

use crate::world::{PLAIN_CONTAINER, World, docs, query, text};

#[tokio::test]
async fn malformed_documents_are_refused_and_change_nothing() {
    let world = World::new(PLAIN_CONTAINER).await;
    let deep = format!(r#"{{"id":"1","pk":"a","x":{}{}}}"#, "[".repeat(200), "]".repeat(200));
    let endless = format!(r#"{{"id":"1","pk":"a","x":{}"#, "[".repeat(1_000_000));
    for body in [
        "",
        "{",
        "null",
        "[]",
        "\"x\"",
        "{\"id\":\"1\",\"pk\":\"a\",\"n\":NaN}",
        "{\"id\":1,\"pk\":\"a\"}",
        "{\"id\":null,\"pk\":\"a\"}",
        "{\"pk\":\"a\"}",
        "{\"id\":\"1\",\"pk\":[1]}",
        &deep,
        &endless,
    ] {
        let call =
            docs("POST", "", r#"["a"]"#).header("content-type", "application/json").body(body.to_owned());
        let refused = world.send(call).await;
        assert_eq!(refused.status, 400, "{}: {}", &body[..body.len().min(60)], refused.text());
        assert!(refused.json().unwrap().get("code").is_some());
    }
    let invalid = docs("POST", "", r#"["a"]"#)
        .header("content-type", "application/json")
        .body(b"{\"id\":\"\xff\"}".to_vec());
    assert_eq!(world.send(invalid).await.status, 400);
    assert!(world.query("SELECT * FROM c").await.is_empty());
    world.stop().await;
}

#[tokio::test]
async fn unknown_paths_and_verbs_get_the_services_statuses() {
    let world = World::new(PLAIN_CONTAINER).await;
    for path in ["/nope", "/dbs/d/nope", "/dbs//colls", "/dbs/d/colls/c/docs/1/2/3", "/dbs/%ff"] {
        let refused = world.send(HttpRequest::new("GET", path)).await;
        assert!(matches!(refused.status, 400 | 401), "{path}: {}", refused.text());
    }
    for (method, path) in [
        ("PUT", "/dbs"),
        ("PATCH", "/dbs/d"),
        ("POST", "/dbs/d/colls/c/docs/$batch"),
        ("DELETE", "/dbs/d/colls/c/pkranges"),
    ] {
        let refused = world
            .send(HttpRequest::new(method, path).header("x-ms-documentdb-partitionkey", r#"["a"]"#))
            .await;
        assert_eq!(refused.status, 405, "{method} {path}: {}", refused.text());
    }
    for path in ["/dbs/x", "/dbs/d/colls/x", "/dbs/x/colls/c/docs/1", "/offers/AAAA"] {
        let refused = world
            .send(HttpRequest::new("GET", path).header("x-ms-documentdb-partitionkey", r#"["a"]"#))
            .await;
        assert_eq!(refused.status, 404, "{path}: {}", refused.text());
    }
    world.stop().await;
}

/// Checks that a request is refused as a bad request with this text in its message.
async fn check_refused(world: &World, call: HttpRequest, message: &str) {
    let refused = world.send(call.clone()).await;
    assert_eq!(refused.status, 400, "{call:?}: {}", refused.text());
    let body = refused.json().unwrap();
    assert_eq!(text(&body, "code"), "BadRequest", "{call:?}");
    assert!(text(&body, "message").contains(message), "{call:?}: {}", refused.text());
}

#[tokio::test]
async fn bad_headers_are_refused_with_400() {
    let world = World::new(PLAIN_CONTAINER).await;
    world.create(r#"["a"]"#, r#"{"id":"1","pk":"a"}"#).await;
    let not_scalars = "Partition key provided in the header is invalid: it must be a JSON array of scalars.";
    for (key, message) in [
        ("a", not_scalars),
        (r#"[[1]]"#, not_scalars),
        (r#"["a","b"]"#, "Partition key provided either doesn't correspond to definition in the collection"),
    ] {
        check_refused(&world, docs("GET", "1", key), message).await;
    }
    for (name, value, message) in [
        (
            "x-ms-consistency-level",
            "Strong",
            "ConsistencyLevel Strong specified in the request is invalid when service is configured with consistency level Session.",
        ),
        ("x-ms-consistency-level", "Sloppy", "The value 'Sloppy' of x-ms-consistency-level is unknown."),
        ("x-ms-session-token", "x", "The session token provided is invalid."),
    ] {
        check_refused(&world, docs("GET", "1", r#"["a"]"#).header(name, value), message).await;
    }
    let bad_count = |count: &str| {
        format!("The value '{count}' specified for the header 'x-ms-max-item-count' is invalid.")
    };
    for (name, value, message) in [
        ("x-ms-max-item-count", "abc", bad_count("abc").as_str()),
        ("x-ms-max-item-count", "-7", &bad_count("-7")),
        ("x-ms-continuation", "garbage", "Invalid Continuation Token"),
        ("x-ms-continuation", r#"{"token":"-RID:~x#RT:1"}"#, "Invalid Continuation Token"),
        ("x-ms-start-epk", "zz", "An effective partition key header is not hexadecimal text."),
    ] {
        let call = query("SELECT * FROM c").header("x-ms-documentdb-query-enablecrosspartition", "True");
        check_refused(&world, call.header(name, value), message).await;
    }
    world.stop().await;
}

#[tokio::test]
async fn malformed_queries_and_containers_are_refused() {
    let world = World::new(PLAIN_CONTAINER).await;
    let across_partitions =
        |call: HttpRequest| call.header("x-ms-documentdb-query-enablecrosspartition", "True");
    for statement in [
        "",
        "SELECT",
        "SELECT * FROM c WHERE",
        "DROP TABLE c",
        "SELECT NOPE(1)",
        &format!("SELECT {}1{}", "[".repeat(5000), "]".repeat(5000)),
    ] {
        assert_eq!(world.send(across_partitions(query(statement))).await.status, 400, "{statement:.40}");
    }
    let not_json =
        HttpRequest::new("POST", "/dbs/d/colls/c/docs").header("content-type", "application/query+json");
    assert_eq!(world.send(across_partitions(not_json.body("{"))).await.status, 400);
    for body in [
        "{}",
        r#"{"id":""}"#,
        r#"{"id":"a/b","partitionKey":{"paths":["/pk"]}}"#,
        r#"{"id":"x","partitionKey":{"paths":[]}}"#,
        r#"{"id":"x","partitionKey":{"paths":["pk"]}}"#,
        r#"{"id":"x","partitionKey":{"paths":["/a","/b"],"kind":"Hash"}}"#,
        r#"{"id":"x","partitionKey":{"paths":["/a","/b","/c","/d"],"kind":"MultiHash","version":2}}"#,
        r#"{"id":"x","partitionKey":{"paths":["/pk"],"version":3}}"#,
        r#"{"id":"x","partitionKey":{"paths":["/pk"]},"defaultTtl":0}"#,
    ] {
        let call = HttpRequest::new("POST", "/dbs/d/colls")
            .header("content-type", "application/json")
            .body(body.to_owned());
        let refused = world.send(call).await;
        assert_eq!(refused.status, 400, "{body}: {}", refused.text());
    }
    world.stop().await;
}

/// Story of a bug: the body of a request was read before its signature was checked. So every client
/// could fill the memory for bodies, and the requests of all others were refused.
#[tokio::test]
async fn a_large_body_without_a_valid_signature_is_refused_unread() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let world = World::new(PLAIN_CONTAINER).await;
    let mut stream = tokio::net::TcpStream::connect(world.address()).await.unwrap();
    // Only the head is sent, and then one byte of the body.
    let head = "POST /dbs/d/colls/c/docs HTTP/1.1\r\nhost: localhost\r\nx-ms-version: 2020-07-15\r\n\
        x-ms-date: Tue, 17 Nov 2026 05:00:00 GMT\r\nauthorization: type%3Dmaster%26ver%3D1.0%26sig%3Dbad\r\n\
        content-length: 3000000\r\n\r\n{";
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut start = [0; 12];
    stream.read_exact(&mut start).await.unwrap();
    assert_eq!(String::from_utf8_lossy(&start), "HTTP/1.1 401");
    drop(stream);
    let created = world.create(r#"["a"]"#, r#"{"id":"1","pk":"a"}"#).await;
    assert_eq!(created.status, 201);
    world.stop().await;
}
