//! The driver: what operations share, and the way in.

use std::sync::Arc;

use crate::container::Container;
use crate::error::Error;
use crate::operation::Operation;
use crate::options::OperationOptions;
use crate::response::Response;

/// A connection to one account. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Driver {}

impl Driver {
    /// The container of that name; nothing is sent.
    pub fn container(&self, database: &str, name: &str) -> Arc<Container> {
        Container::new(database, name)
    }

    /// Runs one operation to its end.
    pub async fn execute(
        &self,
        operation: &Operation,
        options: &OperationOptions,
    ) -> Result<Response, Error> {
        let _ = (operation, options);
        Err(Error::input("the pipeline is not connected yet"))
    }
}
