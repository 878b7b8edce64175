//! A driver over the real engine in this process, and the means to ask the
//! engine for outages.

use bytes::Bytes;
use http::Method;
use perihelion_driver::operation::{KeyScope, Scope, Target, Verb};
use perihelion_driver::transport::AnyTransport;
use perihelion_driver::{
    Container, Credential, Driver, DriverOptions, Error, Operation, OperationOptions, Response,
};
use perihelion_model::partition_key::{KeyValue, PartitionKey};
use perihelion_server::{Embedded, EmbeddedOptions};
use std::sync::Arc;

/// A database `shop` with a container `orders`, partitioned by `/customer`.
pub(crate) struct World {
    pub(crate) server: Embedded,
    pub(crate) driver: Driver,
    pub(crate) orders: Arc<Container>,
}

impl World {
    pub(crate) async fn new() -> World {
        World::with(EmbeddedOptions::default(), DriverOptions::default()).await
    }

    pub(crate) async fn with(server: EmbeddedOptions, options: DriverOptions) -> World {
        let server = Embedded::open(server).await.unwrap();
        let driver = World::connect(&server, options).await;
        let orders = driver.container("shop", "orders");
        let world = World { server, driver, orders };
        world.create(Target::databases(), r#"{"id":"shop"}"#).await;
        world.create_container().await;
        world
    }

    /// A driver that shares nothing with others.
    pub(crate) async fn connect(server: &Embedded, options: DriverOptions) -> Driver {
        let transport = AnyTransport::foreign(server.transport());
        Driver::open(server.endpoint(), Credential::emulator(), transport, options).await.unwrap()
    }

    pub(crate) async fn create_container(&self) {
        let body = r#"{"id":"orders","partitionKey":{"paths":["/customer"],"kind":"Hash","version":2}}"#;
        self.create(Target::containers("shop"), body).await;
    }

    pub(crate) async fn delete_container(&self) {
        let target = Target::container(&self.orders);
        let delete = Operation::new(Verb::Delete, target, Scope::Unpartitioned, Bytes::new());
        self.run(&delete).await.unwrap();
    }

    async fn create(&self, target: Target, body: &'static str) {
        let operation =
            Operation::new(Verb::Create, target, Scope::Unpartitioned, Bytes::from_static(body.as_bytes()));
        self.run(&operation).await.unwrap();
    }

    pub(crate) async fn run(&self, operation: &Operation) -> Result<Response, Error> {
        self.driver.execute(operation, &OperationOptions::default()).await
    }

    /// Orders an outage.
    pub(crate) async fn fault(&self, rule: &str) {
        let response = self.server.manage(Method::POST, "faults", rule).await.unwrap();
        assert!(response.status().is_success(), "{rule}: {response:?}");
    }

    pub(crate) async fn clear_faults(&self) {
        assert!(self.server.manage(Method::DELETE, "faults", "").await.unwrap().status().is_success());
    }

    /// Gives an order that has no particulars.
    pub(crate) async fn manage(&self, path: &str) {
        let response = self.server.manage(Method::POST, path, "{}").await.unwrap();
        assert!(response.status().is_success(), "{path}: {response:?}");
    }

    /// How often the server was asked, by operation.
    pub(crate) async fn asked(&self, operation: &str) -> u64 {
        let response = self.server.manage(Method::GET, "counters", "").await.unwrap();
        let counters: serde_json::Value = serde_json::from_slice(response.body()).unwrap();
        counters["operations"][operation]["requests"].as_u64().unwrap_or(0)
    }

    pub(crate) async fn split(&self, range: &str) {
        let body = format!(r#"{{"database":"shop","container":"orders","range":"{range}"}}"#);
        let response = self.server.manage(Method::POST, "split", &body).await.unwrap();
        assert!(response.status().is_success(), "{response:?}");
    }

    pub(crate) fn read(&self, id: &str) -> Operation {
        Operation::new(Verb::Read, Target::item(&self.orders, id), ada(), Bytes::new())
    }

    pub(crate) fn delete(&self, id: &str) -> Operation {
        Operation::new(Verb::Delete, Target::item(&self.orders, id), ada(), Bytes::new())
    }

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

pub(crate) fn customer(name: &str) -> Scope {
    Scope::Key(KeyScope::new(PartitionKey { values: vec![KeyValue::String(name.to_owned())] }))
}

pub(crate) fn document(response: &Response) -> serde_json::Value {
    serde_json::from_slice(&response.body).unwrap()
}
