//! Items: keys that are not scalars, renames, the time to live. Scripts: requests by the self link.

use perihelion_model::json::Value;
use perihelion_testkit::http_client::HttpRequest;

use crate::world::{PLAIN_CONTAINER, World, batch, docs, ids, json, text};

#[tokio::test]
async fn an_object_or_an_array_as_the_partition_key_is_an_undefined_key() {
    let world = World::new(PLAIN_CONTAINER).await;
    for (id, key) in [("1", r#"{"street":"x"}"#), ("2", "[1,2]"), ("3", "{}")] {
        let body = format!(r#"{{"id":"{id}","pk":{key}}}"#);
        assert_eq!(world.create("[{}]", &body).await.status, 201, "{body}");
        assert_eq!(world.read("[{}]", id).await.status, 200);
        assert_eq!(world.create(r#"["x"]"#, &body).await.status, 400);
    }
    assert_eq!(world.create("[{}]", r#"{"id":"1"}"#).await.status, 409, "the same partition");
    world.stop().await;
}

#[tokio::test]
async fn a_key_path_may_have_names_in_single_quotes() {
    let world =
        World::new(r#"{"id":"c","partitionKey":{"paths":["/'level\" 1*()'/'le/vel2'"],"kind":"Hash"}}"#)
            .await;
    let created = world.create(r#"["v"]"#, r#"{"id":"1","level\" 1*()":{"le/vel2":"v"}}"#).await;
    assert_eq!(created.status, 201, "{}", created.text());
    assert_eq!(world.read(r#"["v"]"#, "1").await.status, 200);
    world.stop().await;
}

#[tokio::test]
async fn a_replace_with_another_id_renames_the_document() {
    let world = World::new(PLAIN_CONTAINER).await;
    let created = world.create(r#"["a"]"#, r#"{"id":"old","pk":"a"}"#).await.json().unwrap();
    world.create(r#"["a"]"#, r#"{"id":"taken","pk":"a"}"#).await;
    let put = |id: &str, body: &str| docs("PUT", id, r#"["a"]"#).json(&json(body));

    let taken = world.send(put("old", r#"{"id":"taken","pk":"a"}"#)).await;
    assert_eq!(taken.status, 409, "{}", taken.text());
    assert_eq!(world.read(r#"["a"]"#, "old").await.status, 200, "nothing changed");

    let renamed = world.send(put("old", r#"{"id":"new","pk":"a","n":1}"#)).await;
    assert_eq!(renamed.status, 200, "{}", renamed.text());
    assert_eq!(text(&renamed.json().unwrap(), "_rid"), text(&created, "_rid"));
    assert_eq!(world.read(r#"["a"]"#, "old").await.status, 404);
    assert_eq!(world.read(r#"["a"]"#, "new").await.status, 200);
    assert_eq!(ids(&world.query("SELECT * FROM c").await), ["new", "taken"]);
    assert_eq!(world.create(r#"["a"]"#, r#"{"id":"old","pk":"a"}"#).await.status, 201, "the id is free");
    assert_eq!(world.send(docs("DELETE", "new", r#"["a"]"#)).await.status, 204);
    assert_eq!(world.read(r#"["a"]"#, "new").await.status, 404);
    world.stop().await;
}

#[tokio::test]
async fn a_replace_in_a_batch_renames_too_and_is_undone_with_the_batch() {
    let world = World::new(PLAIN_CONTAINER).await;
    world.create(r#"["a"]"#, r#"{"id":"1","pk":"a"}"#).await;
    let rename = r#"{"operationType":"Replace","id":"1","resourceBody":{"id":"2","pk":"a"}}"#;
    let send = |operations: String| {
        world.send(batch(r#"["a"]"#, &operations).header("x-ms-cosmos-batch-atomic", "True"))
    };
    let failed = format!(r#"[{rename},{{"operationType":"Read","id":"1"}}]"#);
    assert_eq!(send(failed).await.status, 207);
    assert_eq!(world.read(r#"["a"]"#, "1").await.status, 200);
    assert_eq!(send(format!("[{rename}]")).await.status, 200);
    assert_eq!(world.read(r#"["a"]"#, "1").await.status, 404);
    assert_eq!(world.read(r#"["a"]"#, "2").await.status, 200);
    world.stop().await;
}

#[tokio::test]
async fn an_invalid_time_to_live_is_refused_in_every_container() {
    let world = World::new(PLAIN_CONTAINER).await;
    for ttl in ["0", "null", "-10", "\"soon\"", "1.5"] {
        let refused = world.create(r#"["a"]"#, &format!(r#"{{"id":"1","pk":"a","ttl":{ttl}}}"#)).await;
        assert_eq!(refused.status, 400, "{ttl}: {}", refused.text());
    }
    for (id, ttl) in [("1", "-1"), ("2", "100")] {
        let created = world.create(r#"["a"]"#, &format!(r#"{{"id":"{id}","pk":"a","ttl":{ttl}}}"#)).await;
        assert_eq!(created.status, 201, "{}", created.text());
    }
    let patch = docs("PATCH", "1", r#"["a"]"#)
        .json(&json(r#"{"operations":[{"op":"set","path":"/ttl","value":0}]}"#));
    assert_eq!(world.send(patch).await.status, 400);
    world.stop().await;
}

#[tokio::test]
async fn scripts_are_found_by_their_self_link() {
    let world = World::new(PLAIN_CONTAINER).await;
    for kind in ["sprocs", "triggers", "udfs"] {
        let feed = format!("/dbs/d/colls/c/{kind}");
        let body = r#"{"id":"s","body":"function(){}","triggerType":"Pre","triggerOperation":"All"}"#;
        let created = world.send(HttpRequest::new("POST", feed).json(&json(body))).await.json().unwrap();
        let link = format!("/{}", text(&created, "_self"));
        assert_eq!(world.send(HttpRequest::new("GET", link.clone())).await.status, 200, "{link}");
        let replaced = world.send(HttpRequest::new("PUT", link.clone()).json(&json(body))).await;
        assert_eq!(replaced.status, 200, "{}", replaced.text());
        let rid = |body: &Value| text(body, "_rid");
        assert_eq!(rid(&replaced.json().unwrap()), rid(&created), "a replaced script keeps its _rid");
        // In a path of names the server takes the `_rid` for a name, and no script has this name.
        let by_name = format!("/dbs/d/colls/c/{kind}/{}", text(&created, "_rid"));
        assert_eq!(world.send(HttpRequest::new("DELETE", by_name)).await.status, 404);
        assert_eq!(world.send(HttpRequest::new("DELETE", link.clone())).await.status, 204);
        assert_eq!(world.send(HttpRequest::new("GET", link)).await.status, 404);
    }
    world.stop().await;
}
