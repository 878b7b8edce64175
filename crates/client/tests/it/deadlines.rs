//! The time limits of queries and change feeds, which send several requests. The clock is
//! tokio's and paused.

use std::time::Duration;

use perihelion_client::{ChangeFeedOptions, Container, Query};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::world::World;

const PARTITION_KEY: &str = r#"{"paths":["/pk"],"kind":"Hash","version":2}"#;
const SECOND: Duration = Duration::from_secs(1);

/// A container of four partitions with twenty documents, in which each request of this kind
/// takes a second.
async fn slow_world(operation: &str) -> (World, Container) {
    let world = World::new(4).await;
    let container = world.container("c", PARTITION_KEY).await;
    for number in 0..20 {
        container.create(number.to_string(), &json!({"id": "1", "pk": number.to_string()})).await.unwrap();
    }
    world.fault(&format!(r#"{{"operation":"{operation}","delayMs":1000}}"#)).await;
    (world, container)
}

/// This holds for a query that the service answers alone, and for a query that the client merges.
#[tokio::test(start_paused = true)]
async fn a_query_ends_at_its_time_limit() {
    let (_world, container) = slow_world("query").await;
    for text in ["SELECT * FROM c", "SELECT * FROM c ORDER BY c.pk"] {
        let query = || Query::new(text).with_max_items(1).with_parallel_max(1);
        let before = Instant::now();
        let limited = query().with_total_timeout(SECOND * 7 / 2);
        let error = container.query::<Value>(limited).collect().await.unwrap_err();
        assert!(error.is_timeout(), "{error}");
        assert_eq!(before.elapsed(), SECOND * 7 / 2, "{text}");

        let patient = query().with_total_timeout(Duration::MAX);
        assert_eq!(container.query::<Value>(patient).collect().await.unwrap().len(), 20, "{text}");
    }
}

/// The time counts from the first page, also while the caller does not wait.
#[tokio::test(start_paused = true)]
async fn a_query_whose_time_is_up_sends_no_request() {
    let (world, container) = slow_world("query").await;
    let query = Query::new("SELECT * FROM c").with_max_items(1).with_total_timeout(5 * SECOND);
    let mut feed = container.query::<Value>(query);
    assert!(feed.next_page().await.unwrap().is_some());
    tokio::time::sleep(5 * SECOND).await;
    let requests = world.requests("query").await;
    assert!(feed.next_page().await.unwrap_err().is_timeout());
    assert_eq!(world.requests("query").await, requests);
}

/// A call asks each of the four partitions. The next call continues where the first one ended.
#[tokio::test(start_paused = true)]
async fn a_read_of_a_change_feed_ends_at_its_time_limit() {
    let (_world, container) = slow_world("change_feed").await;
    let options = ChangeFeedOptions::from_now().with_page_timeout(SECOND * 5 / 2);
    let mut feed = container.change_feed::<Value>(options);
    let before = Instant::now();
    let error = feed.next_page().await.unwrap_err();
    assert!(error.is_timeout(), "{error}");
    assert_eq!(before.elapsed(), SECOND * 5 / 2);
    assert!(feed.next_page().await.unwrap().is_none());
}
