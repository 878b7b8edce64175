//! Tests of the operations on items that the recorded cases do not cover.

use perihelion_model::json::Value;
use perihelion_testkit::http_client::HttpRequest;

use crate::world::{PLAIN_CONTAINER, World, docs, json, text};

#[tokio::test]
async fn a_stale_etag_changes_nothing() {
    let world = World::new(PLAIN_CONTAINER).await;
    let first = world.create(r#"["a"]"#, r#"{"id":"1","pk":"a","n":1}"#).await;
    let old = first.header("etag").unwrap().to_owned();
    let put = |etag: &str, n: i64| {
        docs("PUT", "1", r#"["a"]"#)
            .header("if-match", etag)
            .json(&json(&format!(r#"{{"id":"1","pk":"a","n":{n}}}"#)))
    };
    assert_eq!(world.send(put(&old, 2)).await.status, 200);
    let refused = world.send(put(&old, 3)).await;
    assert_eq!((refused.status, refused.header("x-ms-request-charge")), (412, Some("1.24")));
    assert_eq!(world.send(docs("DELETE", "1", r#"["a"]"#).header("if-match", &old)).await.status, 412);
    let patch = docs("PATCH", "1", r#"["a"]"#).header("if-match", &old);
    assert_eq!(world.send(patch.json(&json(r#"[{"op":"set","path":"/n","value":4}]"#))).await.status, 412);
    assert_eq!(world.read(r#"["a"]"#, "1").await.json().unwrap().get("n"), Some(&2i64.into()));
    world.stop().await;
}

#[tokio::test]
async fn if_none_match_star_creates_only_once() {
    let world = World::new(PLAIN_CONTAINER).await;
    let upsert = || {
        docs("POST", "", r#"["a"]"#)
            .header("x-ms-documentdb-is-upsert", "True")
            .header("if-none-match", "*")
            .json(&json(r#"{"id":"1","pk":"a"}"#))
    };
    assert_eq!(world.send(upsert()).await.status, 201);
    assert_eq!(world.send(upsert()).await.status, 412);
    world.stop().await;
}

#[tokio::test]
async fn every_legal_character_survives_in_ids_and_keys() {
    let world = World::new(PLAIN_CONTAINER).await;
    for (encoded, id) in [
        ("a%20b", "a b"),
        ("%C3%A9%E6%9D%B1", "é東"),
        ("%F0%9F%9A%80", "🚀"),
        ("a%2Bb%26c%3Dd", "a+b&c=d"),
        ("%22quoted%22", "\"quoted\""),
        ("100%25", "100%"),
        ("q%3Fh%23", "q?h#"),
        ("dots..", "dots.."),
        ("$batch'();:@,!~*", "$batch'();:@,!~*"),
    ] {
        let key = perihelion_model::json::to_text(
            &Value::Array(vec![id.into()]),
            perihelion_model::json::Style::Point,
        );
        let body = perihelion_model::json::object([("id", id.into()), ("pk", id.into())]);
        let created = world.send(docs("POST", "", &key).json(&body)).await;
        assert_eq!(created.status, 201, "{id}: {}", created.text());
        let read = world.send(docs("GET", encoded, &key)).await;
        assert_eq!(read.status, 200, "{id}: {}", read.text());
        assert_eq!(text(&read.json().unwrap(), "id"), id);
        assert_eq!(world.send(docs("DELETE", encoded, &key)).await.status, 204, "{id}");
    }
    for id in ["a/b", "a\\b", ""] {
        let body = perihelion_model::json::object([("id", id.into()), ("pk", "x".into())]);
        assert_eq!(world.send(docs("POST", "", r#"["x"]"#).json(&body)).await.status, 400, "{id}");
    }
    world.stop().await;
}

#[tokio::test]
async fn resources_can_be_addressed_by_rid() {
    let world = World::new(PLAIN_CONTAINER).await;
    let created = world.create(r#"["a"]"#, r#"{"id":"1","pk":"a"}"#).await.json().unwrap();
    let link = format!("/{}", text(&created, "_self"));
    let read = world
        .send(
            HttpRequest::new("GET", link.trim_end_matches('/'))
                .header("x-ms-documentdb-partitionkey", r#"["a"]"#),
        )
        .await;
    assert_eq!(read.status, 200, "{}", read.text());
    assert_eq!(text(&read.json().unwrap(), "id"), "1");
    world.stop().await;
}

/// Story of a bug: a document was looked up by its `_rid` before its id. Say that `R` is the `_rid`
/// of the document `victim` in partition `a`. A delete of the id `R` in partition `b` deleted the
/// document `victim` of partition `b`.
#[tokio::test]
async fn an_id_that_is_another_documents_rid_is_an_id() {
    let world = World::new(PLAIN_CONTAINER).await;
    let other = world.create(r#"["a"]"#, r#"{"id":"victim","pk":"a"}"#).await.json().unwrap();
    let rid = text(&other, "_rid");
    world.create(r#"["b"]"#, r#"{"id":"victim","pk":"b"}"#).await;
    assert_eq!(world.send(docs("DELETE", &rid, r#"["b"]"#)).await.status, 404);
    assert_eq!(world.read(r#"["b"]"#, "victim").await.status, 200);
    let named = world.create(r#"["b"]"#, &format!(r#"{{"id":"{rid}","pk":"b"}}"#)).await;
    assert_eq!(named.status, 201, "{}", named.text());
    assert_eq!(text(&world.read(r#"["b"]"#, &rid).await.json().unwrap(), "id"), rid);
    assert_eq!(world.send(docs("DELETE", &rid, r#"["b"]"#)).await.status, 204);
    assert_eq!(world.read(r#"["b"]"#, "victim").await.status, 200);
    // Through a path of `_rid`s, the document is found in its own partition only.
    let link = format!("/{}", text(&other, "_self"));
    let by_rid = |method: &str, key: &str| {
        HttpRequest::new(method, link.trim_end_matches('/')).header("x-ms-documentdb-partitionkey", key)
    };
    assert_eq!(world.send(by_rid("DELETE", r#"["b"]"#)).await.status, 404);
    assert_eq!(world.send(by_rid("DELETE", r#"["a"]"#)).await.status, 204);
    assert_eq!(world.send(by_rid("GET", r#"["a"]"#)).await.status, 404);
    assert_eq!(world.read(r#"["b"]"#, "victim").await.status, 200);
    world.stop().await;
}

#[tokio::test]
async fn a_minimal_answer_has_no_body() {
    let world = World::new(PLAIN_CONTAINER).await;
    let call =
        docs("POST", "", r#"["a"]"#).header("prefer", "return=minimal").json(&json(r#"{"id":"1","pk":"a"}"#));
    let created = world.send(call).await;
    assert_eq!((created.status, created.body.len()), (201, 0));
    assert!(created.header("etag").is_some());
    assert_eq!(world.read(r#"["a"]"#, "1").await.status, 200);
    world.stop().await;
}

#[tokio::test]
async fn a_unique_key_is_enforced_within_a_partition_and_is_free_after_a_change() {
    let container = r#"{"id":"c","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2},"uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/mail","/realm"]}]}}"#;
    let world = World::new(container).await;
    let item =
        |id: &str, pk: &str, mail: &str| format!(r#"{{"id":"{id}","pk":"{pk}","mail":"{mail}","realm":1}}"#);
    assert_eq!(world.create(r#"["a"]"#, &item("1", "a", "x")).await.status, 201);
    let refused = world.create(r#"["a"]"#, &item("2", "a", "x")).await;
    assert_eq!((refused.status, refused.header("x-ms-request-charge")), (409, Some("1.94")));
    assert_eq!(world.create(r#"["b"]"#, &item("2", "b", "x")).await.status, 201);
    // A document does not conflict with itself. A new value frees the old value.
    let replaced = docs("PUT", "1", r#"["a"]"#).json(&json(&item("1", "a", "y")));
    assert_eq!(world.send(replaced).await.status, 200);
    assert_eq!(world.create(r#"["a"]"#, &item("2", "a", "x")).await.status, 201);
    let clash = docs("PATCH", "2", r#"["a"]"#).json(&json(r#"[{"op":"set","path":"/mail","value":"y"}]"#));
    assert_eq!(world.send(clash).await.status, 409);
    assert_eq!(world.send(docs("DELETE", "1", r#"["a"]"#)).await.status, 204);
    assert_eq!(world.create(r#"["a"]"#, &item("3", "a", "y")).await.status, 201);
    world.stop().await;
}

#[tokio::test]
async fn a_partition_key_of_more_than_two_kilobytes_is_refused() {
    let world = World::new(PLAIN_CONTAINER).await;
    for (length, expected) in [(2048, 201), (2049, 400)] {
        let key = "k".repeat(length);
        let created = world.create(&format!(r#"["{key}"]"#), &format!(r#"{{"id":"1","pk":"{key}"}}"#)).await;
        assert_eq!(created.status, expected, "{}", created.text());
    }
    world.stop().await;
}

/// Story of a bug: unique keys treated any two arrays as equal, and any two objects.
#[tokio::test]
async fn a_unique_key_compares_arrays_and_objects_by_their_contents() {
    let container = r#"{"id":"c","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2},"uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/u"]}]}}"#;
    let world = World::new(container).await;
    let mut id = 0;
    for (value, expected) in [
        ("[1]", 201),
        ("[2]", 201),
        ("[1,2]", 201),
        ("[1]", 409),
        (r#"{"a":1,"b":[2]}"#, 201),
        (r#"{"a":1,"b":[3]}"#, 201),
        (r#"{"b":[2],"a":1}"#, 409),
        ("[]", 201),
        ("{}", 201),
        ("[[]]", 201),
        ("{}", 409),
    ] {
        id += 1;
        let created = world.create(r#"["a"]"#, &format!(r#"{{"id":"{id}","pk":"a","u":{value}}}"#)).await;
        assert_eq!(created.status, expected, "{value}: {}", created.text());
    }
    world.stop().await;
}

#[tokio::test]
async fn a_patch_is_atomic_and_respects_its_condition() {
    let world = World::new(PLAIN_CONTAINER).await;
    world.create(r#"["a"]"#, r#"{"id":"1","pk":"a","n":1,"list":[1,2]}"#).await;
    let patch = |body: &str| docs("PATCH", "1", r#"["a"]"#).json(&json(body));
    let fails_at_second =
        r#"{"operations":[{"op":"incr","path":"/n","value":5},{"op":"remove","path":"/nope"}]}"#;
    assert_eq!(world.send(patch(fails_at_second)).await.status, 400);
    assert_eq!(world.read(r#"["a"]"#, "1").await.json().unwrap().get("n"), Some(&1i64.into()));
    let false_condition =
        r#"{"condition":"from c where c.n > 1","operations":[{"op":"set","path":"/n","value":9}]}"#;
    let unmet = world.send(patch(false_condition)).await;
    assert_eq!((unmet.status, unmet.header("x-ms-substatus")), (412, Some("1110")));
    let true_condition = r#"{"condition":"from c where c.n = 1","operations":[{"op":"add","path":"/list/-","value":3},{"op":"move","from":"/n","path":"/m"}]}"#;
    let done = world.send(patch(true_condition)).await;
    assert_eq!(done.status, 200, "{}", done.text());
    let document = done.json().unwrap();
    assert_eq!(document.get("list"), Some(&json("[1,2,3]")));
    assert_eq!((document.get("n"), document.get("m")), (None, Some(&1i64.into())));
    assert_eq!(world.send(patch(r#"[{"op":"set","path":"/pk","value":"b"}]"#)).await.status, 400);
    assert_eq!(world.send(patch(r#"[{"op":"set","path":"/id","value":"b"}]"#)).await.status, 400);
    world.stop().await;
}

#[tokio::test]
async fn a_request_that_names_another_container_rid_is_refused() {
    let world = World::new(PLAIN_CONTAINER).await;
    let call = docs("GET", "1", r#"["a"]"#).header("x-ms-cosmos-intended-collection-rid", "AAAAAQAAAAA=");
    let refused = world.send(call).await;
    assert_eq!((refused.status, refused.header("x-ms-substatus")), (400, Some("1024")));
    world.stop().await;
}

#[tokio::test]
async fn binary_json_bodies_are_accepted() {
    let world = World::new(PLAIN_CONTAINER).await;
    let body = perihelion_wire::binary_json::encode(&json(r#"{"id":"1","pk":"a","n":[1,2.5,"x",null]}"#));
    let call = docs("POST", "", r#"["a"]"#).header("content-type", "application/json").body(body);
    let created = world.send(call).await;
    assert_eq!(created.status, 201, "{}", created.text());
    assert_eq!(
        world.read(r#"["a"]"#, "1").await.json().unwrap().get("n"),
        Some(&json(r#"[1,2.5,"x",null]"#))
    );
    let broken =
        docs("POST", "", r#"["a"]"#).header("content-type", "application/json").body(vec![0x80, 0xEE, 1]);
    assert_eq!(world.send(broken).await.status, 400);
    world.stop().await;
}

#[tokio::test]
async fn an_expired_item_is_invisible_and_its_id_can_be_used_again() {
    let container =
        r#"{"id":"c","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2},"defaultTtl":-1}"#;
    let world = World::new(container).await;
    // Expiry counts whole seconds: with a ttl of 1 the item could expire before the query.
    world.create(r#"["a"]"#, r#"{"id":"1","pk":"a","ttl":2}"#).await;
    world.create(r#"["a"]"#, r#"{"id":"2","pk":"a"}"#).await;
    assert_eq!(world.query("SELECT c.id FROM c").await.len(), 2);
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(5);
    while world.read(r#"["a"]"#, "1").await.status == 200 {
        assert!(std::time::Instant::now() < deadline, "the item exists after its time to live");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    assert_eq!(world.query("SELECT c.id FROM c").await, [json(r#"{"id":"2"}"#)]);
    assert_eq!(world.create(r#"["a"]"#, r#"{"id":"1","pk":"a","ttl":100}"#).await.status, 201);
    assert_eq!(world.create(r#"["a"]"#, r#"{"id":"3","pk":"a","ttl":0}"#).await.status, 400);
    world.stop().await;
}

#[tokio::test]
async fn a_new_default_ttl_applies_to_existing_items() {
    let options = perihelion_server::ServerOptions { management: true, ..Default::default() };
    let world = World::with_options(options, PLAIN_CONTAINER).await;
    world.create(r#"["a"]"#, r#"{"id":"1","pk":"a","ttl":1}"#).await;
    world.create(r#"["a"]"#, r#"{"id":"2","pk":"a","ttl":-1}"#).await;
    let replace = |ttl: &str| {
        let body = PLAIN_CONTAINER.replace("\"id\":\"c\"", &format!("\"id\":\"c\"{ttl}"));
        HttpRequest::new("PUT", "/dbs/d/colls/c").json(&json(&body))
    };
    assert_eq!(world.send(replace(",\"defaultTtl\":1000")).await.status, 200);
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(5);
    while world.read(r#"["a"]"#, "1").await.status == 200 {
        assert!(std::time::Instant::now() < deadline, "the item exists after its time to live");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    // Maintenance removes document 1 and no other document. Without a default time to live, an expired
    // document that was not removed would be in the answer.
    world.manage("POST", "maintain", "").await;
    assert_eq!(world.send(replace("")).await.status, 200);
    assert_eq!(world.query("SELECT VALUE c.id FROM c").await, [Value::from("2")]);
    world.stop().await;
}
