//! Writes of metadata that the service applies, and whose answers cannot be read.

use std::time::Duration;

use bytes::Bytes;
use http::Method;
use perihelion_client::{Client, Container, ContainerProperties, ErrorKind, Throughput};
use perihelion_server::{EmbeddedOptions, InProcess};
use perihelion_testkit::TestServer;
use perihelion_wire::transport::{Failure, Request, Response, Transport};

/// Replaces the bodies of the answers to requests with this method.
struct OddBodies {
    server: InProcess,
    method: Method,
    body: &'static [u8],
}

impl Transport for OddBodies {
    async fn send(&self, request: Request) -> Result<Response, Failure> {
        let is_odd = request.method == self.method;
        let mut response = self.server.send(request).await?;
        if is_odd {
            *response.body_mut() = Bytes::from_static(self.body);
        }
        Ok(response)
    }
}

/// A container whose replaces are answered with this body, and a handle of the same container with
/// unchanged answers.
async fn orders(body: &'static [u8]) -> (TestServer, Container, Container) {
    let server = TestServer::in_process(EmbeddedOptions::default()).await;
    let plain = Client::over(&server.endpoint(), server.embedded().transport()).await.unwrap();
    let shop = plain.create_database_if_missing("shop").await.unwrap();
    let properties = ContainerProperties::new("orders", "/pk").with_throughput(Throughput::manual(400));
    let orders = shop.create_container_if_missing(&properties).await.unwrap();
    let transport = OddBodies { server: server.embedded().transport(), method: Method::PUT, body };
    let odd = Client::over(&server.endpoint(), transport).await.unwrap();
    (server, odd.database("shop").container("orders"), orders)
}

#[tokio::test(start_paused = true)]
async fn a_replaced_container_with_an_unreadable_answer_is_ambiguous() {
    for body in [&b""[..], b"<html>", b"[]"] {
        let (_server, odd, orders) = orders(body).await;
        let properties = orders.properties().await.unwrap().with_ttl(Duration::from_secs(60));
        let error = odd.replace_properties(&properties).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Ambiguous, "{error}");
        assert_eq!(error.diagnostics().attempts().count(), 1, "{error}");
        assert_eq!(orders.properties().await.unwrap().ttl, properties.ttl, "the change was applied");
    }
}

#[tokio::test(start_paused = true)]
async fn a_changed_throughput_with_an_unreadable_answer_is_ambiguous() {
    for body in [&b""[..], b"<html>", br#"{"id":"x","content":{}}"#] {
        let (_server, odd, orders) = orders(body).await;
        for wanted in [Throughput::manual(500), Throughput::autoscale(4000)] {
            let error = odd.replace_throughput(wanted).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Ambiguous, "{error}");
        }
        assert_ne!(orders.throughput().await.unwrap().unwrap().throughput, Throughput::manual(400));
    }
}
