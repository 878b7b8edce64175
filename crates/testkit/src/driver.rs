//! Drivers of a [`TestServer`], and the database and containers that tests of
//! the driver use.

use bytes::Bytes;
use perihelion_driver::operation::{Scope, Target, Verb};
use perihelion_driver::transport::{AnyTransport, HttpOptions, HttpTransport};
use perihelion_driver::{Container, Credential, Driver, DriverOptions, Operation, OperationOptions};

use crate::server::{Host, TestServer};

impl TestServer {
    /// A driver that shares nothing with other drivers.
    pub async fn driver(&self, options: DriverOptions) -> Driver {
        self.driver_over(self.transport(), options).await
    }

    /// A driver whose requests go through this transport.
    pub async fn driver_over(&self, transport: AnyTransport, options: DriverOptions) -> Driver {
        let opening = Driver::open(self.endpoint(), Credential::emulator(), transport, options);
        opening.await.unwrap_or_else(|error| panic!("no driver: {error}"))
    }

    /// A transport to the server that shares nothing with other transports.
    pub fn transport(&self) -> AnyTransport {
        match self.host() {
            Host::InProcess(embedded) => AnyTransport::foreign(embedded.transport()),
            Host::Socket(_) => {
                HttpTransport::new(HttpOptions::default()).expect("the defaults are valid").into()
            }
        }
    }
}

/// Creates a database.
pub async fn create_database(driver: &Driver, name: &str) {
    create(driver, Target::databases(), format!(r#"{{"id":"{name}"}}"#)).await;
}

/// Creates a container with this partition key path.
pub async fn create_container(driver: &Driver, database: &str, name: &str, path: &str) {
    let partition_key = format!(r#"{{"paths":["{path}"],"kind":"Hash","version":2}}"#);
    create_container_with_key(driver, database, name, &partition_key).await;
}

/// Creates a container whose partition key is given as the service's JSON.
pub async fn create_container_with_key(driver: &Driver, database: &str, name: &str, partition_key: &str) {
    let body = format!(r#"{{"id":"{name}","partitionKey":{partition_key}}}"#);
    create(driver, Target::containers(database), body).await;
}

/// Deletes a container.
pub async fn delete_container(driver: &Driver, container: &Container) {
    let target = Target::container(container);
    run(driver, Operation::new(Verb::Delete, target, Scope::Unpartitioned, Bytes::new())).await;
}

async fn create(driver: &Driver, target: Target, body: String) {
    run(driver, Operation::new(Verb::Create, target, Scope::Unpartitioned, Bytes::from(body))).await;
}

async fn run(driver: &Driver, operation: Operation) {
    let outcome = driver.execute(&operation, &OperationOptions::default()).await;
    outcome.unwrap_or_else(|error| panic!("{}: {error}", operation.target.path));
}
