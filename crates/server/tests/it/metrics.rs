//! Tests of `GET /metrics`: its content, and which requests are answered.

use perihelion_server::ServerOptions;
use perihelion_testkit::http_client::HttpRequest;

use crate::world::{PLAIN_CONTAINER, World};

fn metrics() -> HttpRequest {
    HttpRequest::new("GET", "/metrics").omit("authorization")
}

async fn world(management: bool) -> World {
    World::with_options(ServerOptions { management, ..Default::default() }, PLAIN_CONTAINER).await
}

#[tokio::test]
async fn metrics_show_requests_request_units_throttles_and_sizes() {
    let world = world(true).await;
    world.manage("DELETE", "counters", "").await;
    world.create(r#"["a"]"#, r#"{"id":"1","pk":"a"}"#).await;
    world.read(r#"["a"]"#, "1").await;
    world.manage("POST", "faults", r#"{"operation":"read_item","count":1,"status":429}"#).await;
    world.read(r#"["a"]"#, "1").await;
    let answer = world.send(metrics()).await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    let text = answer.text();
    for line in [
        "perihelion_ready 1",
        "perihelion_connections 1",
        r#"operation="create_item",status="201"} 1"#,
        r#"operation="read_item",status="200"} 1"#,
        r#"operation="read_item",status="429"} 1"#,
        r#"perihelion_partition_requests_total{database="d",container="c",range="0"} 3"#,
        r#"perihelion_partition_throttles_total{database="d",container="c",range="0"} 1"#,
        r#"perihelion_documents{database="d",container="c",range="0"} 1"#,
    ] {
        assert!(text.lines().any(|found| found.ends_with(line)), "{line} is not in\n{text}");
    }
    world.stop().await;
}

#[tokio::test]
async fn metrics_follow_the_access_rules_of_management_and_hold_no_key() {
    let world = world(true).await;
    let key = perihelion_wire::signature::EMULATOR_KEY;
    assert!(!world.send(metrics()).await.text().contains(&key[..16]));
    for (name, value) in
        [("origin", "https://evil.example"), ("host", "rebound.example"), ("x-forwarded-for", "203.0.113.7")]
    {
        let refused = world.send(metrics().header(name, value)).await;
        assert_eq!(refused.status, 403, "{name}");
        assert!(!refused.text().contains("perihelion_requests_total"));
    }
    let wrong = metrics().header("authorization", "type%3dmaster%26ver%3d1.0%26sig%3dAAAA");
    assert_eq!(world.send(wrong).await.status, 401);
    let changing = HttpRequest::new("POST", "/metrics").omit("authorization");
    assert_eq!(world.send(changing).await.status, 405);
    world.stop().await;
}

#[tokio::test]
async fn a_server_without_management_has_no_metrics() {
    let world = world(false).await;
    assert_eq!(world.send(metrics()).await.status, 404);
    world.stop().await;
}
