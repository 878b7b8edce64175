//! What a query reports about itself, and what `--strict-index` refuses.

use base64::Engine as _;
use perihelion_model::json::{self, Value};
use perihelion_server::ServerOptions;
use perihelion_testkit::http_client::HttpResponse;

use crate::world::{PLAIN_CONTAINER, World, documents, query, text};

const POLICY: &str = r#"{"id":"c","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2},"indexingPolicy":
    {"includedPaths":[{"path":"/*"}],"excludedPaths":[{"path":"/hidden/?"}],
    "compositeIndexes":[[{"path":"/a","order":"ascending"},{"path":"/b","order":"descending"}]]}}"#;

/// Runs a query in the partition `a` with both kinds of metrics.
async fn run(world: &World, statement: &str) -> HttpResponse {
    let call = query(statement)
        .header("x-ms-documentdb-partitionkey", r#"["a"]"#)
        .header("x-ms-cosmos-populateindexmetrics", "True")
        .header("x-ms-documentdb-populatequerymetrics", "True");
    world.send(call).await
}

/// The index specs of one section of a report.
fn specs(answer: &HttpResponse, section: &str) -> Vec<String> {
    let header = answer.header("x-ms-cosmos-index-utilization").expect("the report");
    let report = base64::engine::general_purpose::STANDARD.decode(header).expect("base64");
    let report = json::parse(&report).expect("JSON");
    let entries = report.get(section).and_then(Value::as_array).expect("the section").to_vec();
    entries
        .iter()
        .filter(|entry| entry.get("IndexSpec").is_some())
        .map(|entry| text(entry, "IndexSpec"))
        .collect()
}

#[tokio::test]
async fn a_query_reports_the_indexes_that_it_used() {
    let world = World::new(POLICY).await;
    world.create(r#"["a"]"#, r#"{"id":"1","pk":"a","a":1,"b":2,"hidden":3}"#).await;
    let whole = run(&world, "SELECT * FROM c").await;
    assert_eq!(specs(&whole, "UtilizedSingleIndexes"), ["/pk/?"]);
    assert!(specs(&whole, "PotentialSingleIndexes").is_empty());
    let filtered = run(&world, "SELECT * FROM c WHERE c.a = 1 AND c.hidden = 3").await;
    assert_eq!(specs(&filtered, "UtilizedSingleIndexes"), ["/pk/?", "/a/?"]);
    assert_eq!(specs(&filtered, "PotentialSingleIndexes"), ["/hidden/?"]);
    world.stop().await;
}

#[tokio::test]
async fn query_metrics_have_times_and_a_count_retrieves_no_document() {
    let world = World::new(PLAIN_CONTAINER).await;
    for n in 0..5 {
        world.create(r#"["a"]"#, &format!(r#"{{"id":"{n}","pk":"a"}}"#)).await;
    }
    let metric = |answer: &HttpResponse, name: &str| -> f64 {
        let metrics = answer.header("x-ms-documentdb-query-metrics").expect("the metrics");
        let entry = metrics.split(';').find_map(|entry| entry.strip_prefix(&format!("{name}=")));
        entry.expect(name).parse().expect("a number")
    };
    let whole = run(&world, "SELECT * FROM c").await;
    assert!(metric(&whole, "totalExecutionTimeInMs") > 0.0);
    assert_eq!(metric(&whole, "retrievedDocumentCount"), 5.0);
    assert!(metric(&whole, "retrievedDocumentSize") > 0.0);
    let count = run(&world, "SELECT VALUE COUNT(1) FROM c").await;
    assert_eq!(metric(&count, "retrievedDocumentCount"), 0.0);
    assert_eq!(metric(&count, "outputDocumentCount"), 1.0);
    let filtered = run(&world, "SELECT VALUE COUNT(1) FROM c WHERE c.id != '1'").await;
    assert_eq!(metric(&filtered, "retrievedDocumentCount"), 5.0, "this count reads documents");
    world.stop().await;
}

#[tokio::test]
async fn strict_index_refuses_what_the_policy_does_not_cover() {
    for is_strict in [false, true] {
        let mut options = ServerOptions::default();
        options.account.strict_index = is_strict;
        let world = World::with_options(options, POLICY).await;
        for statement in [
            "SELECT * FROM c ORDER BY c.a, c.b DESC",
            "SELECT * FROM c ORDER BY c.a DESC, c.b",
            "SELECT * FROM c WHERE c.a = 1",
        ] {
            assert_eq!(run(&world, statement).await.status, 200, "{statement}");
        }
        for (statement, expected) in [
            ("SELECT * FROM c ORDER BY c.hidden", "order-by item is excluded"),
            ("SELECT * FROM c WHERE c.hidden = 3", "filters against path(s) excluded from indexing"),
        ] {
            let answer = run(&world, statement).await;
            assert_eq!(answer.status, if is_strict { 400 } else { 200 }, "{statement}: {}", answer.text());
            assert_eq!(answer.text().contains(expected), is_strict, "{statement}");
        }
        // A client can allow a scan. Then the query is answered in both modes.
        let scan = query("SELECT * FROM c WHERE c.hidden = 3")
            .header("x-ms-documentdb-partitionkey", r#"["a"]"#)
            .header("x-ms-documentdb-query-enable-scan", "true");
        assert_eq!(documents(&world.send(scan).await).len(), 0);
        world.stop().await;
    }
}

/// In every container, the service refuses an ORDER BY of several properties that has no composite
/// index. So this server refuses it whatever its options are.
#[tokio::test]
async fn order_by_of_several_properties_needs_its_composite_index() {
    let world = World::new(POLICY).await;
    world.create(r#"["a"]"#, r#"{"id":"1","pk":"a","a":1,"b":2}"#).await;
    for served in [
        "SELECT * FROM c ORDER BY c.a, c.b DESC",
        "SELECT * FROM c ORDER BY c.a DESC, c.b",
        "SELECT * FROM c WHERE c.a = 1 ORDER BY c.a, c.b DESC",
        "SELECT TOP 1 VALUE c.id FROM c ORDER BY c.a, c.b DESC",
        "SELECT * FROM c ORDER BY c.z",
        "SELECT c.a, COUNT(1) AS n FROM c GROUP BY c.a",
    ] {
        let answer = run(&world, served).await;
        assert_eq!(answer.status, 200, "{served}: {}", answer.text());
    }
    for refused in [
        // Other directions, another order of the properties, one property more, other properties.
        "SELECT * FROM c ORDER BY c.a, c.b",
        "SELECT * FROM c ORDER BY c.b DESC, c.a",
        "SELECT * FROM c ORDER BY c.a, c.b DESC, c.z",
        "SELECT VALUE c.id FROM c WHERE c.z = 1 ORDER BY c.z, c.id",
    ] {
        let answer = run(&world, refused).await;
        let expected =
            "The order by query does not have a corresponding composite index that it can be served from.";
        assert_eq!(answer.status, 400, "{refused}");
        assert!(answer.text().contains(expected), "{refused}: {}", answer.text());
        assert!(
            answer.header("x-ms-request-charge").is_some() && answer.header("x-ms-session-token").is_some()
        );
    }
    world.stop().await;
}

/// The service has no index of the elements of arrays in the order of their values, and refuses to
/// sort by them.
#[tokio::test]
async fn order_by_of_the_elements_of_an_array_is_refused() {
    let world = World::new(PLAIN_CONTAINER).await;
    world.create(r#"["a"]"#, r#"{"id":"1","pk":"a","n":1,"tags":[{"x":2},{"x":1}]}"#).await;
    for refused in [
        "SELECT VALUE t.x FROM c JOIN t IN c.tags ORDER BY t.x",
        "SELECT VALUE t.x FROM t IN c.tags ORDER BY t.x",
        "SELECT VALUE t FROM c JOIN t IN (SELECT VALUE c.tags) ORDER BY t",
        "SELECT VALUE t.x FROM c JOIN t IN c.tags ORDER BY t[c.name]",
    ] {
        let answer = run(&world, refused).await;
        assert_eq!(answer.status, 400, "{refused}: {}", answer.text());
        let expected = "Order-by over correlated collections is not supported.";
        assert!(answer.text().contains(expected), "{refused}: {}", answer.text());
    }
    for served in [
        "SELECT VALUE t.x FROM c JOIN t IN c.tags ORDER BY c.n",
        "SELECT VALUE AVG(t.x) FROM c JOIN t IN c.tags ORDER BY t.x",
        "SELECT VALUE ARRAY(SELECT VALUE t.x FROM t IN c.tags ORDER BY t.x) FROM c",
    ] {
        let answer = run(&world, served).await;
        assert_eq!(answer.status, 200, "{served}: {}", answer.text());
    }
    world.stop().await;
}

#[tokio::test]
async fn a_division_by_zero_and_a_repeated_alias_are_refused_with_their_codes() {
    let world = World::new(PLAIN_CONTAINER).await;
    world.create(r#"["a"]"#, r#"{"id":"1","pk":"a"}"#).await;
    let failed = run(&world, "SELECT VALUE 1 / 0 FROM c").await;
    assert_eq!((failed.status, failed.header("x-ms-substatus")), (400, Some("4001")));
    let expected = "The query resulted in a numeric value that cannot be represented in JSON, such as infinity or not-a-number.";
    assert!(failed.text().contains(expected), "{}", failed.text());
    let alias = run(&world, "SELECT c.id AS x, c.pk AS x FROM c").await;
    assert_eq!(alias.status, 400);
    for expected in ["SC2022", "'x' is specified more than once in the SELECT list."] {
        assert!(alias.text().contains(expected), "{}", alias.text());
    }
    world.stop().await;
}
