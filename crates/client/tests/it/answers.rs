//! The parts of responses besides their documents: all headers, query metrics, index metrics.

use http::HeaderValue;
use perihelion_client::{
    Batch, ChangeFeedOptions, Client, Container, ContainerProperties, Query, QueryMetrics,
};
use perihelion_server::{EmbeddedOptions, InProcess};
use perihelion_testkit::TestServer;
use perihelion_wire::headers;
use perihelion_wire::transport::{Failure, Request, Response, Transport};
use serde_json::{Value, json};

use crate::world::World;

const PARTITION_KEY: &str = r#"{"paths":["/pk"],"kind":"Hash","version":2}"#;

async fn orders(world: &World, count: u32) -> Container {
    let orders = world.container("orders", PARTITION_KEY).await;
    for n in 0..count {
        let key = format!("key-{}", n % 16);
        orders.create(key.as_str(), &json!({"id": n.to_string(), "pk": key, "n": n})).await.unwrap();
    }
    orders
}

#[tokio::test(start_paused = true)]
async fn every_typed_answer_has_all_its_headers() {
    let world = World::new(2).await;
    let orders = orders(&world, 1).await;
    const ACTIVITY_ID: &str = "x-ms-activity-id";
    let written = orders.upsert("a", &json!({"id": "1", "pk": "a"})).await.unwrap();
    let charge = written.receipt().header("x-ms-request-charge").unwrap();
    assert_eq!(charge.parse::<f64>().unwrap(), written.charge());
    assert_eq!(written.receipt().session_token(), written.receipt().header("x-ms-session-token"));
    let read = orders.read::<Value>("a", "1").await.unwrap();
    assert!(read.receipt().headers().contains_key(ACTIVITY_ID));
    assert_eq!(read.receipt().header("x-no-such-header"), None);
    let mut batch = Batch::new("a");
    batch.read("1").unwrap();
    let results = orders.batch(batch).await.unwrap();
    assert!(results.receipt().headers().contains_key(ACTIVITY_ID));
    let mut feed = orders.change_feed::<Value>(ChangeFeedOptions::from_beginning());
    let page = feed.next_page().await.unwrap().unwrap();
    assert!(page.receipt().headers().contains_key(ACTIVITY_ID));
    let mut rows = orders.query::<Value>(Query::new("SELECT * FROM c").in_partition("a"));
    let page = rows.next_page().await.unwrap().unwrap();
    assert_eq!((page.headers().len(), page.diagnostics().len()), (1, 1));
    assert_eq!(page.headers()[0].get("x-ms-item-count").unwrap(), "1");
    let properties = orders.properties().await.unwrap();
    assert!(properties.receipt().unwrap().headers().contains_key(ACTIVITY_ID));
    let properties = world.client.database("shop").read().await.unwrap();
    assert!(properties.receipt().unwrap().headers().contains_key(ACTIVITY_ID));
    assert!(ContainerProperties::new("new", "/pk").receipt().is_none());
}

#[tokio::test(start_paused = true)]
async fn query_metrics_are_summed_over_responses_and_pages() {
    let world = World::new(4).await;
    let orders = orders(&world, 64).await;
    let query = || Query::new("SELECT * FROM c WHERE c.n < 40 ORDER BY c.n").with_max_items(10);
    let mut feed = orders.query::<Value>(query().with_query_metrics());
    let (mut sum, mut rows) = (QueryMetrics::default(), 0);
    while let Some(page) = feed.next_page().await.unwrap() {
        sum += page.query_metrics().unwrap_or_default();
        rows += page.items.len() as u64;
    }
    assert_eq!((rows, sum.output_documents), (40, 40), "{sum:?}");
    assert!(sum.responses >= 4, "one response for each partition: {sum:?}");
    assert!(sum.retrieved_documents >= 40 && sum.retrieved_bytes > 0, "{sum:?}");
    let page = orders.query::<Value>(query()).next_page().await.unwrap().unwrap();
    assert_eq!(page.query_metrics(), None, "the query did not ask for them");
    let direct = Query::new("SELECT * FROM c").in_partition("key-1").with_query_metrics();
    let page = orders.query::<Value>(direct).next_page().await.unwrap().unwrap();
    assert_eq!(page.query_metrics().unwrap().output_documents, 4);
}

/// Adds the index metrics that the service sends to a query that asks for them. Our server
/// sends none.
struct WithIndexMetrics(InProcess);

impl Transport for WithIndexMetrics {
    async fn send(&self, request: Request) -> Result<Response, Failure> {
        let is_asked =
            request.headers.get(headers::POPULATE_INDEX_METRICS).is_some_and(|value| value == "True");
        let mut response = self.0.send(request).await?;
        if is_asked {
            let metrics = r#"{"UtilizedSingleIndexes":[{"IndexSpec":"/n/?","IndexImpactScore":"High"}]}"#;
            response.headers_mut().insert(headers::INDEX_UTILIZATION, HeaderValue::from_static(metrics));
        }
        Ok(response)
    }
}

#[tokio::test(start_paused = true)]
async fn index_metrics_are_asked_for_and_merged_over_partitions() {
    let server = TestServer::in_process(EmbeddedOptions::default().with_partitions(3)).await;
    let client =
        Client::over(&server.endpoint(), WithIndexMetrics(server.embedded().transport())).await.unwrap();
    let shop = client.create_database_if_missing("shop").await.unwrap();
    let orders = shop.create_container_if_missing(&ContainerProperties::new("orders", "/pk")).await.unwrap();
    for n in 0..20 {
        let key = format!("key-{n}");
        orders.create(key.as_str(), &json!({"id": "1", "pk": key, "n": n})).await.unwrap();
    }
    let query = || Query::new("SELECT * FROM c ORDER BY c.n");
    let page = orders.query::<Value>(query().with_index_metrics()).next_page().await.unwrap().unwrap();
    let metrics = page.index_metrics().unwrap();
    assert_eq!(metrics.utilized_single_indexes.len(), 1, "{metrics:?}");
    assert_eq!(metrics.utilized_single_indexes[0].index_spec, "/n/?");
    let page = orders.query::<Value>(query()).next_page().await.unwrap().unwrap();
    assert_eq!(page.index_metrics(), None);
}
