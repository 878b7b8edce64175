//! Batches of `CosmosDBClient`.
//!
//! As in the published crate, a refused batch is an error, and none of its operations is
//! applied. The error is retryable if an etag differs, if a document to create exists, or
//! if the failure is transient.

use duroxide::providers::ProviderError;
use perihelion_client::{Batch, BatchResult, Error, Etag};
use serde_json::{Value, json};

use super::CosmosDBClient;
use crate::failure::Failure;

const OPERATION: &str = "transactional_batch";

/// One operation of a batch.
#[derive(Debug, Clone)]
pub enum BatchOperation {
    /// Creates a document that must not exist.
    Create {
        /// The document.
        body: Value,
    },
    /// Creates a document or replaces it.
    Upsert {
        /// The document.
        body: Value,
    },
    /// Replaces a document that must exist.
    Replace {
        /// The id of the document.
        id: String,
        /// The document.
        body: Value,
        /// The etag that the document must have; `None` replaces any version.
        if_match: Option<String>,
    },
    /// Deletes a document that must exist.
    Delete {
        /// The id of the document.
        id: String,
    },
    /// Reads a document that must exist.
    Read {
        /// The id of the document.
        id: String,
    },
}

impl BatchOperation {
    /// The operation in the service's format.
    pub fn to_json(&self) -> Value {
        let with_id = |kind: &str, id: &str| json!({ "operationType": kind, "id": id });
        match self {
            BatchOperation::Create { body } => json!({ "operationType": "Create", "resourceBody": body }),
            BatchOperation::Upsert { body } => json!({ "operationType": "Upsert", "resourceBody": body }),
            BatchOperation::Replace { id, body, if_match } => {
                let mut operation = with_id("Replace", id);
                operation["resourceBody"] = body.clone();
                if let Some(etag) = if_match {
                    operation["ifMatch"] = etag.as_str().into();
                }
                operation
            }
            BatchOperation::Delete { id } => with_id("Delete", id),
            BatchOperation::Read { id } => with_id("Read", id),
        }
    }

    fn add_to(&self, batch: &mut Batch) -> Result<(), Error> {
        match self {
            BatchOperation::Create { body } => batch.create(body)?,
            BatchOperation::Upsert { body } => batch.upsert(body)?,
            BatchOperation::Replace { id, body, if_match: None } => batch.replace(id, body)?,
            BatchOperation::Replace { id, body, if_match: Some(etag) } => {
                batch.replace_if_match(id, body, &Etag::parse(etag)?)?
            }
            BatchOperation::Delete { id } => batch.delete(id)?,
            BatchOperation::Read { id } => batch.read(id)?,
        };
        Ok(())
    }
}

/// The result of one operation of an applied batch.
#[derive(Debug, Clone)]
pub struct BatchOperationResult {
    /// The HTTP status of the operation.
    pub status_code: u16,
    /// The etag that was read or written; `None` if the answer has none.
    pub etag: Option<String>,
    /// The document; `None` if the answer has none.
    pub resource_body: Option<String>,
}

impl BatchOperationResult {
    fn of(result: &BatchResult) -> Self {
        let body = Some(result.body()).filter(|body| !body.is_empty());
        BatchOperationResult {
            status_code: result.status().code,
            etag: result.etag().map(|etag| etag.as_str().to_owned()),
            resource_body: body.map(|body| String::from_utf8_lossy(body).into_owned()),
        }
    }
}

impl CosmosDBClient {
    /// Applies all operations to one partition, or none.
    pub async fn transactional_batch(
        &self,
        partition_key: &str,
        operations: Vec<BatchOperation>,
    ) -> Result<Vec<BatchOperationResult>, ProviderError> {
        let mut batch = Batch::new(partition_key);
        operations.iter().try_for_each(|operation| operation.add_to(&mut batch)).map_err(batch_error)?;
        let outcome = self.open().await?.batch(batch).await;
        crate::store::state_cache::invalidate_all();
        let applied = outcome.map_err(batch_error)?;
        Ok(applied.results().iter().map(BatchOperationResult::of).collect())
    }
}

fn batch_error(error: Error) -> ProviderError {
    if error.is_conflict() || error.is_precondition_failed() {
        return ProviderError::retryable(OPERATION, error.to_string());
    }
    Failure::Storage(error).into_error(OPERATION)
}
