//! A database's handle.

use std::sync::Arc;

use perihelion_driver::Driver;

use crate::container::Container;

/// A database by name: making one sends nothing, cloning one is cheap.
#[derive(Clone)]
pub struct Database {
    driver: Driver,
    name: Arc<str>,
}

impl Database {
    pub(crate) fn new(driver: Driver, name: String) -> Self {
        Database { driver, name: name.into() }
    }

    /// The database's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A container by name; nothing is sent.
    pub fn container(&self, name: &str) -> Container {
        Container::new(&self.driver, &self.name, name)
    }
}

impl std::fmt::Debug for Database {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Database({})", self.name)
    }
}
