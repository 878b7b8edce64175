//! Users, permissions and what resource tokens permit.

use perihelion_model::json::Value;
use perihelion_server::ServerOptions;
use perihelion_testkit::http_client::{HttpRequest, HttpResponse};

use crate::world::{PLAIN_CONTAINER, World, batch, docs, documents, json, query};

pub(super) const CONTAINER: &str = "dbs/d/colls/c";

/// A call that is authorized by a token instead of a signature.
pub(super) fn with_token(call: HttpRequest, token: &str) -> HttpRequest {
    let escaped = token.replace('+', "%2B").replace('/', "%2F").replace('=', "%3D").replace('&', "%26");
    call.omit("authorization").header("authorization", escaped)
}

pub(super) fn post(path: &str, body: &str) -> HttpRequest {
    HttpRequest::new("POST", path).json(&json(body))
}

pub(super) fn text<'a>(body: &'a Value, name: &str) -> &'a str {
    body.get(name).and_then(Value::as_str).unwrap_or_else(|| panic!("{name} in {body:?}"))
}

pub(super) fn body(answer: &HttpResponse) -> Value {
    json(&answer.text())
}

/// A world with the user `u`, and with one document `1` in each of the partitions `a` and `b`. Also
/// the token of the user's permission `p`, which has these members.
pub(super) async fn world_with_permission(members: &str) -> (World, String) {
    world_with_options(ServerOptions::default(), members).await
}

