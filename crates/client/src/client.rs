//! The client: one account, and the way to everything in it.

use perihelion_driver::Driver;

use crate::database::Database;

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
    pub fn database(&self, name: impl Into<String>) -> Database {
        Database::new(self.driver.clone(), name.into())
    }
}
