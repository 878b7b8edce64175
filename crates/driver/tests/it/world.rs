//! A driver over the engine in this process, and the operations that most tests run.

use std::ops::Deref;
use std::sync::Arc;

use bytes::Bytes;
use perihelion_driver::operation::{KeyScope, Scope, Target, Verb};
use perihelion_driver::{Container, Driver, DriverOptions, Error, Operation, OperationOptions, Response};
use perihelion_model::partition_key::{KeyValue, PartitionKey};
use perihelion_server::EmbeddedOptions;
use perihelion_testkit::{TestServer, driver};

/// A database `shop` with a container `orders`, partitioned by `/customer`. A world
/// dereferences to its server, which has methods for faults and counters.
pub(crate) struct World {
    pub(crate) server: TestServer,
    pub(crate) driver: Driver,
    pub(crate) orders: Arc<Container>,
}

impl Deref for World {
    type Target = TestServer;

    fn deref(&self) -> &TestServer {
        &self.server
    }
}

impl World {
    pub(crate) async fn new() -> World {
        World::with(EmbeddedOptions::default(), DriverOptions::default()).await
    }

    /// A world whose server and driver have these options.
    pub(crate) async fn with(server: EmbeddedOptions, options: DriverOptions) -> World {
        let server = TestServer::in_process(server).await;
        let driver = server.driver(options).await;
        let orders = driver.container("shop", "orders");
        let world = World { server, driver, orders };
        driver::create_database(&world.driver, "shop").await;
        world.create_container().await;
        world
    }

    /// A driver that shares nothing with the first one, as in another process.
    pub(crate) async fn other_driver(&self, options: DriverOptions) -> Driver {
        self.server.driver(options).await
    }

    pub(crate) async fn create_container(&self) {
        driver::create_container(&self.driver, "shop", "orders", "/customer").await;
    }

    pub(crate) async fn delete_container(&self) {
        driver::delete_container(&self.driver, &self.orders).await;
    }

    /// Runs an operation with the default options.
    pub(crate) async fn run(&self, operation: &Operation) -> Result<Response, Error> {
        self.driver.execute(operation, &OperationOptions::default()).await
    }

    /// Splits a physical partition of the container.
    pub(crate) async fn split(&self, range: &str) {
        self.server.split("shop", "orders", Some(range)).await;
    }

    /// The operation that reads a document of customer `ada`.
    pub(crate) fn read(&self, id: &str) -> Operation {
        Operation::new(Verb::Read, Target::item(&self.orders, id), ada(), Bytes::new())
    }

    /// The operation that deletes a document of customer `ada`.
    pub(crate) fn delete(&self, id: &str) -> Operation {
        Operation::new(Verb::Delete, Target::item(&self.orders, id), ada(), Bytes::new())
    }

    /// The operation that writes a document of customer `ada`. The document has the member
    /// `stamp`, by which a test recognises the write.
    pub(crate) fn write(&self, verb: Verb, id: &str, stamp: &str) -> Operation {
        let body = format!(r#"{{"id":"{id}","customer":"ada","stamp":"{stamp}"}}"#);
        let target = match verb {
            Verb::Replace => Target::item(&self.orders, id),
            _ => Target::items(&self.orders),
        };
        Operation::new(verb, target, ada(), Bytes::from(body))
    }
}

/// The partition of customer `ada`.
pub(crate) fn ada() -> Scope {
    customer("ada")
}

/// The partition of a customer.
pub(crate) fn customer(name: &str) -> Scope {
    Scope::Key(KeyScope::new(PartitionKey { values: vec![KeyValue::String(name.to_owned())] }))
}

/// The document in a response.
pub(crate) fn document(response: &Response) -> serde_json::Value {
    serde_json::from_slice(&response.body).unwrap()
}
