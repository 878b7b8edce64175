//! Distributed transactions: writes to several partitions and containers of one account that are
//! applied together or not at all, and reads of several partitions and containers from one
//! snapshot.
//!
//! The driver runs the transactions; this module has their typed operations, results and errors.
//! A transaction is never reported as failed if it may have been committed: see
//! [`TransactionError`].

mod error;
mod read;
mod results;
#[cfg(test)]
mod tests;
mod write;

use perihelion_driver::transaction::{Transaction, TransactionEnd, TransactionOperation, TransactionVerb};
use perihelion_driver::{Driver, OperationOptions};
use perihelion_model::partition_key::PartitionKey;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

pub use error::{AbortedTransaction, TransactionError, UnknownOutcome};
pub use read::DistributedReadTransaction;
pub use results::{TransactionResult, TransactionResults};
pub use write::DistributedWriteTransaction;

use crate::container::Container;
use crate::response::encode_error;
use crate::{Error, Etag};

/// The common part of read and write transactions: the driver, the operations, the options.
#[derive(Debug, Clone)]
struct Draft {
    driver: Driver,
    transaction: Transaction,
    options: OperationOptions,
}

impl Draft {
    fn new(driver: &Driver, transaction: Transaction) -> Self {
        Draft { driver: driver.clone(), transaction, options: OperationOptions::default() }
    }

    /// Adds an operation. When it is refused, the transaction stays as it was.
    fn push(&mut self, container: &Container, operation: TransactionOperation) -> Result<(), Error> {
        if !container.driver().is_of_same_account(&self.driver) {
            return Err(Error::input(format!(
                "the container `{}` belongs to another account: a transaction is within one account. Take the \
                 container from the client of the transaction",
                container.name()
            )));
        }
        self.transaction.push(operation)
    }

    async fn run(&self) -> Result<TransactionResults, TransactionError> {
        match self.driver.execute_transaction(&self.transaction, &self.options).await {
            Ok(TransactionEnd::Completed(answer)) => Ok(TransactionResults::new(answer)),
            Ok(TransactionEnd::Refused(answer, error)) => {
                Err(TransactionError::Aborted(Box::new(AbortedTransaction::new(answer, error))))
            }
            Err(error) => Err(TransactionError::of_run(error, self.transaction.token())),
        }
    }
}

/// An operation on one document of a container.
fn operation(
    verb: TransactionVerb,
    container: &Container,
    key: PartitionKey,
    id: impl Into<String>,
) -> TransactionOperation {
    TransactionOperation::new(verb, container.handle().driver_container(), key, id)
}

/// A document as JSON text.
fn to_raw<T: Serialize + ?Sized>(value: &T) -> Result<Box<RawValue>, Error> {
    serde_json::value::to_raw_value(value).map_err(|error| encode_error::<T>(&error))
}

/// The id of a document.
fn id_of(document: &RawValue) -> Result<String, Error> {
    #[derive(Deserialize)]
    struct Identified {
        id: String,
    }
    serde_json::from_str::<Identified>(document.get()).map(|document| document.id).map_err(|_| {
        Error::input("the document has no member `id` with a text: give it one, such as a random UUID")
    })
}

/// Checks that a document has this id.
fn check_id(document: &RawValue, id: &str) -> Result<(), Error> {
    let in_document = id_of(document)?;
    if in_document == id {
        return Ok(());
    }
    Err(Error::input(format!("the document has the id `{in_document}`, but the operation replaces `{id}`")))
}

/// An etag as text, for a [`TransactionOperation`].
fn text_of(etag: Option<&Etag>) -> Option<String> {
    etag.map(|etag| etag.as_str().to_owned())
}
