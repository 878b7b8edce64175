//! A write is applied, a consumer processes and deletes the new document, and only then the
//! writer notices that its response was lost. A write with a witness, or with `Repeat::Never`, must
//! not create the document a second time. By default a create is sent again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::Method;
use perihelion_client::diagnostics::Resolution;
use perihelion_client::{Batch, Client, Container, ItemOptions, Repeat};
use perihelion_server::InProcess;
use perihelion_testkit::faults;
use perihelion_wire::transport::{Failure, Request, Response, Transport};
use serde_json::{Value, json};

use crate::world::World;

const PARTITION_KEY: &str = r#"{"paths":["/pk"],"kind":"Hash","version":2}"#;

/// A transport that loses the response to the next write of a document, after a consumer has
/// deleted the document `message`.
struct LosesResponseAfterConsumption {
    server: InProcess,
    consumer: Container,
    is_armed: Arc<AtomicBool>,
}

impl Transport for LosesResponseAfterConsumption {
    async fn send(&self, request: Request) -> Result<Response, Failure> {
        let is_write = request.method == Method::POST && request.target.path().ends_with("/docs");
        let response = self.server.send(request).await?;
        if is_write && self.is_armed.swap(false, Ordering::Relaxed) {
            self.consumer.delete("k", "message").await.expect("the write was applied");
            return Err(faults::response_lost());
        }
        Ok(response)
    }
}

/// A writer that gets no response to its next write, and the consumer.
async fn writer_and_consumer(world: &World) -> (Container, Container) {
    let consumer = world.container("c", PARTITION_KEY).await;
    let is_armed = Arc::new(AtomicBool::new(false));
    let transport = LosesResponseAfterConsumption {
        server: world.embedded().transport(),
        consumer: consumer.clone(),
        is_armed: Arc::clone(&is_armed),
    };
    let client = Client::over(&world.endpoint(), transport).await.unwrap();
    let writer = client.database("shop").container("c");
    writer.create("k", &json!({"id": "state", "pk": "k"})).await.unwrap();
    is_armed.store(true, Ordering::Relaxed);
    (writer, consumer)
}

fn message() -> Value {
    json!({"id": "message", "pk": "k"})
}

async fn exists(container: &Container) -> bool {
    container.find::<Value>("k", "message").await.unwrap().is_some()
}

/// The witness is in a document that the consumer does not delete.
#[tokio::test(start_paused = true)]
async fn a_batch_is_not_sent_again_when_its_witness_is_found() {
    let world = World::new(1).await;
    let (writer, consumer) = writer_and_consumer(&world).await;
    let mut batch = Batch::new("k").with_witness("state", "/turn", "turn-1");
    batch
        .create(&message())
        .and_then(|batch| batch.upsert(&json!({"id": "state", "pk": "k", "turn": "turn-1"})))
        .unwrap();
    let results = writer.batch(batch).await.unwrap();
    assert_eq!(results.receipt().diagnostics().resolution(), Some(Resolution::Witnessed));
    assert!(!exists(&consumer).await, "the message was created twice");
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_must_not_be_repeated_is_ambiguous() {
    let world = World::new(1).await;
    let (writer, consumer) = writer_and_consumer(&world).await;
    let mut batch = Batch::new("k").with_repeat(Repeat::Never);
    batch.create(&message()).unwrap();
    let lost = writer.batch(batch).await.unwrap_err();
    assert!(lost.is_ambiguous(), "{lost}");
    assert!(!exists(&consumer).await, "the message was created twice");
}

#[tokio::test(start_paused = true)]
async fn a_write_that_must_not_be_repeated_is_ambiguous() {
    let world = World::new(1).await;
    let (writer, consumer) = writer_and_consumer(&world).await;
    let options = ItemOptions::new().with_repeat(Repeat::Never);
    let lost = writer.create_with("k", &message(), &options).await.unwrap_err();
    assert!(lost.is_ambiguous(), "{lost}");
    assert_eq!(lost.diagnostics().attempts().count(), 1);
    assert!(!exists(&consumer).await, "the message was created twice");
}

/// The writer does not call `with_repeat`. The create is sent again and succeeds.
#[tokio::test(start_paused = true)]
async fn a_create_is_repeated_by_default() {
    let world = World::new(1).await;
    let (writer, consumer) = writer_and_consumer(&world).await;
    let written = writer.create("k", &message()).await.unwrap();
    assert_eq!(written.receipt().diagnostics().attempts().count(), 2);
    assert!(exists(&consumer).await);
}

/// By default an increment whose response was lost is not sent again. With `Repeat::Always` it is sent
/// again, and counts twice.
#[tokio::test(start_paused = true)]
async fn an_increment_is_repeated_only_if_the_caller_allows_it() {
    let world = World::new(1).await;
    let container = world.container("c", PARTITION_KEY).await;
    container.create("k", &json!({"id": "1", "pk": "k", "views": 0})).await.unwrap();
    let increment = perihelion_client::Patch::new().increment("/views", 1).unwrap();
    for (repeat, expected_views) in [(Repeat::ByKind, 1), (Repeat::Always, 3)] {
        world.fault(r#"{"operation":"patch_item","count":1,"drop":"after"}"#).await;
        let options = ItemOptions::new().with_repeat(repeat);
        let outcome = container.patch_with("k", "1", &increment, &options).await;
        assert_eq!(outcome.is_ok(), repeat == Repeat::Always, "{outcome:?}");
        assert_eq!(container.read::<Value>("k", "1").await.unwrap().value["views"], expected_views);
    }
}
