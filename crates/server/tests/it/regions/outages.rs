//! Outages of a region, in each mode.

use perihelion_testkit::http_client::HttpRequest;

use crate::multi_region::{EAST, MultiRegion, NORTH, WEST, manage, send, upsert};
use crate::world::docs;

#[tokio::test]
async fn an_offline_region_refuses_requests_and_serves_again_once_it_is_online() {
    let world = MultiRegion::new().await;
    world.upsert(WEST, "1", 1).await;
    world.wait_for_replication().await;
    world.manage("POST", "regions/offline", r#"{"region":"East US"}"#).await;
    assert!(world.regions[EAST].send(&docs("GET", "1", r#"["a"]"#)).await.is_err(), "the request is dropped");
    assert!(world.regions[EAST].send(&HttpRequest::new("GET", "/")).await.is_err());
    world.manage("POST", "regions/offline", r#"{"region":"East US","mode":"refuse"}"#).await;
    assert_eq!(world.read(EAST, "1").await.status, 503);
    assert_eq!(world.read(NORTH, "1").await.status, 200, "other regions still answer");
    // During the outage the region still applies writes of other regions, so it has them
    // when the outage ends.
    world.upsert(WEST, "1", 2).await;
    world.wait_for_replication().await;
    world.manage_region("regions/online", EAST).await;
    let read = world.read(EAST, "1").await;
    assert_eq!((read.status, read.json().unwrap().get("n")), (200, Some(&2i64.into())));
    world.stop().await;
}

#[tokio::test]
async fn a_hanging_region_does_not_answer_until_the_outage_ends() {
    let world = MultiRegion::new().await;
    world.manage("POST", "regions/offline", r#"{"region":"East US","mode":"hang"}"#).await;
    let call = docs("GET", "1", r#"["a"]"#);
    let mut hanging = Box::pin(world.regions[EAST].send(&call));
    tokio::select! {
        biased;
        answer = &mut hanging => panic!("answered during an outage: {answer:?}"),
        read = world.read(NORTH, "1") => assert_eq!(read.status, 404),
    }
    world.manage_region("regions/online", EAST).await;
    assert!(hanging.await.is_err(), "a request that hung is dropped, not served late");
    assert_eq!(world.read(EAST, "1").await.status, 404);
    world.stop().await;
}

#[tokio::test]
async fn the_accounts_endpoint_leads_to_a_region_without_an_outage() {
    let world = MultiRegion::new().await;
    world.upsert(WEST, "1", 1).await;
    world.wait_for_replication().await;
    assert_eq!(send(&world.global, upsert("2", 1)).await.status, 201);
    world.manage("POST", "regions/offline", r#"{"region":"West US"}"#).await;
    let read = docs("GET", "1", r#"["a"]"#);
    assert_eq!(send(&world.global, read.clone()).await.status, 200, "another region answers");
    assert_eq!(
        send(&world.global, upsert("3", 1)).await.header("x-ms-substatus"),
        Some("3"),
        "but takes no writes"
    );
    world.manage_region("regions/write", EAST).await;
    assert_eq!(send(&world.global, upsert("3", 1)).await.status, 201);
    world.manage_region("regions/online", WEST).await;
    assert_eq!(world.assert_regions_agree().await.len(), 3);
    world.stop().await;
}

#[tokio::test]
async fn an_offline_region_still_serves_health_and_management() {
    let world = MultiRegion::new().await;
    world.manage("POST", "regions/offline", r#"{"region":"East US"}"#).await;
    for path in ["/alive", "/ready", "/status", "/_perihelion/health"] {
        let health = HttpRequest::new("GET", path).omit("authorization");
        assert_eq!(world.send(EAST, health).await.status, 200, "{path}");
    }
    let online = manage(&world.regions[EAST], "POST", "regions/online", r#"{"region":"east-us"}"#).await;
    assert_eq!(online.status, 200, "{}", online.text());
    assert_eq!(world.read(EAST, "1").await.status, 404);
    world.stop().await;
}
