//! Tests of the search policies of containers, and of the plan that a hybrid query needs.

use perihelion_server::{AccountOptions, ServerOptions};
use perihelion_testkit::http_client::HttpRequest;

use crate::world::{World, json, query};

const VECTORS: &str = r#""vectorEmbeddingPolicy":{"vectorEmbeddings":[{"path":"/v","dataType":"float32","dimensions":3,"distanceFunction":"euclidean"}]}"#;

/// The definition of a container with these policies.
fn container(id: &str, policies: &str) -> String {
    format!(r#"{{"id":"{id}","partitionKey":{{"paths":["/pk"],"kind":"Hash","version":2}},{policies}}}"#)
}

#[tokio::test]
async fn search_policies_are_checked_when_a_container_is_created_or_replaced() {
    let world = World::new(&container("c", VECTORS)).await;
    let index = |index: &str| format!(r#"{VECTORS},"indexingPolicy":{{"vectorIndexes":[{index}]}}"#);
    let embedding = |from: &str, to: &str| VECTORS.replace(from, to);
    for (policies, text) in [
        (embedding("float32", "float33"), "an invalid DataType:float33"),
        (embedding(":3", ":5000"), "Dimensions:5000 which is more than the maximum supported value"),
        (embedding(":3", ":-1"), "The Vector Embedding Policy has Dimensions:-1"),
        (embedding("euclidean", "far"), "an invalid DistanceFunction:far"),
        (index(r#"{"path":"/w","type":"flat"}"#), "path::/w not matching in Embedding's path."),
        (index(r#"{"path":"/v","type":"tree"}"#), "Index Type::tree is invalid"),
        (
            index(r#"{"path":"/v","type":"quantizedFlat","quantizationByteSize":4}"#),
            "QuantizationByteSize value :: 4 is out of range. The allowed range is between 1 and 3.",
        ),
        (
            index(r#"{"path":"/v","type":"diskANN","indexingSearchListSize":5}"#),
            "IndexingSearchListSize value :: 5 is out of range. The allowed range is between 25 and 500.",
        ),
        (
            index(r#"{"path":"/v","type":"diskANN","vectorIndexShardKey":["/a","/b"]}"#),
            "The number of shard paths defined in the Vector Indexing Policy: 2 exceeds the maximum: 1.",
        ),
        (
            index(r#"{"path":"/v","type":"diskANN","vectorIndexShardKey":["a"]}"#),
            "The Vector Indexing Policy has an invalid Shard Path: a.",
        ),
        (
            r#""fullTextPolicy":{"defaultLanguage":"xx-XX"}"#.to_owned(),
            "unsupported language xx-XX. Supported",
        ),
        (r#""fullTextPolicy":{"fullTextPaths":[{"path":"t"}]}"#.to_owned(), "contains an invalid Path: t"),
        (
            r#""indexingPolicy":{"fullTextIndexes":[{"path":"/t"}]}"#.to_owned(),
            "The path of the Full Text Index /t does not match the path specified in the Full Text Policy",
        ),
        (
            r#""indexingPolicy":{"fullTextIndexes":[{"not":"/t"}]}"#.to_owned(),
            "Missing path in full-text index specification at index (0)",
        ),
    ] {
        let body = json(&container("refused", &policies));
        let answer = world.send(HttpRequest::new("POST", "/dbs/d/colls").json(&body)).await;
        assert_eq!(answer.status, 400, "{policies}: {}", answer.text());
        assert!(answer.text().contains(text), "{policies}: {}", answer.text());
    }
    let changed = json(&container("c", &embedding(":3", ":4")));
    let answer = world.send(HttpRequest::new("PUT", "/dbs/d/colls/c").json(&changed)).await;
    assert_eq!(answer.status, 400);
    let text = "Paths in existing embedding policy cannot be modified in Collection Replace";
    assert!(answer.text().contains(text), "{}", answer.text());
    world.stop().await;
}

#[tokio::test]
async fn rows_sorted_by_the_distance_of_the_policy_are_all_on_the_first_page() {
    let world = World::new(&container("c", VECTORS)).await;
    for (id, vector) in [("a", "[5,0,0]"), ("b", "[1,0,0]"), ("c", "[2,0,0]"), ("d", "null")] {
        let body = format!(r#"{{"id":"{id}","pk":"{id}","v":{vector}}}"#);
        assert_eq!(world.create(&format!(r#"["{id}"]"#), &body).await.status, 201);
    }
    let text = "SELECT TOP 3 VALUE c.id FROM c ORDER BY VectorDistance(c.v, [0, 0, 0])";
    let call = query(text)
        .header("x-ms-documentdb-query-enablecrosspartition", "true")
        .header("x-ms-max-item-count", "1");
    let answer = world.send(call).await;
    assert!(answer.text().contains(r#""Documents":["b","c","a"]"#), "{}", answer.text());
    assert_eq!(answer.header("x-ms-continuation"), None);
    world.stop().await;
}

#[tokio::test]
async fn a_hybrid_query_in_one_partition_is_one_page_and_over_all_ranges_needs_a_plan() {
    let account = AccountOptions { strict_gateway: true, partitions: 4, ..Default::default() };
    let options = ServerOptions { account, ..Default::default() };
    let world = World::with_options(options, &container("c", VECTORS)).await;
    for (id, text, vector) in
        [("a", "a lake in a far land", "[5,0,0]"), ("b", "lake, lake", "[1,0,0]"), ("c", "a hill", "[0,0,0]")]
    {
        let body = format!(r#"{{"id":"{id}","pk":"p","t":"{text}","v":{vector}}}"#);
        assert_eq!(world.create(r#"["p"]"#, &body).await.status, 201);
    }
    let text = "SELECT TOP 2 VALUE c.id FROM c ORDER BY RANK RRF(FullTextScore(c.t, 'lake'), VectorDistance(c.v, [0, 0, 0]))";
    let in_partition = query(text).header("x-ms-documentdb-partitionkey", r#"["p"]"#);
    let answer = world.send(in_partition.header("x-ms-max-item-count", "1")).await;
    assert!(answer.text().contains(r#""Documents":["b","c"]"#), "{}", answer.text());
    assert!(answer.text().contains(r#""_count":2"#), "{}", answer.text());
    let everywhere = query(text).header("x-ms-documentdb-query-enablecrosspartition", "true");
    let answer = world.send(everywhere).await;
    assert_eq!((answer.status, answer.header("x-ms-substatus")), (400, Some("1004")), "{}", answer.text());
    assert!(answer.text().contains("hybridSearchQueryInfo"), "{}", answer.text());
    world.stop().await;
}

/// Story of a bug: a search whose rows took more than half of the memory was answered with 429 each time,
/// even on a server without other requests. So clients tried again and never succeeded.
#[tokio::test]
async fn a_hybrid_query_that_is_too_large_for_the_server_is_refused_with_400() {
    let mut options = ServerOptions::default();
    options.limits.body_bytes_total = 4 * 1024 * 1024;
    let world = World::with_options(options, &container("c", VECTORS)).await;
    let filler = "a lake ".repeat(1500);
    for n in 0..30 {
        let body = format!(r#"{{"id":"{n}","pk":"p","t":"{filler}"}}"#);
        assert_eq!(world.create(r#"["p"]"#, &body).await.status, 201);
    }
    for (scores, status) in [(2, 200), (6, 400)] {
        let scores = vec!["FullTextScore(c.t, 'lake')"; scores].join(", ");
        let text = format!("SELECT TOP 5 * FROM c ORDER BY RANK RRF({scores})");
        let answer = world.send(query(&text).header("x-ms-documentdb-partitionkey", r#"["p"]"#)).await;
        assert_eq!(answer.status, status, "{:.1000}", answer.text());
        let is_explained = answer.text().contains("ORDER BY RANK has to compare more than 1024 KiB");
        assert_eq!(is_explained, status == 400, "{:.1000}", answer.text());
    }
    world.stop().await;
}
