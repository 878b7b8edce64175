//! Tests of computed properties, which the server once stored and ignored, and of patterns with
//! look-around.

use perihelion_testkit::http_client::HttpRequest;

use crate::world::{PLAIN_CONTAINER, World, json, query};

const CONTAINER: &str = r#"{"id":"c","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2},"computedProperties":[
    {"name":"cp_lower","query":"SELECT VALUE LOWER(c.name) FROM c"},
    {"name":"cp_total","query":"SELECT VALUE x.price * x.count FROM x"},
    {"name":"cp_labels","query":"SELECT VALUE c.labels FROM c"}]}"#;

async fn filled() -> World {
    let world = World::new(CONTAINER).await;
    for (id, name, price, count, label) in
        [(1, "Pear", 3, 1, "a"), (2, "pear", 1, 7, "b"), (3, "Plum", 2, 2, "a")]
    {
        let body = format!(
            r#"{{"id":"{id}","pk":"k{id}","name":"{name}","price":{price},"count":{count},"labels":["{label}","z"]}}"#
        );
        assert_eq!(world.create(&format!(r#"["k{id}"]"#), &body).await.status, 201);
    }
    world
}

#[tokio::test]
async fn computed_properties_can_be_used_in_every_clause_and_are_not_in_a_star() {
    let world = filled().await;
    for (text, expected) in [
        ("SELECT c.id, c.cp_lower FROM c WHERE c.id = '1'", r#"[{"id":"1","cp_lower":"pear"}]"#),
        ("SELECT VALUE x.id FROM x WHERE x.cp_lower = 'pear' AND x.cp_total > 5", r#"["2"]"#),
        (r#"SELECT VALUE c.id FROM c WHERE c["cp_lower"] = 'plum'"#, r#"["3"]"#),
        ("SELECT VALUE c.id FROM c ORDER BY c.cp_total", r#"["1","3","2"]"#),
        ("SELECT VALUE c.id FROM c ORDER BY c.cp_total DESC", r#"["2","3","1"]"#),
        (
            "SELECT c.cp_lower, COUNT(1) AS n FROM c GROUP BY c.cp_lower",
            r#"[{"cp_lower":"pear","n":2},{"cp_lower":"plum","n":1}]"#,
        ),
        ("SELECT VALUE SUM(c.cp_total) FROM c", "[14]"),
        ("SELECT VALUE t FROM c JOIN t IN c.cp_labels WHERE c.id = '3'", r#"["a","z"]"#),
        (
            "SELECT VALUE c.id FROM c WHERE EXISTS(SELECT VALUE t FROM t IN c.cp_labels WHERE t = 'b')",
            r#"["2"]"#,
        ),
        ("SELECT VALUE c.cp_labels[0] FROM c WHERE c.id = '2'", r#"["b"]"#),
        ("SELECT VALUE s.cp_lower FROM (SELECT c.cp_lower FROM c WHERE c.id = '1') AS s", r#"["pear"]"#),
        ("SELECT VALUE IS_DEFINED(c.cp_total) FROM c WHERE c.id = '1'", "[true]"),
    ] {
        let rows = perihelion_model::json::Value::Array(world.query(text).await);
        assert_eq!(rows, json(expected), "{text}");
    }
    for text in ["SELECT * FROM c", "SELECT VALUE c FROM c"] {
        for row in world.query(text).await {
            assert!(row.get("cp_lower").is_none() && row.get("name").is_some(), "{text}");
        }
    }
    world.stop().await;
}

#[tokio::test]
async fn the_query_in_a_plan_can_name_computed_properties() {
    let world = filled().await;
    let plan = query("SELECT c.id FROM c ORDER BY c.cp_total")
        .header("x-ms-cosmos-is-query-plan-request", "True")
        .header("x-ms-cosmos-supported-query-features", "OrderBy");
    let plan = world.send(plan).await.json().unwrap();
    let rewritten = plan.get("queryInfo").and_then(|info| info.get("rewrittenQuery")?.as_str()).unwrap();
    let rows = world.query(&rewritten.replace("{documentdb-formattableorderbyquery-filter}", "true")).await;
    let keys: Vec<_> = rows.iter().map(|row| row.get("orderByItems").unwrap().clone()).collect();
    assert_eq!(keys, [json(r#"[{"item":3}]"#), json(r#"[{"item":4}]"#), json(r#"[{"item":7}]"#)]);
    world.stop().await;
}

#[tokio::test]
async fn computed_properties_can_be_replaced_and_invalid_properties_are_refused() {
    let world = World::new(PLAIN_CONTAINER).await;
    world.create(r#"["a"]"#, r#"{"id":"1","pk":"a","name":"Pear"}"#).await;
    let put = |property: &str| {
        let body = PLAIN_CONTAINER.replacen('{', &format!(r#"{{"computedProperties":{property},"#), 1);
        HttpRequest::new("PUT", "/dbs/d/colls/c").json(&json(&body))
    };
    for invalid in [
        r#"[{"name":"a"}]"#,
        r#"[{"name":"id","query":"SELECT VALUE c.a FROM c"}]"#,
        r#"[{"name":"pk","query":"SELECT VALUE c.a FROM c"}]"#,
        r#"[{"name":"a","query":"SELECT VALUE c.a FROM c WHERE c.b"}]"#,
        r#"[{"name":"a","query":"SELECT VALUE COUNT(1) FROM c"}]"#,
        r#"[{"name":"a","query":"nonsense"}]"#,
    ] {
        let refused = world.send(put(invalid)).await;
        assert_eq!(refused.status, 400, "{invalid}");
        let message = refused.text();
        assert!(message.contains("The computed properties of the container are invalid"), "{message}");
    }
    let not_a_list = world.send(put(r#"{"name":"a","query":"SELECT VALUE c.a FROM c"}"#)).await;
    assert_eq!(not_a_list.status, 400);
    assert!(not_a_list.text().contains("One of the specified inputs is invalid"), "{}", not_a_list.text());
    let upper = r#"[{"name":"cp","query":"SELECT VALUE UPPER(c.name) FROM c"}]"#;
    let replaced = world.send(put(upper)).await;
    assert_eq!(replaced.status, 200, "{}", replaced.text());
    assert_eq!(replaced.json().unwrap().get("computedProperties"), Some(&json(upper)));
    assert_eq!(world.query("SELECT VALUE c.cp FROM c").await, [json(r#""PEAR""#)]);
    assert_eq!(world.send(put("[]")).await.status, 200);
    assert!(world.query("SELECT VALUE c.cp FROM c").await.is_empty());
    world.stop().await;
}

#[tokio::test]
async fn patterns_with_look_around_are_refused() {
    let world = filled().await;
    for text in [
        r"SELECT VALUE c.id FROM c WHERE RegexMatch(c.name, 'P(?=e)')",
        r"SELECT VALUE c.id FROM c WHERE RegexMatch(c.name, CONCAT(c.name, '(?!x)'))",
    ] {
        let refused =
            world.send(query(text).header("x-ms-documentdb-query-enablecrosspartition", "true")).await;
        assert_eq!(refused.status, 400, "{text}");
        assert!(refused.text().contains("look-around"), "{}", refused.text());
    }
    world.stop().await;
}
