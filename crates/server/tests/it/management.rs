//! Tests of the management interface: counters, faults, pause, reset, and which
//! requests it accepts.

use perihelion_model::json::Value;
use perihelion_server::ServerOptions;
use perihelion_testkit::http_client::HttpRequest;

use crate::world::{PLAIN_CONTAINER, World, docs, json};

async fn world_with_management() -> World {
    let options = ServerOptions { management: true, ..Default::default() };
    World::with_options(options, PLAIN_CONTAINER).await
}

#[tokio::test]
async fn requests_and_units_are_counted_by_operation() {
    let world = world_with_management().await;
    world.manage("DELETE", "counters", "").await;
    world.create(r#"["a"]"#, r#"{"id":"1","pk":"a"}"#).await;
    world.read(r#"["a"]"#, "1").await;
    world.read(r#"["a"]"#, "2").await;
    let report = world.manage("GET", "counters", "").await.json().unwrap();
    assert_eq!(report.get("requests"), Some(&3i64.into()));
    let reads = report.get("operations").unwrap().get("read_item").unwrap();
    assert_eq!(reads, &json(r#"{"requests":2,"requestUnits":2,"statuses":{"200":1,"404":1}}"#));
    assert_eq!(report.get("requestUnits").and_then(Value::as_f64), Some(7.9));
    world.stop().await;
}

#[tokio::test]
async fn a_fault_hits_the_named_operation_a_given_number_of_times() {
    let world = world_with_management().await;
    let rule = r#"{"operation":"create_item","container":"c","count":2,"status":503,"subStatus":20003,"retryAfterMs":7}"#;
    assert_eq!(world.manage("POST", "faults", rule).await.status, 200);
    for _ in 0..2 {
        let refused = world.create(r#"["a"]"#, r#"{"id":"1","pk":"a"}"#).await;
        assert_eq!((refused.status, refused.header("x-ms-substatus")), (503, Some("20003")));
        assert_eq!(refused.header("x-ms-retry-after-ms"), Some("7"));
        assert_eq!(world.read(r#"["a"]"#, "1").await.status, 404, "the create was not carried out");
    }
    assert_eq!(world.create(r#"["a"]"#, r#"{"id":"1","pk":"a"}"#).await.status, 201);
    let faults = world.manage("GET", "faults", "").await.json().unwrap();
    assert_eq!(faults, json(r#"{"faults":[{"id":1,"operation":"create_item","hits":2,"left":0}]}"#));
    world.stop().await;
}

#[tokio::test]
async fn a_fault_rule_with_a_member_of_the_wrong_type_is_refused() {
    let world = world_with_management().await;
    for (member, value) in [
        ("operation", "1"),
        ("database", "null"),
        ("container", r#"["c"]"#),
        ("range", "-1"),
        ("range", "1.5"),
        ("range", r#""first""#),
        ("region", "0"),
        ("count", r#""3""#),
        ("count", "-1"),
        ("count", "1.5"),
        ("count", "null"),
        ("probability", r#""1""#),
        ("status", r#""503""#),
        ("subStatus", r#""3200""#),
        ("subStatus", "4294967296"),
        ("retryAfterMs", "[20]"),
        ("delayMs", r#""100""#),
        ("delayMs", "true"),
        ("drop", "true"),
        ("when", "0"),
        ("name", "7"),
    ] {
        // A wrong member is refused even if it would have no effect: because of a `drop`, or
        // because there is no `status`.
        for others in ["", r#","drop":"before""#, r#","status":503"#] {
            if others.contains(member) {
                continue;
            }
            let refused = world.manage("POST", "faults", &format!(r#"{{"{member}":{value}{others}}}"#)).await;
            let message = refused.text();
            assert_eq!(refused.status, 400, "{member}: {value}{others}: {message}");
            assert!(message.contains(&format!("'{member}'")), "{member}: {value}: {message}");
        }
    }
    let faults = world.manage("GET", "faults", "").await.json().unwrap();
    assert_eq!(faults, json(r#"{"faults":[]}"#));
    world.stop().await;
}

#[tokio::test]
async fn a_fault_rule_for_a_database_hits_the_database_and_everything_in_it() {
    let world = world_with_management().await;
    let other = world.send(HttpRequest::new("POST", "/dbs").json(&json(r#"{"id":"e"}"#))).await;
    assert_eq!(other.status, 201);
    world.manage("POST", "faults", r#"{"database":"d","status":503}"#).await;
    for (path, status) in [
        ("/dbs/d", 503),
        ("/dbs/d/colls", 503),
        ("/dbs/d/colls/c", 503),
        ("/dbs/d/colls/c/docs", 503),
        ("/dbs", 200),
        ("/dbs/e", 200),
        ("/dbs/e/colls", 200),
    ] {
        assert_eq!(world.send(HttpRequest::new("GET", path)).await.status, status, "{path}");
    }
    world.stop().await;
}

#[tokio::test]
async fn a_connection_is_dropped_before_or_after_the_write() {
    let world = world_with_management().await;
    for (when, id, status) in [("before", "1", 404), ("after", "2", 200)] {
        world
            .manage("POST", "faults", &format!(r#"{{"operation":"create_item","count":1,"drop":"{when}"}}"#))
            .await;
        let body = json(&format!(r#"{{"id":"{id}","pk":"a"}}"#));
        let lost = world.try_send(docs("POST", "", r#"["a"]"#).json(&body)).await;
        assert!(lost.is_err(), "{when}: {lost:?}");
        assert_eq!(world.read(r#"["a"]"#, id).await.status, status, "{when}");
    }
    world.stop().await;
}

#[tokio::test]
async fn a_pause_holds_requests_until_it_ends() {
    let world = world_with_management().await;
    world.manage("POST", "pause", "").await;
    let mut read = Box::pin(world.read(r#"["a"]"#, "1"));
    // During the pause health and management answer, but the read does not.
    let ready = tokio::select! {
        biased;
        answer = &mut read => panic!("answered while paused: {answer:?}"),
        ready = async {
            let other = world.other_client();
            other.send(&HttpRequest::new("GET", "/ready").omit("authorization")).await
        } => ready.unwrap(),
    };
    assert_eq!(ready.status, 200);
    let other = world.other_client();
    let resume = async {
        other.send(&HttpRequest::new("POST", "/_perihelion/resume").omit("authorization")).await.unwrap()
    };
    let (answer, resumed) = tokio::join!(read, resume);
    assert_eq!((answer.status, resumed.status), (404, 200));
    world.stop().await;
}

#[tokio::test]
async fn a_reset_deletes_everything() {
    let world = world_with_management().await;
    world.create(r#"["a"]"#, r#"{"id":"1","pk":"a"}"#).await;
    assert_eq!(world.manage("POST", "reset", "").await.status, 200);
    assert_eq!(world.send(HttpRequest::new("GET", "/dbs/d")).await.status, 404);
    world.stop().await;
}

#[tokio::test]
async fn management_answers_only_local_programs_and_only_when_it_is_switched_on() {
    let world = world_with_management().await;
    let call = || HttpRequest::new("GET", "/_perihelion/counters").omit("authorization");
    assert_eq!(world.send(call()).await.status, 200);
    assert_eq!(world.send(call().header("origin", "https://evil.example")).await.status, 403);
    assert_eq!(world.send(call().header("host", "rebound.example")).await.status, 403);
    for bad in [
        "{",
        "[]",
        r#"{"operation":"explode"}"#,
        r#"{"status":200}"#,
        r#"{"colour":"red"}"#,
        r#"{"probability":2}"#,
    ] {
        let refused = world.manage("POST", "faults", bad).await;
        assert_eq!(refused.status, 400, "{bad}: {}", refused.text());
    }
    world.stop().await;

    let world = World::new(PLAIN_CONTAINER).await;
    assert_eq!(world.send(call()).await.status, 404);
    assert_eq!(world.send(HttpRequest::new("GET", "/ready").omit("authorization")).await.status, 200);
    world.stop().await;
}
