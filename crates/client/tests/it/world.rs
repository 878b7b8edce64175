//! A client over the real engine in this process, strict as the real gateway
//! is, and the means to ask the engine for outages and splits.

use bytes::Bytes;
use http::Method;
use perihelion_client::{Client, Container, Driver, DriverOptions, OperationOptions};
use perihelion_driver::Credential;
use perihelion_driver::operation::{Operation, Scope, Target, Verb};
use perihelion_driver::transport::AnyTransport;
use perihelion_server::{Embedded, EmbeddedOptions};

/// A database `shop`, empty.
pub(crate) struct World {
    pub(crate) server: Embedded,
    pub(crate) client: Client,
}

impl World {
    pub(crate) async fn new(partitions: u32) -> World {
        let options = EmbeddedOptions::default().with_partitions(partitions).with_strict_gateway(true);
        let server = Embedded::open(options).await.unwrap();
        let transport = AnyTransport::foreign(server.transport());
        let driver =
            Driver::open(server.endpoint(), Credential::emulator(), transport, DriverOptions::default());
        let client = Client::from_driver(driver.await.unwrap());
        let world = World { server, client };
        world.create(Target::databases(), r#"{"id":"shop"}"#.to_owned()).await;
        world
    }

    /// A new container of the database.
    pub(crate) async fn container(&self, name: &str, partition_key: &str) -> Container {
        let body = format!(r#"{{"id":"{name}","partitionKey":{partition_key}}}"#);
        self.create(Target::containers("shop"), body).await;
        self.client.database("shop").container(name)
    }

    /// A client that shares nothing with the first one.
    pub(crate) async fn another_client(&self) -> Client {
        Client::over(&self.server.endpoint(), self.server.transport()).await.unwrap()
    }

    async fn create(&self, target: Target, body: String) {
        let operation = Operation::new(Verb::Create, target, Scope::Unpartitioned, Bytes::from(body));
        self.client.driver().execute(&operation, &OperationOptions::default()).await.unwrap();
    }

    pub(crate) async fn delete(&self, container: &Container) {
        let target = Target::container(&self.client.driver().container("shop", container.name()));
        let operation = Operation::new(Verb::Delete, target, Scope::Unpartitioned, Bytes::new());
        self.client.driver().execute(&operation, &OperationOptions::default()).await.unwrap();
    }

    /// Orders an outage.
    pub(crate) async fn fault(&self, rule: &str) {
        let response = self.server.manage(Method::POST, "faults", rule).await.unwrap();
        assert!(response.status().is_success(), "{rule}: {response:?}");
    }

    /// How often the server was asked, by operation.
    pub(crate) async fn asked(&self, operation: &str) -> u64 {
        let response = self.server.manage(Method::GET, "counters", "").await.unwrap();
        let counters: serde_json::Value = serde_json::from_slice(response.body()).unwrap();
        counters["operations"][operation]["requests"].as_u64().unwrap_or(0)
    }

    pub(crate) async fn split(&self, container: &str, range: &str) {
        let body = format!(r#"{{"database":"shop","container":"{container}","range":"{range}"}}"#);
        let response = self.server.manage(Method::POST, "split", &body).await.unwrap();
        assert!(response.status().is_success(), "{response:?}");
    }
}
