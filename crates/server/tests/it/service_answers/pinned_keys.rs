//! Queries with a pinned partition key: the filter gives values for the whole key, or for its first
//! levels.

use perihelion_model::json::Value;
use perihelion_server::ServerOptions;
use perihelion_testkit::http_client::HttpRequest;

use crate::world::{World, documents, ids, query, text};

const HIERARCHICAL: &str =
    r#"{"id":"c","partitionKey":{"paths":["/city","/zip"],"kind":"MultiHash","version":2}}"#;

/// A server with four ranges and twelve documents: three cities with four zip codes each.
async fn world(is_strict: bool) -> World {
    let mut options = ServerOptions::default();
    options.account.partitions = 4;
    options.account.strict_gateway = is_strict;
    let world = World::with_options(options, HIERARCHICAL).await;
    for (n, city) in ["a", "b", "c"].into_iter().enumerate() {
        for zip in 0..4 {
            let body = format!(r#"{{"id":"{city}{zip}","city":"{city}","zip":{zip},"n":{n}}}"#);
            assert_eq!(world.create(&format!(r#"["{city}",{zip}]"#), &body).await.status, 201);
        }
    }
    world
}

#[tokio::test]
async fn a_filter_on_the_whole_key_needs_no_cross_partition_header() {
    for is_strict in [false, true] {
        let world = world(is_strict).await;
        for (statement, expected) in [
            ("SELECT * FROM c WHERE c.city = 'a' AND c.zip = 1", ["a1"].as_slice()),
            ("SELECT * FROM c WHERE c.zip IN (2) AND c.city = 'b' ORDER BY c.id", &["b2"]),
            ("SELECT * FROM c WHERE c.city = 'a' AND c.zip = 99", &[]),
        ] {
            let answer = world.send(query(statement)).await;
            assert_eq!(answer.status, 200, "{statement}: {}", answer.text());
            assert_eq!(ids(&documents(&answer)), expected, "{statement}");
        }
        for statement in [
            "SELECT * FROM c",
            "SELECT * FROM c WHERE c.city = 'a'",
            "SELECT * FROM c WHERE c.city = 'a' OR c.zip = 1",
            "SELECT * FROM c WHERE c.city = 'a' AND c.zip IN (1, 2)",
        ] {
            let refused = world.send(query(statement)).await;
            assert_eq!(refused.status, 400, "{statement}: {}", refused.text());
            assert!(refused.text().contains("Cross partition query is required but disabled"));
        }
        world.stop().await;
    }
}

#[tokio::test]
async fn a_plan_for_a_prefix_of_the_key_names_the_range_of_the_prefix() {
    let world = world(false).await;
    let plan = |statement: &str| {
        let request = query(statement).header("x-ms-cosmos-is-query-plan-request", "True");
        let request: HttpRequest = request.header("x-ms-cosmos-supported-query-features", "OrderBy");
        world.send(request)
    };
    let answer = plan("SELECT * FROM c WHERE c.city = 'a' ORDER BY c.n").await;
    let body = answer.json().unwrap();
    let ranges = body.get("queryRanges").and_then(Value::as_array).unwrap().to_vec();
    assert_eq!(ranges.len(), 1, "{}", answer.text());
    let (min, max) = (text(&ranges[0], "min"), text(&ranges[0], "max"));
    assert_eq!(min.len(), 32, "one level of the hash");
    assert_eq!(max, format!("{min}FF"));
    assert_eq!(ranges[0].get("isMaxInclusive").and_then(Value::as_bool), Some(false));

    // The range holds exactly the documents of the prefix.
    let found = world
        .send(query("SELECT * FROM c").header("x-ms-start-epk", &min).header("x-ms-end-epk", &max))
        .await;
    let mut found = ids(&documents(&found));
    found.sort();
    assert_eq!(found, ["a0", "a1", "a2", "a3"]);

    let two = plan("SELECT * FROM c WHERE c.city IN ('a', 'b') ORDER BY c.n").await.json().unwrap();
    assert_eq!(two.get("queryRanges").and_then(Value::as_array).unwrap().len(), 2);
    world.stop().await;
}
