//! The handle of a database.

use std::sync::Arc;

use perihelion_driver::Driver;
use perihelion_driver::operation::Target;

use crate::container::Container;
use crate::properties::{ContainerProperties, DatabaseProperties};
use crate::throughput::{ProvisionedThroughput, Throughput};
use crate::{Error, feed, manage, throughput};

/// The handle of a database. Getting one sends no request; cloning one is cheap.
#[derive(Clone)]
pub struct Database {
    driver: Driver,
    name: Arc<str>,
}

impl Database {
    pub(crate) fn new(driver: &Driver, name: &str) -> Self {
        Database { driver: driver.clone(), name: name.into() }
    }

    /// The database's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The handle of a container. Sends no request.
    pub fn container(&self, name: &str) -> Container {
        Container::new(&self.driver, &self.name, name)
    }

    /// Creates a container. Fails with 409, [`Error::is_conflict`], when a container of
    /// this name exists.
    ///
    /// ```no_run
    /// # use perihelion_client::{ContainerProperties, Database, Error, Throughput};
    /// # async fn example(shop: Database) -> Result<(), Error> {
    /// let properties = ContainerProperties::new("orders", "/customer").with_throughput(Throughput::manual(400));
    /// let orders = shop.create_container(&properties).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn create_container(&self, properties: &ContainerProperties) -> Result<Container, Error> {
        manage::create_container(&self.driver, &self.name, properties).await?;
        Ok(self.container(&properties.id))
    }

    /// Creates a container unless it exists. Succeeds when another process creates
    /// it at the same time. Fails when a container of this name has another
    /// partition key; other properties of an existing container do not change.
    pub async fn create_container_if_missing(
        &self,
        properties: &ContainerProperties,
    ) -> Result<Container, Error> {
        let container = self.container(&properties.id);
        manage::create_container_if_missing(container.handle(), properties).await?;
        Ok(container)
    }

    /// Lists all containers.
    pub async fn containers(&self) -> Result<Vec<ContainerProperties>, Error> {
        feed::list(&self.driver, Target::containers(&self.name)).await
    }

    /// Reads the properties of the database.
    pub async fn read(&self) -> Result<DatabaseProperties, Error> {
        manage::read_database(&self.driver, &self.name).await
    }

    /// Deletes the database with all its containers.
    pub async fn delete(&self) -> Result<(), Error> {
        manage::delete_database(&self.driver, &self.name).await
    }

    /// Reads the throughput that the database's containers share; `None` when the
    /// database has no throughput of its own.
    pub async fn throughput(&self) -> Result<Option<ProvisionedThroughput>, Error> {
        throughput::read(&self.driver, &self.read().await?.resource_id).await
    }

    /// Changes the throughput that the database's containers share.
    pub async fn replace_throughput(&self, throughput: Throughput) -> Result<ProvisionedThroughput, Error> {
        throughput::replace(&self.driver, &self.read().await?.resource_id, throughput).await
    }
}

impl std::fmt::Debug for Database {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Database({})", self.name)
    }
}
