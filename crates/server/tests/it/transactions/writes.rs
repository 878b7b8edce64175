//! Write transactions: commits, aborts, and what the results say.

use perihelion_model::json::Value;

use super::*;
use crate::world::docs;

#[tokio::test]
async fn a_commit_has_the_status_etag_session_token_and_charge_of_each_operation() {
    let world = world().await;
    world.send(write(1, &[create("c", "a", "1"), create("c", "b", "1"), create("other", "a", "1")])).await;
    let replace = operation("Replace", "c", "a", "1", r#","resourceBody":{"id":"1","pk":"a","n":5}"#);
    let patch = operation(
        "Patch",
        "c",
        "b",
        "1",
        r#","resourceBody":{"operations":[{"op":"incr","path":"/n","value":7}],"condition":"from c where c.n = 0"}"#,
    );
    let all =
        [create("c", "z", "9"), replace, upsert("other", "q", "1", 3), patch, delete("other", "a", "1")];
    let answer = world.send(write(2, &all)).await;
    assert_eq!(envelope(&answer), (200, 0), "{}", answer.text());
    assert_eq!(statuses(&answer), [(201, 0), (200, 0), (201, 0), (200, 0), (204, 0)]);
    let body = answer.json().unwrap();
    assert_eq!(body.get("isRetriable"), Some(&Value::Bool(false)));
    assert_eq!(text_of(&body, "responseMode").as_deref(), Some("Standard"));
    assert_eq!(answer.header("x-ms-cosmos-idempotency-token"), Some(token(2).as_str()));
    let mut charges = 0.0;
    for (index, result) in results(&answer).iter().enumerate() {
        assert_eq!(result.get("eTag").is_some(), index != 4, "a delete has no etag: {result:?}");
        assert!(result.get("resourceBody").is_none(), "{result:?}");
        let range = text_of(result, "partitionKeyRangeId").unwrap();
        assert!(text_of(result, "sessionToken").unwrap().starts_with(&format!("{range}:")), "{result:?}");
        charges += result.get("requestCharge").and_then(Value::as_f64).unwrap();
    }
    let total: f64 = answer.header("x-ms-request-charge").unwrap().parse().unwrap();
    assert!((total - charges).abs() < 0.1 && total > 20.0, "{total} {charges}");
    assert_eq!(n_of(&world, "c", "a", "1").await, Some(5));
    assert_eq!(n_of(&world, "c", "b", "1").await, Some(7));
    assert_eq!(n_of(&world, "other", "a", "1").await, None);
    // The etags and session tokens are those of the documents.
    let etag = text_of(&results(&answer)[1], "eTag").unwrap();
    let session = text_of(&results(&answer)[1], "sessionToken").unwrap();
    let read = world.send(docs("GET", "1", r#"["a"]"#).header("x-ms-session-token", session.as_str())).await;
    assert_eq!((read.status, read.header("etag")), (200, Some(etag.as_str())));
    assert_eq!(read.header("x-ms-session-token"), Some(session.as_str()));
    world.stop().await;
}

#[tokio::test]
async fn an_abort_answers_452_names_the_failed_operations_and_writes_nothing() {
    let world = world().await;
    world.send(write(1, &[create("c", "a", "1"), create("other", "b", "1")])).await;
    let stale = operation(
        "Replace",
        "other",
        "b",
        "1",
        r#","ifMatch":"\"stale\"","resourceBody":{"id":"1","pk":"b","n":9}"#,
    );
    let all = [
        upsert("c", "x", "1", 9),
        create("c", "a", "1"),
        stale,
        delete("c", "q", "missing"),
        upsert("other", "y", "1", 9),
    ];
    let answer = world.send(write(2, &all)).await;
    assert_eq!(envelope(&answer), (452, 5421), "{}", answer.text());
    assert_eq!(statuses(&answer), [(453, 5415), (409, 0), (412, 0), (404, 0), (453, 5415)]);
    let body = answer.json().unwrap();
    assert_eq!(body.get("isRetriable"), Some(&Value::Bool(false)));
    assert!(
        text_of(&body, "diagnosticString").unwrap().starts_with("Operation 1 failed with 409"),
        "{body:?}"
    );
    assert!(results(&answer).iter().all(|result| result.get("eTag").is_none()));
    assert_eq!(n_of(&world, "c", "x", "1").await, None);
    assert_eq!(n_of(&world, "other", "y", "1").await, None);
    assert_eq!(n_of(&world, "other", "b", "1").await, Some(0));
    world.stop().await;
}

#[tokio::test]
async fn each_kind_of_failure_aborts_with_its_own_status() {
    let world = world().await;
    let with_email = |id: &str| {
        operation(
            "Create",
            "other",
            "u",
            id,
            &format!(r#","resourceBody":{{"id":"{id}","pk":"u","email":"e"}}"#),
        )
    };
    world.send(write(1, &[create("c", "a", "1"), with_email("1")])).await;
    let patch = |members: &str| operation("Patch", "c", "a", "1", &format!(r#","resourceBody":{members}"#));
    let mut number = 10;
    for (failing, status, sub_status) in [
        (with_email("2"), 409, 0),
        (
            patch(
                r#"{"operations":[{"op":"set","path":"/n","value":1}],"condition":"from c where c.n = 99"}"#,
            ),
            412,
            1110,
        ),
        (
            patch(
                r#"{"operations":[{"op":"set","path":"/n","value":1}],"condition":"from c where nonsense("}"#,
            ),
            400,
            0,
        ),
        (patch(r#"{"operations":[{"op":"replace","path":"/missing","value":1}]}"#), 400, 0),
        (patch(r#"{"operations":[]}"#), 400, 0),
        (operation("Upsert", "c", "a", "1", r#","resourceBody":{"id":"1","pk":"another"}"#), 400, 1001),
        (
            operation("Upsert", "other", "a", "1", r#","resourceBody":{"id":"1","pk":"a","ttl":"soon"}"#),
            400,
            0,
        ),
        (operation("Replace", "c", "a", "7", r#","resourceBody":{"id":"7","pk":"a"}"#), 404, 0),
        (create("missing", "a", "1"), 404, 1003),
        (delete("c", "a", "1").replace(r#"["a"]"#, r#"["a","b"]"#), 400, 1001),
        (
            operation(
                "Upsert",
                "c",
                "a",
                "1",
                r#","sessionToken":"0:-1#99,1:-1#99,2:-1#99,3:-1#99","resourceBody":{"id":"1","pk":"a"}"#,
            ),
            404,
            1002,
        ),
        (
            operation(
                "Upsert",
                "c",
                "a",
                "1",
                r#","sessionToken":"-1#99","resourceBody":{"id":"1","pk":"a"}"#,
            ),
            404,
            1002,
        ),
        (
            operation(
                "Upsert",
                "c",
                "a",
                "1",
                r#","sessionToken":"nonsense","resourceBody":{"id":"1","pk":"a"}"#,
            ),
            400,
            0,
        ),
    ] {
        number += 1;
        let answer = world.send(write(number, &[upsert("c", "sibling", "1", 1), failing.clone()])).await;
        assert_eq!(envelope(&answer), (452, 5421), "{failing}: {}", answer.text());
        assert_eq!(statuses(&answer), [(453, 5415), (status, sub_status)], "{failing}: {}", answer.text());
        assert_eq!(n_of(&world, "c", "sibling", "1").await, None, "{failing}");
    }
    assert_eq!(n_of(&world, "c", "a", "1").await, Some(0));
    world.stop().await;
}

#[tokio::test]
async fn an_item_of_a_transaction_expires_by_its_time_to_live() {
    let world = world().await;
    let short =
        operation("Create", "other", "t", "1", r#","resourceBody":{"id":"1","pk":"t","n":1,"ttl":1}"#);
    let answer = world.send(write(1, &[short, create("other", "u", "2")])).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while n_of(&world, "other", "t", "1").await.is_some() {
        assert!(std::time::Instant::now() < deadline, "the item does not expire");
        tokio::task::yield_now().await;
    }
    assert_eq!(n_of(&world, "other", "u", "2").await, Some(0));
    world.stop().await;
}

#[tokio::test]
async fn containers_are_named_by_names_or_rids_and_both_must_agree() {
    let world = world().await;
    let rid = |answer: &HttpResponse| text_of(&answer.json().unwrap(), "_rid").unwrap();
    let database = rid(&world.send(HttpRequest::new("GET", "/dbs/d")).await);
    let container = rid(&world.send(HttpRequest::new("GET", "/dbs/d/colls/c")).await);
    let other = rid(&world.send(HttpRequest::new("GET", "/dbs/d/colls/other")).await);
    // The form of the design document: only `_rid`s, the key as text, and the kind of the transaction
    // in the body.
    let designed = format!(
        r#"{{"operationType":"Write","operations":[{{"operationType":"Create","databaseRid":"{database}","containerRid":"{container}","partitionKey":"[\"a\"]","id":"1","resourceBody":{{"id":"1","pk":"a","n":4}}}}]}}"#
    );
    let designed =
        HttpRequest::new("POST", "/operations/dtc").header("x-ms-idempotency-token", token(1)).body(designed);
    let answer = world.send(designed).await;
    assert_eq!((envelope(&answer), statuses(&answer)), ((200, 0), vec![(201, 0)]), "{}", answer.text());
    assert_eq!(
        answer.header("x-ms-cosmos-idempotency-token"),
        Some(token(1).as_str()),
        "the answer has the longer of the two header names"
    );
    assert_eq!(n_of(&world, "c", "a", "1").await, Some(4));
    let both = |database: &str, container: &str| {
        delete("c", "a", "1").replace(
            r#""id":"#,
            &format!(r#""databaseResourceId":"{database}","collectionResourceId":"{container}","id":"#),
        )
    };
    check_refused(&world.send(write(2, &[both(&database, &other)])).await, 400, 5410);
    check_refused(&world.send(write(2, &[both("AAAAAA==", &container)])).await, 400, 5410);
    let answer = world.send(write(2, &[both(&database, &container)])).await;
    assert_eq!((envelope(&answer), statuses(&answer)), ((200, 0), vec![(204, 0)]), "{}", answer.text());
    world.stop().await;
}

#[tokio::test]
async fn a_change_feed_shows_a_transaction_whole() {
    let world = world().await;
    let all: Vec<String> = (0..20).map(|n| create("c", "a", &n.to_string())).collect();
    world.send(write(1, &all)).await;
    let feed =
        docs("GET", "", r#"["a"]"#).header("a-im", "Incremental feed").header("x-ms-max-item-count", "3");
    let page = world.send(feed).await;
    assert_eq!(crate::world::documents(&page).len(), 20, "{}", page.text());
    world.stop().await;
}
