//! `resumeFilter`: a sorted query that goes on at given values of ORDER BY, as the .NET and Rust
//! SDKs resume the ranges of a merged query.

use perihelion_model::json::Value;
use perihelion_testkit::http_client::HttpRequest;

use crate::world::{PLAIN_CONTAINER, World, documents, query};

/// The rewritten form of `SELECT VALUE c.id FROM c ORDER BY c.n`, with `true` in place of the
/// filter that a client fills in.
const ASCENDING: &str =
    "SELECT c._rid, [{\\\"item\\\": c.n}] AS orderByItems, c.id AS payload FROM c WHERE (true) ORDER BY c.n";

/// Ten documents: two without a value, two with null, a text, an array and four numbers.
async fn world() -> World {
    let world = World::new(PLAIN_CONTAINER).await;
    let values = ["", "", "null", "null", "1", "1", "1", "2", "\"a\"", "[7]"];
    for (number, value) in values.iter().enumerate() {
        let member = if value.is_empty() { String::new() } else { format!(",\"n\":{value}") };
        let body = format!(r#"{{"id":"{number}","pk":"a"{member}}}"#);
        assert_eq!(world.create(r#"["a"]"#, &body).await.status, 201);
    }
    world
}

fn resumed(text: &str, filter: &str) -> HttpRequest {
    let call = query(text).header("x-ms-documentdb-query-enablecrosspartition", "True");
    call.body(format!(r#"{{"query":"{text}","resumeFilter":{filter}}}"#))
}

/// The ids of the rows, one digit each, as one text.
async fn ids(world: &World, text: &str, filter: &str) -> String {
    let answer = world.send(resumed(text, filter)).await;
    assert_eq!(answer.status, 200, "{filter}: {}", answer.text());
    let rows = documents(&answer);
    rows.iter().filter_map(|row| row.get("payload").and_then(Value::as_str)).collect::<Vec<_>>().concat()
}

async fn rids(world: &World) -> Vec<String> {
    let rows = world.query("SELECT c.id, c._rid FROM c").await;
    rows.iter().filter_map(|row| row.get("_rid").and_then(Value::as_str).map(str::to_owned)).collect()
}

#[tokio::test]
async fn a_query_goes_on_at_or_after_a_value() {
    let world = world().await;
    // `[]` stands for a missing value.
    for (filter, expected) in [
        (r#"{"value":[[]],"exclude":false}"#, "0123456789"),
        (r#"{"value":[[]],"exclude":true}"#, "23456789"),
        (r#"{"value":[null],"exclude":false}"#, "23456789"),
        (r#"{"value":[null],"exclude":true}"#, "456789"),
        (r#"{"value":[1],"exclude":false}"#, "456789"),
        (r#"{"value":[1],"exclude":true}"#, "789"),
        (r#"{"value":[1.5]}"#, "789"),
        (r#"{"value":["a"],"exclude":true}"#, "9"),
        (r#"{"value":["b"],"exclude":false}"#, "9"),
        ("null", "0123456789"),
    ] {
        assert_eq!(ids(&world, ASCENDING, filter).await, expected, "{filter}");
    }
    let descending = ASCENDING.replace("ORDER BY c.n", "ORDER BY c.n DESC");
    assert_eq!(ids(&world, &descending, r#"{"value":[1],"exclude":false}"#).await, "6543210");
    assert_eq!(ids(&world, &descending, r#"{"value":[1],"exclude":true}"#).await, "3210");
    world.stop().await;
}

#[tokio::test]
async fn a_rid_says_which_of_equal_rows_is_meant() {
    let world = world().await;
    let rids = rids(&world).await;
    let at = |value: &str, number: usize, exclude: bool| {
        format!(r#"{{"value":[{value}],"rid":"{}","exclude":{exclude}}}"#, rids[number])
    };
    assert_eq!(ids(&world, ASCENDING, &at("1", 5, false)).await, "56789");
    assert_eq!(ids(&world, ASCENDING, &at("1", 5, true)).await, "6789");
    // A document may have been changed or deleted since the filter was made, so no row may have both the
    // value and the `_rid`.
    assert_eq!(ids(&world, ASCENDING, &at("0", 5, true)).await, "456789");
    // The service sends hashes of arrays and objects.
    let array = r#"{"type":"array","low":-6706074647855398782,"high":9031114912533472255}"#;
    assert_eq!(ids(&world, ASCENDING, &at(array, 9, false)).await, "9");
    assert_eq!(ids(&world, ASCENDING, &at(array, 9, true)).await, "");
    let descending = ASCENDING.replace("ORDER BY c.n", "ORDER BY c.n DESC");
    assert_eq!(ids(&world, &descending, &at("1", 5, false)).await, "543210");
    assert_eq!(ids(&world, &descending, &at("1", 5, true)).await, "43210");
    world.stop().await;
}

#[tokio::test]
async fn later_pages_go_on_from_their_continuation() {
    let world = world().await;
    let filter = r#"{"value":[null],"exclude":true}"#;
    let (mut found, mut continuation) = (String::new(), None::<String>);
    loop {
        let mut call = resumed(ASCENDING, filter).header("x-ms-max-item-count", "2");
        if let Some(token) = &continuation {
            call = call.header("x-ms-continuation", token);
        }
        let answer = world.send(call).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        for row in documents(&answer) {
            found.push_str(row.get("payload").and_then(Value::as_str).unwrap());
        }
        match answer.header("x-ms-continuation") {
            Some(token) => continuation = Some(token.to_owned()),
            None => break,
        }
    }
    assert_eq!(found, "456789");
    world.stop().await;
}

#[tokio::test]
async fn an_invalid_resume_filter_is_refused() {
    let world = world().await;
    for (filter, reason) in [
        ("7", "it has no list of values"),
        (r#"{"value":[]}"#, "it has no list of values"),
        (r#"{"value":[[1]]}"#, "a value is an array with items"),
        (r#"{"value":[{"type":"array"}]}"#, "a value is an object without type, low and high"),
        (r#"{"value":[{"type":"array","low":1,"high":2}]}"#, "an array or an object needs a rid"),
        (r#"{"value":[1],"rid":"nonsense"}"#, "its rid is not that of a document"),
        (r#"{"value":[1],"exclude":"yes"}"#, "exclude is not a boolean"),
        (r#"{"value":[1,2]}"#, "has 2 values, but ORDER BY has 1 keys"),
    ] {
        let answer = world.send(resumed(ASCENDING, filter)).await;
        assert!(answer.status == 400 && answer.text().contains(reason), "{filter}: {}", answer.text());
    }
    for text in ["SELECT * FROM c", "SELECT DISTINCT VALUE c.n FROM c ORDER BY c.n"] {
        let answer = world.send(resumed(text, r#"{"value":[1]}"#)).await;
        assert!(
            answer.status == 400 && answer.text().contains("needs a query over documents with ORDER BY"),
            "{}",
            answer.text()
        );
    }
    world.stop().await;
}
