//! The client: one account, and the way to everything in it.

use perihelion_driver::Driver;
use perihelion_driver::operation::Target;

use crate::database::Database;
use crate::properties::DatabaseProperties;
use crate::throughput::Throughput;
use crate::{Error, feed, manage};

/// A connection to one account. Cheap to clone: clones share connections,
/// topology and sessions. Make one per process and keep it.
#[derive(Clone, Debug)]
pub struct Client {
    driver: Driver,
}

impl Client {
    /// A client over a driver that was opened by hand.
    pub fn from_driver(driver: Driver) -> Self {
        Client { driver }
    }

    /// The driver underneath, for operations that have no method here.
    pub fn driver(&self) -> &Driver {
        &self.driver
    }

    /// A database by name; nothing is sent.
    pub fn database(&self, name: &str) -> Database {
        Database::new(&self.driver, name)
    }

    /// Creates a database. One of the same name makes it fail with 409,
    /// [`Error::is_conflict`].
    pub async fn create_database(&self, name: &str) -> Result<Database, Error> {
        manage::create_database(&self.driver, name, None).await?;
        Ok(self.database(name))
    }

    /// Creates a database whose containers share this throughput.
    pub async fn create_database_with_throughput(
        &self,
        name: &str,
        throughput: Throughput,
    ) -> Result<Database, Error> {
        manage::create_database(&self.driver, name, Some(throughput)).await?;
        Ok(self.database(name))
    }

    /// Creates a database unless it exists; losing a race against another
    /// creator is success.
    pub async fn create_database_if_missing(&self, name: &str) -> Result<Database, Error> {
        manage::create_database_if_missing(&self.driver, name).await?;
        Ok(self.database(name))
    }

    /// All databases.
    pub async fn databases(&self) -> Result<Vec<DatabaseProperties>, Error> {
        feed::list(&self.driver, Target::databases()).await
    }
}
