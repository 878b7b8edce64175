//! A region that fails its clients, in each of the ways it can.

use crate::client::Call;
use crate::planet::{EAST, NORTH, Planet, WEST, manage, send, upsert};
use crate::world::docs;

#[tokio::test]
async fn an_offline_region_fails_its_clients_and_serves_again_at_once() {
    let planet = Planet::new().await;
    planet.upsert(WEST, "1", 1).await;
    planet.settle().await;
    planet.manage("POST", "regions/offline", r#"{"region":"East US"}"#).await;
    assert!(planet.regions[EAST].send(&docs("GET", "1", r#"["a"]"#)).await.is_err(), "dropped");
    assert!(planet.regions[EAST].send(&Call::new("GET", "/")).await.is_err());
    planet.manage("POST", "regions/offline", r#"{"region":"East US","mode":"refuse"}"#).await;
    assert_eq!(planet.read(EAST, "1").await.status, 503);
    assert_eq!(planet.read(NORTH, "1").await.status, 200, "others do not notice");
    // Its store goes on: what is written meanwhile is there when it is back.
    planet.upsert(WEST, "1", 2).await;
    planet.settle().await;
    planet.order("regions/online", EAST).await;
    let read = planet.read(EAST, "1").await;
    assert_eq!((read.status, read.json().unwrap().get("n")), (200, Some(&2i64.into())));
    planet.stop().await;
}

#[tokio::test]
async fn a_hanging_region_answers_nothing_until_it_is_over() {
    let planet = Planet::new().await;
    planet.manage("POST", "regions/offline", r#"{"region":"East US","mode":"hang"}"#).await;
    let call = docs("GET", "1", r#"["a"]"#);
    let mut hanging = Box::pin(planet.regions[EAST].send(&call));
    tokio::select! {
        biased;
        answer = &mut hanging => panic!("answered during an outage: {answer:?}"),
        read = planet.read(NORTH, "1") => assert_eq!(read.status, 404),
    }
    planet.order("regions/online", EAST).await;
    assert!(hanging.await.is_err(), "a request that hung is dropped, not served late");
    assert_eq!(planet.read(EAST, "1").await.status, 404);
    planet.stop().await;
}

#[tokio::test]
async fn the_accounts_endpoint_goes_to_a_region_that_answers() {
    let planet = Planet::new().await;
    planet.upsert(WEST, "1", 1).await;
    planet.settle().await;
    assert_eq!(send(&planet.global, upsert("2", 1)).await.status, 201);
    planet.manage("POST", "regions/offline", r#"{"region":"West US"}"#).await;
    let read = docs("GET", "1", r#"["a"]"#);
    assert_eq!(send(&planet.global, read.clone()).await.status, 200, "another region answers");
    assert_eq!(
        send(&planet.global, upsert("3", 1)).await.header("x-ms-substatus"),
        Some("3"),
        "but cannot write"
    );
    planet.order("regions/write", EAST).await;
    assert_eq!(send(&planet.global, upsert("3", 1)).await.status, 201);
    planet.order("regions/online", WEST).await;
    assert_eq!(planet.assert_alike().await.len(), 3);
    planet.stop().await;
}

#[tokio::test]
async fn an_offline_region_still_takes_orders() {
    let planet = Planet::new().await;
    planet.manage("POST", "regions/offline", r#"{"region":"East US"}"#).await;
    let online = manage(&planet.regions[EAST], "POST", "regions/online", r#"{"region":"east-us"}"#).await;
    assert_eq!(online.status, 200, "{}", online.text());
    assert_eq!(planet.read(EAST, "1").await.status, 404);
    planet.stop().await;
}
