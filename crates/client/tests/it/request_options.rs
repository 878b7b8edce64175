//! Options of items and queries that become headers: priority, throughput bucket, dedicated
//! gateway, and headers of the caller's own.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use perihelion_client::{Client, ItemOptions, OperationOptions, Priority, Query, Transport};
use perihelion_server::InProcess;
use perihelion_wire::transport::{Failure, Request, Response};
use serde_json::{Value, json};

use crate::world::World;

/// The values of the headers that the options set, in the order of the names in `Recording::send`.
type Chosen = [Option<String>; 5];

/// A transport that records the chosen headers of requests for documents.
struct Recording {
    inner: InProcess,
    sent: Arc<Mutex<Vec<Chosen>>>,
}

impl Transport for Recording {
    async fn send(&self, request: Request) -> Result<Response, Failure> {
        if request.target.path().contains("/docs") {
            let chosen = [
                "x-ms-cosmos-priority-level",
                "x-ms-cosmos-throughput-bucket",
                "x-ms-dedicatedgateway-max-age",
                "x-ms-dedicatedgateway-bypass-cache",
                "x-team",
            ]
            .map(|name| request.headers.get(name).map(|value| value.to_str().unwrap().to_owned()));
            self.sent.lock().unwrap().push(chosen);
        }
        self.inner.send(request).await
    }
}

#[tokio::test]
async fn options_of_items_and_queries_reach_every_request() {
    let world = World::new(2).await;
    world.container("orders", r#"{"paths":["/pk"],"kind":"Hash","version":2}"#).await;
    let sent = Arc::default();
    let embedded = world.server().embedded();
    let recording = Recording { inner: embedded.transport(), sent: Arc::clone(&sent) };
    let client = Client::over(&embedded.endpoint(), recording).await.unwrap();
    let orders = client.database("shop").container("orders");
    // An empty text stands for a header that is not sent.
    let headers = |texts: [&str; 5]| texts.map(|text| Some(text.to_owned()).filter(|text| !text.is_empty()));
    let options = ItemOptions::new()
        .with_priority(Priority::Low)
        .with_throughput_bucket(3)
        .with_dedicated_gateway_staleness_max(Duration::from_secs(2))
        .with_dedicated_gateway_bypass(true)
        .with_header("x-team", "shop")
        .unwrap();
    orders.create_with("a", &json!({"id": "1", "pk": "a"}), &options).await.unwrap();
    orders.read_with::<Value>("a", "1", &options).await.unwrap();
    let expected = [headers(["Low", "3", "", "", "shop"]), headers(["Low", "3", "2000", "True", "shop"])];
    assert_eq!(std::mem::take(&mut *sent.lock().unwrap()), expected);

    // A query sends a request to each of the two partitions, and one for its plan. All have the headers.
    let query = Query::new("SELECT VALUE c.id FROM c ORDER BY c.id")
        .with_service_plan()
        .with_priority(Priority::High)
        .with_throughput_bucket(5)
        .with_dedicated_gateway_staleness_max(Duration::from_millis(7))
        .with_header("x-team", "reports")
        .unwrap()
        .with_operation(OperationOptions::default().with_timeout(Duration::from_secs(9)));
    assert_eq!(orders.query::<String>(query).collect().await.unwrap(), ["1"]);
    let sent = sent.lock().unwrap();
    assert!(sent.len() >= 3, "{sent:?}");
    for chosen in sent.iter() {
        assert_eq!(*chosen, headers(["High", "5", "7", "", "reports"]));
    }
    let error = ItemOptions::new().with_header("authorization", "x").unwrap_err().to_string();
    assert!(error.contains("authorization"), "{error}");
}
