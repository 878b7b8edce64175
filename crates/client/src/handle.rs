//! `ContainerHandle`: a container's name, and the driver that caches the container's
//! metadata. Every operation on a container takes a handle. The public type
//! [`Container`](crate::Container) wraps a handle.

use std::sync::Arc;

use perihelion_driver::operation::Operation;
use perihelion_driver::{Container, ContainerMetadata, Driver, Error, OperationOptions, Response, status};

use crate::feed_range::FeedRange;

/// A container by name and the driver that reaches it. Cheap to clone.
#[derive(Clone)]
pub(crate) struct ContainerHandle {
    driver: Driver,
    driver_container: Arc<Container>,
}

impl ContainerHandle {
    pub(crate) fn new(driver: &Driver, database: &str, name: &str) -> Self {
        ContainerHandle { driver: driver.clone(), driver_container: driver.container(database, name) }
    }

    pub(crate) fn name(&self) -> &str {
        self.driver_container.name()
    }

    pub(crate) fn database_name(&self) -> &str {
        self.driver_container.database()
    }

    pub(crate) fn driver(&self) -> &Driver {
        &self.driver
    }

    /// The driver's own handle of the container, for targets of operations.
    pub(crate) fn driver_container(&self) -> &Arc<Container> {
        &self.driver_container
    }

    pub(crate) async fn execute(
        &self,
        operation: &Operation,
        options: &OperationOptions,
    ) -> Result<Response, Error> {
        self.driver.execute(operation, options).await
    }

    /// Partition key, physical partitions and `_rid`, from the driver's cache.
    pub(crate) async fn metadata(&self) -> Result<Arc<ContainerMetadata>, Error> {
        self.driver.metadata(&self.driver_container).await
    }

    /// Reads the metadata again unless another caller has replaced `stale`. Returns the
    /// current metadata.
    pub(crate) async fn refresh_metadata(
        &self,
        stale: &Arc<ContainerMetadata>,
    ) -> Result<Arc<ContainerMetadata>, Error> {
        self.driver.refresh_metadata(&self.driver_container, stale).await
    }

    /// One range for each physical partition that the container has now.
    pub(crate) async fn feed_ranges(&self) -> Result<Vec<FeedRange>, Error> {
        let metadata = self.metadata().await?;
        Ok(metadata.ranges.iter().map(|range| FeedRange::of(&range.range)).collect())
    }
}

impl std::fmt::Debug for ContainerHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Container({}/{})", self.database_name(), self.name())
    }
}

/// Whether the service refused a request with 410, whatever the sub-status is. Usually
/// the physical partition of the request was split, merged or moved. The request must
/// be sent again, to the partitions that the container has now.
pub(crate) fn is_status_gone(error: &Error) -> bool {
    error.status().is_some_and(|status| status.code == status::GONE.code)
}
