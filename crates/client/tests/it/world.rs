//! `World`: a client of a server in this process. The server refuses the
//! cross-partition queries that the real gateway refuses.

use std::ops::Deref;

use perihelion_client::{Client, Container};
use perihelion_server::EmbeddedOptions;
use perihelion_testkit::TestServer;
use perihelion_testkit::driver::{create_container_with_key, create_database, delete_container};

/// A client and an empty database `shop`. `World` dereferences to its server, which
/// has the methods for faults and counters.
pub(crate) struct World {
    server: TestServer,
    pub(crate) client: Client,
}

impl Deref for World {
    type Target = TestServer;

    fn deref(&self) -> &TestServer {
        &self.server
    }
}

impl World {
    /// Every new container has `partitions` physical partitions.
    pub(crate) async fn new(partitions: u32) -> World {
        let options = EmbeddedOptions::default().with_partitions(partitions).with_strict_gateway(true);
        let server = TestServer::in_process(options).await;
        let client = server.client().await;
        create_database(client.driver(), "shop").await;
        World { server, client }
    }

    pub(crate) fn server(&self) -> &TestServer {
        &self.server
    }

    /// Creates a container of the database. `partition_key` is the definition of the
    /// partition key in JSON.
    pub(crate) async fn container(&self, name: &str, partition_key: &str) -> Container {
        create_container_with_key(self.client.driver(), "shop", name, partition_key).await;
        self.client.database("shop").container(name)
    }

    pub(crate) async fn delete_container(&self, container: &Container) {
        let driver = self.client.driver();
        delete_container(driver, &driver.container("shop", container.name())).await;
    }

    /// Splits the physical partition of a container that has the id `range`.
    pub(crate) async fn split(&self, container: &str, range: &str) {
        self.server.split("shop", container, Some(range)).await;
    }
}
