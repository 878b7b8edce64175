//! `create_database_if_missing` and `create_container_if_missing`, when the response to
//! the create is lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use http::Method;
use perihelion_client::{Client, ContainerProperties};
use perihelion_server::{EmbeddedOptions, InProcess};
use perihelion_testkit::{TestServer, faults};
use perihelion_wire::transport::{Failure, Request, Response, Transport};

/// A transport that loses the responses to creates of databases and containers. The creates
/// are applied.
struct LosesResponses {
    server: InProcess,
    /// How many more responses are lost.
    losses_left: Arc<AtomicU32>,
}

impl Transport for LosesResponses {
    async fn send(&self, request: Request) -> Result<Response, Failure> {
        let path = request.target.path();
        let is_create = request.method == Method::POST && (path == "/dbs" || path.ends_with("/colls"));
        let response = self.server.send(request).await?;
        let take = |left: u32| left.checked_sub(1);
        if is_create && self.losses_left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok() {
            return Err(faults::response_lost());
        }
        Ok(response)
    }
}

/// Creates a database and a container unless they exist, and loses `lost` responses to each
/// create.
async fn create_with_lost_responses(lost: u32) {
    let server = TestServer::in_process(EmbeddedOptions::default()).await;
    let losses_left = Arc::new(AtomicU32::new(0));
    let transport =
        LosesResponses { server: server.embedded().transport(), losses_left: Arc::clone(&losses_left) };
    let client = Client::over(&server.endpoint(), transport).await.unwrap();
    losses_left.store(lost, Ordering::Relaxed);
    let shop = client.create_database_if_missing("shop").await.unwrap();
    assert_eq!(losses_left.swap(lost, Ordering::Relaxed), 0, "the responses were not lost");
    let orders =
        shop.create_container_if_missing(&ContainerProperties::new("orders", "/customer")).await.unwrap();
    assert_eq!(losses_left.load(Ordering::Relaxed), 0, "the responses were not lost");
    assert_eq!(orders.properties().await.unwrap().partition_key.paths, ["/customer"]);

    // The existing container has another partition key. The client must notice this, although the
    // responses to the create are lost.
    losses_left.store(lost, Ordering::Relaxed);
    let other_key = ContainerProperties::new("orders", "/region");
    let refused = shop.create_container_if_missing(&other_key).await.unwrap_err();
    assert!(refused.message().contains("/customer"), "{refused}");
}

/// The repeated create is refused with 409, because the first create was applied.
#[tokio::test(start_paused = true)]
async fn a_create_that_is_refused_because_of_its_own_first_attempt_is_a_success() {
    create_with_lost_responses(1).await;
}

/// No attempt of the create gets a response: one first attempt and three retries.
#[tokio::test(start_paused = true)]
async fn a_create_that_never_gets_a_response_is_found_by_a_read() {
    create_with_lost_responses(4).await;
}
