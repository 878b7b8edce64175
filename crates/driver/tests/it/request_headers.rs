//! The headers that callers choose: priority, throughput bucket, dedicated gateway, and headers
//! of their own. A transport records what reaches the server.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::HeaderMap;
use perihelion_driver::operation::Verb;
use perihelion_driver::options::Priority;
use perihelion_driver::transport::AnyTransport;
use perihelion_driver::{Driver, DriverOptions, OperationOptions};
use perihelion_wire::transport::{Failure, Request, Response, Transport};

use crate::world::World;

/// A transport that records the path and the headers of every request.
pub(crate) struct Recording {
    pub(crate) inner: AnyTransport,
    pub(crate) sent: Arc<Mutex<Vec<(String, HeaderMap)>>>,
}

impl Transport for Recording {
    async fn send(&self, request: Request) -> Result<Response, Failure> {
        let record = (request.target.path().to_owned(), request.headers.clone());
        self.sent.lock().unwrap().push(record);
        self.inner.send(request).await
    }
}

/// A driver for the world's server, and the paths and headers that the driver sends.
async fn recorded_driver(
    world: &World,
    options: DriverOptions,
) -> (Driver, Arc<Mutex<Vec<(String, HeaderMap)>>>) {
    let sent = Arc::default();
    let transport = Recording { inner: world.server.transport(), sent: Arc::clone(&sent) };
    (world.server.driver_over(AnyTransport::foreign(transport), options).await, sent)
}

pub(crate) fn text(headers: &HeaderMap, name: &str) -> Option<String> {
    headers.get(name).map(|value| value.to_str().unwrap().to_owned())
}

#[tokio::test]
async fn chosen_headers_are_sent_with_documents_and_cache_headers_only_with_reads() {
    let world = World::new().await;
    let defaults = OperationOptions::default()
        .with_priority(Priority::Low)
        .with_throughput_bucket(2)
        .with_dedicated_gateway_staleness_max(Duration::from_millis(1500))
        .with_dedicated_gateway_bypass(true);
    let (driver, sent) = recorded_driver(&world, DriverOptions::default().with_operation(defaults)).await;
    let operation = OperationOptions::default().with_priority(Priority::High);
    driver.execute(&world.write(Verb::Upsert, "1", "a"), &operation).await.unwrap();
    driver.execute(&world.read("1"), &OperationOptions::default()).await.unwrap();
    let sent = sent.lock().unwrap();
    let chosen = |headers: &HeaderMap| {
        [
            "x-ms-cosmos-priority-level",
            "x-ms-cosmos-throughput-bucket",
            "x-ms-dedicatedgateway-max-age",
            "x-ms-dedicatedgateway-bypass-cache",
        ]
        .map(|name| text(headers, name))
    };
    let some = |text: &str| Some(text.to_owned());
    let of_documents: Vec<_> = sent.iter().filter(|(path, _)| path.contains("/docs")).collect();
    assert_eq!(of_documents.len(), 2);
    assert_eq!(chosen(&of_documents[0].1), [some("High"), some("2"), None, None], "the write");
    assert_eq!(chosen(&of_documents[1].1), [some("Low"), some("2"), some("1500"), some("True")], "the read");
    for (path, headers) in sent.iter().filter(|(path, _)| !path.contains("/docs")) {
        assert_eq!(chosen(headers), [None, None, None, None], "{path}");
    }
}

#[tokio::test]
async fn headers_of_the_caller_go_with_every_request_of_the_driver() {
    let world = World::new().await;
    let defaults = OperationOptions::default()
        .with_header("x-cell", "7")
        .unwrap()
        .with_header("x-team", "shop")
        .unwrap();
    let (driver, sent) = recorded_driver(&world, DriverOptions::default().with_operation(defaults)).await;
    let operation_options = OperationOptions::default().with_header("X-Team", "orders").unwrap();
    driver.execute(&world.write(Verb::Upsert, "1", "a"), &operation_options).await.unwrap();
    let sent = sent.lock().unwrap();
    let paths: Vec<&str> = sent.iter().map(|(path, _)| path.as_str()).collect();
    assert!(paths.contains(&"/") && paths.iter().any(|path| path.ends_with("/pkranges")), "{paths:?}");
    for (path, headers) in sent.iter() {
        let team = if path.contains("/docs") { "orders" } else { "shop" };
        assert_eq!(
            (text(headers, "x-cell").as_deref(), text(headers, "x-team").as_deref()),
            (Some("7"), Some(team)),
            "{path}"
        );
    }
}
