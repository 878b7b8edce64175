//! A database's handle: every method is one line over one exchange.

use std::sync::Arc;

use perihelion_driver::Driver;
use perihelion_driver::operation::Target;

use crate::container::Container;
use crate::properties::{ContainerProperties, DatabaseProperties};
use crate::throughput::{ProvisionedThroughput, Throughput};
use crate::{Error, feed, manage, throughput};

/// A database by name: making one sends nothing, cloning one is cheap.
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

    /// A container by name; nothing is sent.
    pub fn container(&self, name: &str) -> Container {
        Container::new(&self.driver, &self.name, name)
    }

    /// Creates a container. One of the same name makes it fail with 409,
    /// [`Error::is_conflict`].
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

    /// Creates a container unless it exists; losing a race against another
    /// creator is success. A container of that name with another partition key
    /// is an error; its other properties are left as they are.
    pub async fn create_container_if_missing(
        &self,
        properties: &ContainerProperties,
    ) -> Result<Container, Error> {
        let container = self.container(&properties.id);
        manage::create_container_if_missing(&container, properties).await?;
        Ok(container)
    }

    /// All containers.
    pub async fn containers(&self) -> Result<Vec<ContainerProperties>, Error> {
        feed::list(&self.driver, Target::containers(&self.name)).await
    }

    /// What the service knows of it.
    pub async fn read(&self) -> Result<DatabaseProperties, Error> {
        manage::read_database(&self.driver, &self.name).await
    }

    /// Deletes it, with everything in it.
    pub async fn delete(&self) -> Result<(), Error> {
        manage::delete_database(&self.driver, &self.name).await
    }

    /// The throughput that its containers share; `None` when there is none.
    pub async fn throughput(&self) -> Result<Option<ProvisionedThroughput>, Error> {
        throughput::read(&self.driver, &self.read().await?.resource_id).await
    }

    /// Changes the throughput that its containers share.
    pub async fn replace_throughput(&self, throughput: Throughput) -> Result<ProvisionedThroughput, Error> {
        throughput::replace(&self.driver, &self.read().await?.resource_id, throughput).await
    }
}

impl std::fmt::Debug for Database {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Database({})", self.name)
    }
}