/// The world of [`world_with_permission`], on a server with these options.
pub(super) async fn world_with_options(options: ServerOptions, members: &str) -> (World, String) {
    let world = World::with_options(options, PLAIN_CONTAINER).await;
    assert_eq!(world.send(post("/dbs/d/users", r#"{"id":"u"}"#)).await.status, 201);
    let created = world.send(post("/dbs/d/users/u/permissions", &format!(r#"{{"id":"p",{members}}}"#))).await;
    assert_eq!(created.status, 201, "{}", created.text());
    let token = text(&body(&created), "_token").to_owned();
    assert_eq!(world.create(r#"["a"]"#, r#"{"id":"1","pk":"a"}"#).await.status, 201);
    assert_eq!(world.create(r#"["b"]"#, r#"{"id":"1","pk":"b"}"#).await.status, 201);
    (world, token)
}

pub(super) async fn status(world: &World, call: HttpRequest, token: &str) -> u16 {
    world.send(with_token(call, token)).await.status
}

fn cross_partition(text: &str) -> HttpRequest {
    query(text).header("x-ms-documentdb-query-enablecrosspartition", "true")
}

#[tokio::test]
async fn users_and_permissions_are_listed_in_pages() {
    let (world, _) = world_with_permission(r#""permissionMode":"Read","resource":"dbs/d/colls/c""#).await;
    for n in 0..4 {
        let user = format!(r#"{{"id":"user{n}"}}"#);
        assert_eq!(world.send(post("/dbs/d/users", &user)).await.status, 201);
        let permission = format!(
            r#"{{"id":"permission{n}","permissionMode":"Read","resource":"dbs/d/colls/c/docs/{n}"}}"#
        );
        let created = world.send(post("/dbs/d/users/u/permissions", &permission)).await;
        assert_eq!(created.status, 201, "{}", created.text());
    }
    for (path, feed, expected) in [
        ("/dbs/d/users", "Users", ["u", "user0", "user1", "user2", "user3"]),
        (
            "/dbs/d/users/u/permissions",
            "Permissions",
            ["p", "permission0", "permission1", "permission2", "permission3"],
        ),
    ] {
        let (mut found, mut sizes, mut continuation) = (Vec::new(), Vec::new(), None::<String>);
        loop {
            let mut request = HttpRequest::new("GET", path).header("x-ms-max-item-count", "2");
            if let Some(continuation) = continuation {
                request = request.header("x-ms-continuation", continuation);
            }
            let page = world.send(request).await;
            assert_eq!(page.status, 200, "{}", page.text());
            let entries = body(&page).get(feed).and_then(Value::as_array).unwrap().to_vec();
            sizes.push(entries.len());
            found.extend(entries.iter().map(|entry| text(entry, "id").to_owned()));
            continuation = page.header("x-ms-continuation").map(str::to_owned);
            if continuation.is_none() {
                break;
            }
        }
        assert_eq!((found, sizes), (expected.map(str::to_owned).to_vec(), vec![2, 2, 1]));
    }
    let bad = HttpRequest::new("GET", "/dbs/d/users").header("x-ms-continuation", "?");
    assert_eq!(world.send(bad).await.status, 400);
    world.stop().await;
}

#[tokio::test]
async fn users_are_created_listed_queried_renamed_and_deleted() {
    let world = World::new(PLAIN_CONTAINER).await;
    let created = world.send(post("/dbs/d/users", r#"{"id":"one"}"#)).await;
    assert_eq!(created.status, 201, "{}", created.text());
    let user = body(&created);
    assert_eq!(text(&user, "_permissions"), "permissions/");
    assert_eq!(world.send(post("/dbs/d/users", r#"{"id":"one"}"#)).await.status, 409);
    let upsert = post("/dbs/d/users", r#"{"id":"one"}"#).header("x-ms-documentdb-is-upsert", "True");
    assert_eq!(world.send(upsert).await.status, 200);
    let found = HttpRequest::new("POST", "/dbs/d/users")
        .header("content-type", "application/query+json")
        .body(r#"{"query":"SELECT VALUE u.id FROM u WHERE u.id = 'one'"}"#);
    assert!(world.send(found).await.text().contains(r#""Users":["one"]"#));
    let permission = format!(r#"{{"id":"p","permissionMode":"Read","resource":"{CONTAINER}"}}"#);
    assert_eq!(world.send(post("/dbs/d/users/one/permissions", &permission)).await.status, 201);
    let rename = HttpRequest::new("PUT", "/dbs/d/users/one").json(&json(r#"{"id":"two"}"#));
    let renamed = body(&world.send(rename).await);
    assert_eq!(text(&renamed, "_rid"), text(&user, "_rid"));
    assert_eq!(world.send(HttpRequest::new("GET", "/dbs/d/users/one")).await.status, 404);
    // A renamed user keeps its permissions. Their `_self`, a link of `_rid`s, stays valid.
    let of_renamed = world.send(HttpRequest::new("GET", "/dbs/d/users/two/permissions/p")).await;
    assert_eq!(of_renamed.status, 200);
    let by_rid = format!("/{}", text(&body(&of_renamed), "_self").trim_end_matches('/'));
    assert_eq!(world.send(HttpRequest::new("GET", by_rid)).await.status, 200);
    assert_eq!(world.send(HttpRequest::new("DELETE", "/dbs/d/users/two")).await.status, 204);
    assert_eq!(world.send(HttpRequest::new("GET", "/dbs/d/users/two/permissions/p")).await.status, 404);
    let empty = world.send(HttpRequest::new("GET", "/dbs/d/users")).await;
    assert!(empty.text().contains(r#""Users":[]"#), "{}", empty.text());
    world.stop().await;
}

#[tokio::test]
async fn bad_permissions_and_expiries_are_refused() {
    let world = World::new(PLAIN_CONTAINER).await;
    world.send(post("/dbs/d/users", r#"{"id":"u"}"#)).await;
    for bad in [
        r#"{"id":"p","permissionMode":"Write","resource":"dbs/d/colls/c"}"#,
        r#"{"id":"p","permissionMode":"All"}"#,
        r#"{"id":"p","permissionMode":"All","resource":"dbs/d/colls/c","resourcePartitionKey":"a"}"#,
        r#"{"permissionMode":"All","resource":"dbs/d/colls/c"}"#,
    ] {
        let refused = world.send(post("/dbs/d/users/u/permissions", bad)).await;
        assert_eq!(refused.status, 400, "{bad}: {}", refused.text());
    }
    let good = r#"{"id":"p","permissionMode":"All","resource":"dbs/d/colls/c"}"#;
    for seconds in ["0", "86401", "soon"] {
        let call = post("/dbs/d/users/u/permissions", good).header("x-ms-documentdb-expiry-seconds", seconds);
        assert_eq!(world.send(call).await.status, 400, "{seconds}");
    }
    assert_eq!(world.send(post("/dbs/d/users/nobody/permissions", good)).await.status, 404);
    world.stop().await;
}

#[tokio::test]
async fn a_read_token_of_a_container_reads_and_changes_nothing() {
    let (world, token) =
        world_with_permission(&format!(r#""permissionMode":"Read","resource":"{CONTAINER}""#)).await;
    for call in [
        HttpRequest::new("GET", "/"),
        HttpRequest::new("GET", "/dbs/d/colls/c"),
        HttpRequest::new("GET", "/dbs/d/colls/c/pkranges"),
        HttpRequest::new("GET", "/dbs/d/colls/c/docs"),
        docs("GET", "1", r#"["a"]"#),
        cross_partition("SELECT * FROM c"),
    ] {
        assert_eq!(status(&world, call.clone(), &token).await, 200, "{call:?}");
    }
    let new = json(r#"{"id":"2","pk":"a"}"#);
    for call in [
        docs("POST", "", r#"["a"]"#).json(&new),
        docs("PUT", "1", r#"["a"]"#).json(&json(r#"{"id":"1","pk":"a","n":1}"#)),
        docs("DELETE", "1", r#"["a"]"#),
        batch(r#"["a"]"#, r#"[{"operationType":"Read","id":"1"}]"#),
        HttpRequest::new("DELETE", "/dbs/d/colls/c"),
        HttpRequest::new("GET", "/dbs/d"),
        HttpRequest::new("GET", "/dbs/d/users"),
        HttpRequest::new("GET", "/offers"),
        HttpRequest::new("GET", "/dbs/d/colls"),
    ] {
        let refused = world.send(with_token(call.clone(), &token)).await;
        assert_eq!(refused.status, 403, "{call:?}: {}", refused.text());
        assert!(refused.text().contains("Insufficient permissions provided"), "{}", refused.text());
    }
    assert_eq!(world.query("SELECT * FROM c").await.len(), 2);
    world.stop().await;
}

#[tokio::test]
async fn a_token_with_a_partition_key_reaches_only_that_key() {
    let members = format!(r#""permissionMode":"All","resource":"{CONTAINER}","resourcePartitionKey":["a"]"#);
    let (world, token) = world_with_permission(&members).await;
    let in_a = query("SELECT * FROM c").header("x-ms-documentdb-partitionkey", r#"["a"]"#);
    let found = world.send(with_token(in_a.clone(), &token)).await;
    assert_eq!((found.status, documents(&found).len()), (200, 1));
    let new = json(r#"{"id":"2","pk":"a"}"#);
    assert_eq!(status(&world, docs("POST", "", r#"["a"]"#).json(&new), &token).await, 201);
    assert_eq!(status(&world, docs("DELETE", "2", r#"["a"]"#), &token).await, 204);
    for call in [
        docs("GET", "1", r#"["b"]"#),
        cross_partition("SELECT * FROM c"),
        HttpRequest::new("GET", "/dbs/d/colls/c/docs"),
        in_a.header("x-ms-documentdb-partitionkeyrangeid", "0"),
        docs("GET", "1", r#"["a"]"#).header("x-ms-start-epk", "00"),
        HttpRequest::new("DELETE", "/dbs/d/colls/c"),
        HttpRequest::new("GET", "/dbs/d/colls/c/sprocs"),
    ] {
        assert_eq!(status(&world, call.clone(), &token).await, 403, "{call:?}");
    }
    world.stop().await;
}

#[tokio::test]
async fn a_token_of_a_document_reaches_only_that_document() {
    let members =
        format!(r#""permissionMode":"All","resource":"{CONTAINER}/docs/1","resourcePartitionKey":["a"]"#);
    let (world, token) = world_with_permission(&members).await;
    assert_eq!(world.create(r#"["a"]"#, r#"{"id":"2","pk":"a"}"#).await.status, 201);
    assert_eq!(status(&world, docs("GET", "1", r#"["a"]"#), &token).await, 200);
    assert_eq!(status(&world, docs("GET", "1", r#"["b"]"#), &token).await, 403);
    assert_eq!(status(&world, docs("GET", "2", r#"["a"]"#), &token).await, 403);
    assert_eq!(status(&world, cross_partition("SELECT * FROM c"), &token).await, 403);
    assert_eq!(status(&world, docs("DELETE", "1", r#"["a"]"#), &token).await, 204);
    // A permission may also name the document by its `_self`.
    let link = text(&body(&world.read(r#"["b"]"#, "1").await), "_self").to_owned();
    let permission = format!(r#"{{"id":"q","permissionMode":"Read","resource":"{link}"}}"#);
    let created = world.send(post("/dbs/d/users/u/permissions", &permission)).await;
    let token = text(&body(&created), "_token").to_owned();
    assert_eq!(status(&world, docs("GET", "1", r#"["b"]"#), &token).await, 200);
    assert_eq!(status(&world, docs("GET", "2", r#"["a"]"#), &token).await, 403);
    world.stop().await;
}

#[tokio::test]
async fn a_token_allows_nothing_once_its_permission_is_deleted_and_a_forged_token_is_refused() {
    let (world, token) =
        world_with_permission(&format!(r#""permissionMode":"Read","resource":"{CONTAINER}""#)).await;
    let read = || docs("GET", "1", r#"["a"]"#);
    assert_eq!(status(&world, read(), &token).await, 200);
    let (signature, content) = token.split_once(';').expect("a signature and a content");
    let other = content.replacen(|c: char| c.is_ascii_lowercase(), "Z", 1);
    for forged in
        [format!("{signature};{other}"), format!("{signature};"), "type=resource&ver=1&sig=AAAA;AAAA;".into()]
    {
        assert_eq!(status(&world, read(), &forged).await, 401, "{forged}");
    }
    assert_eq!(world.send(HttpRequest::new("DELETE", "/dbs/d/users/u/permissions/p")).await.status, 204);
    assert_eq!(status(&world, read(), &token).await, 403);
    assert_eq!(status(&world, HttpRequest::new("GET", "/"), &token).await, 403);
    world.stop().await;
}

#[tokio::test]
async fn a_deleted_database_has_no_users_when_it_is_created_again() {
    let (world, token) =
        world_with_permission(&format!(r#""permissionMode":"Read","resource":"{CONTAINER}""#)).await;
    assert_eq!(world.send(HttpRequest::new("DELETE", "/dbs/d")).await.status, 204);
    assert_eq!(world.send(post("/dbs", r#"{"id":"d"}"#)).await.status, 201);
    assert_eq!(world.send(HttpRequest::new("GET", "/dbs/d/users/u")).await.status, 404);
    assert_eq!(status(&world, HttpRequest::new("GET", "/"), &token).await, 403);
    world.stop().await;
}
