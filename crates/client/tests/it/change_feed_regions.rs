//! A change feed in an account whose regions all take writes. Its token names the region of
//! each position, because each region has its own order of changes.

use std::collections::BTreeSet;
use std::time::Duration;

use perihelion_client::options::{Hedging, OperationOptions};
use perihelion_client::{ChangeFeedOptions, Container, ItemOptions};
use perihelion_server::EmbeddedOptions;
use perihelion_testkit::TestServer;
use perihelion_testkit::driver::{create_container, create_database};
use perihelion_testkit::regions::{EAST, REGIONS, WEST, all_but, three_regions};
use serde::Deserialize;
use serde_json::json;

#[derive(Deserialize)]
struct Document {
    id: String,
}

/// Creates a document in one region, with a client that has a session of its own.
async fn create_in(server: &TestServer, region: &str, id: &str) {
    let container = server.client().await.database("shop").container("c");
    let options = OperationOptions::default().with_excluded_regions(all_but(region));
    let options = ItemOptions::default().with_operation(options);
    container.create_with("key", &json!({"id": id, "pk": "key"}), &options).await.unwrap();
}

/// Reads all changes up to now with a new feed, as another process would. Returns its token.
async fn drain(container: &Container, start: ChangeFeedOptions, seen: &mut BTreeSet<String>) -> String {
    let hedged = OperationOptions::default().with_hedging(Hedging::Fixed(Duration::from_millis(20)));
    let mut feed = container.change_feed::<Document>(start.with_operation(hedged));
    while let Some(page) = feed.next_page().await.unwrap() {
        seen.extend(page.items.into_iter().map(|document| document.id));
    }
    feed.token()
}

#[tokio::test(start_paused = true)]
async fn a_token_continues_in_its_region_and_skips_no_change() {
    let options = EmbeddedOptions::default().with_regions(three_regions()).with_multi_write(true);
    let server = TestServer::in_process(options).await;
    let client = server.client().await;
    create_database(client.driver(), "shop").await;
    create_container(client.driver(), "shop", "c", "/pk").await;
    let container = client.database("shop").container("c");
    create_in(&server, WEST, "0").await;
    server.wait_for_replication().await;
    let mut seen = BTreeSet::new();
    let token = drain(&container, ChangeFeedOptions::from_beginning(), &mut seen).await;
    assert!(token.contains(&format!(r#""region":"{WEST}""#)), "{token}");
    for region in REGIONS {
        server.manage_region("replication/cut", region).await;
    }
    create_in(&server, EAST, "east").await;
    // West is slow. A hedge at East would answer with the position of East.
    server
        .fault(&format!(r#"{{"operation":"change_feed","region":"{WEST}","count":1,"delayMs":300}}"#))
        .await;
    let token = drain(&container, ChangeFeedOptions::resume(token), &mut seen).await;
    create_in(&server, WEST, "west").await;
    let token = drain(&container, ChangeFeedOptions::resume(token), &mut seen).await;
    for region in REGIONS {
        server.manage_region("replication/heal", region).await;
    }
    server.wait_for_replication().await;
    drain(&container, ChangeFeedOptions::resume(token), &mut seen).await;
    assert_eq!(seen, ["0", "east", "west"].map(str::to_owned).into());
}
