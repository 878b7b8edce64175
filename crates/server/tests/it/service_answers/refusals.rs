//! Refusals with the service's texts.

use perihelion_testkit::http_client::HttpRequest;

use crate::world::{PLAIN_CONTAINER, World, batch, docs, json};

/// Checks that a request is refused as a bad request with this text in its body.
async fn check(world: &World, call: HttpRequest, expected: &str) {
    let refused = world.send(call.clone()).await;
    assert_eq!(refused.status, 400, "{call:?}: {}", refused.text());
    assert!(refused.text().contains(expected), "{call:?}: {}", refused.text());
}

#[tokio::test]
async fn an_empty_batch_is_refused() {
    let world = World::new(PLAIN_CONTAINER).await;
    check(&world, batch(r#"["a"]"#, "[]"), "Batch request has no operations.").await;
    world.stop().await;
}

#[tokio::test]
async fn a_query_of_conflicts_needs_a_key_or_the_cross_partition_header() {
    let world = World::new(PLAIN_CONTAINER).await;
    let conflicts = || {
        HttpRequest::new("POST", "/dbs/d/colls/c/conflicts")
            .header("content-type", "application/query+json")
            .body(r#"{"query":"SELECT * FROM c"}"#)
    };
    check(&world, conflicts(), "Cross partition query is required but disabled").await;
    for (name, value) in
        [("x-ms-documentdb-partitionkey", r#"["a"]"#), ("x-ms-documentdb-query-enablecrosspartition", "True")]
    {
        assert_eq!(world.send(conflicts().header(name, value)).await.status, 200);
    }
    assert_eq!(world.send(HttpRequest::new("GET", "/dbs/d/colls/c/conflicts")).await.status, 200);
    world.stop().await;
}

#[tokio::test]
async fn bad_key_paths_are_refused_with_their_position() {
    let world = World::new(PLAIN_CONTAINER).await;
    let create = |paths: &str, kind: &str| {
        let body = format!(r#"{{"id":"x","partitionKey":{{"paths":{paths},"kind":"{kind}","version":2}}}}"#);
        HttpRequest::new("POST", "/dbs/d/colls").json(&json(&body))
    };
    check(&world, create(r#"["id"]"#, "Hash"), "path 'id' could not be accepted, failed near position '0'")
        .await;
    check(&world, create(r#"["/a @#"]"#, "Hash"), "failed near position '3'").await;
    check(&world, create(r#"["/id","/b/"]"#, "MultiHash"), "path '/b/' could not be accepted").await;
    let many = create(r#"["/a","/b","/c","/d"]"#, "MultiHash");
    check(&world, many, "Too many partition key paths (4) specified. A maximum of 3 is allowed.").await;
    check(&world, create(r#"["/a","/b"]"#, "Hash"), "Too many partition key paths (2)").await;
    world.stop().await;
}

#[tokio::test]
async fn a_key_with_too_few_levels_is_refused() {
    let world =
        World::new(r#"{"id":"c","partitionKey":{"paths":["/a","/b"],"kind":"MultiHash","version":2}}"#).await;
    let short = "Partition key provided either doesn't correspond to definition in the collection";
    let body = r#"{"id":"1","a":"x"}"#;
    check(&world, docs("POST", "", r#"["x"]"#).json(&json(body)), short).await;
    check(&world, docs("GET", "1", r#"["x"]"#), short).await;
    let create = r#"[{"operationType":"Create","resourceBody":{"id":"1","a":"x","b":"y"}}]"#;
    check(&world, batch(r#"["x"]"#, create), short).await;
    check(&world, docs("POST", "", "[]").json(&json(body)), "Partition key [[]] is invalid").await;
    let missing = docs("POST", "", "").json(&json(body));
    check(&world, missing, "fewer components than defined in the the collection").await;
    world.stop().await;
}

#[tokio::test]
async fn long_and_empty_ids_are_refused_with_their_limit() {
    let world = World::new(PLAIN_CONTAINER).await;
    for name in ["", &"x".repeat(256)] {
        let body = format!(r#"{{"id":"{name}","partitionKey":{{"paths":["/pk"],"kind":"Hash"}}}}"#);
        let expected = "Ensure to provide a unique non-empty string less than '255' characters.";
        check(&world, HttpRequest::new("POST", "/dbs/d/colls").json(&json(&body)), expected).await;
        check(&world, HttpRequest::new("POST", "/dbs").json(&json(&body)), expected).await;
    }
    let body = format!(r#"{{"id":"{}","pk":"a"}}"#, "x".repeat(1024));
    let create = docs("POST", "", r#"["a"]"#).json(&json(&body));
    check(&world, create, "unique non-empty string less than '1024' characters").await;
    world.stop().await;
}

#[tokio::test]
async fn spatial_indexes_and_change_feed_policies_are_checked() {
    let world = World::new(PLAIN_CONTAINER).await;
    let create = |rest: &str| {
        let body = format!(r#"{{"id":"x","partitionKey":{{"paths":["/pk"],"kind":"Hash"}},{rest}}}"#);
        HttpRequest::new("POST", "/dbs/d/colls").json(&json(&body))
    };
    let index = r#""indexingPolicy":{"spatialIndexes":[{"path":"/a/?","types":["Polygon"]}]}"#;
    let plane = format!(r#"{index},"geospatialConfig":{{"type":"Geometry"}}"#);
    check(&world, create(&plane), "needs a 'boundingBox'").await;
    let retention = "'retentionDuration' must be a whole number of minutes that is not negative.";
    check(&world, create(r#""changeFeedPolicy":{"retentionDuration":-1}"#), retention).await;
    assert_eq!(world.send(create(index)).await.status, 201);
    world.stop().await;
}
