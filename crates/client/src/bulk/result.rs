//! The results of a bulk: one per operation, in the order of the input.

use std::fmt;
use std::sync::Arc;

use perihelion_driver::Status;
use perihelion_wire::status;
use serde::de::DeserializeOwned;

use crate::{BatchResult, Error, Etag};

/// The outcome of one operation of a bulk.
#[derive(Debug, Clone)]
pub struct BulkResult {
    pub(super) index: u64,
    pub(super) outcome: Result<BatchResult, BulkError>,
    pub(super) charge: f64,
    pub(super) retries: u32,
}

impl BulkResult {
    /// The place of the operation in the input, from zero. Results come in this order.
    pub fn index(&self) -> u64 {
        self.index
    }

    /// Whether the operation was applied.
    pub fn is_success(&self) -> bool {
        self.outcome.is_ok()
    }

    /// The result of the operation, or why there is none.
    pub fn outcome(&self) -> Result<&BatchResult, &BulkError> {
        self.outcome.as_ref()
    }

    /// The result of the operation, or why there is none.
    pub fn into_outcome(self) -> Result<BatchResult, BulkError> {
        self.outcome
    }

    /// The error of an operation that was not applied, or may not have been.
    pub fn error(&self) -> Option<&BulkError> {
        self.outcome.as_ref().err()
    }

    /// The status of the operation; `None` when the service has not answered.
    pub fn status(&self) -> Option<Status> {
        match &self.outcome {
            Ok(result) => Some(result.status()),
            Err(error) => error.status(),
        }
    }

    /// The version that was read or written; `None` after a deletion and after an error.
    pub fn etag(&self) -> Option<&Etag> {
        self.outcome.as_ref().ok()?.etag()
    }

    /// The request units of all attempts of this operation.
    pub fn charge(&self) -> f64 {
        self.charge
    }

    /// How often the operation was sent again.
    pub fn retries(&self) -> u32 {
        self.retries
    }

    /// The size of the document, in bytes.
    pub(super) fn document_bytes(&self) -> usize {
        self.outcome.as_ref().map_or(0, |result| result.body().len())
    }

    /// The document: after a read, and after a write with
    /// [`content_on_write`](crate::BulkOptions::content_on_write).
    pub fn value<T: DeserializeOwned>(&self) -> Result<T, Error> {
        match &self.outcome {
            Ok(result) => result.value(),
            Err(error) => Err(Error::answer(format!("there is no document: {error}"))),
        }
    }
}

/// Why an operation of a bulk has no result.
#[derive(Debug, Clone)]
pub struct BulkError {
    /// A short description of the operation, such as "delete `7`".
    operation: String,
    status: Option<Status>,
    is_ambiguous: bool,
    /// The error of the whole request, or of the input. All operations of a request share it.
    cause: Option<Arc<Error>>,
}

impl BulkError {
    /// The error of an operation that the service refused.
    pub(super) fn refused(operation: String, status: Status, is_ambiguous: bool) -> Self {
        BulkError { operation, status: Some(status), is_ambiguous, cause: None }
    }

    /// The error of an operation whose request failed, or which could not be sent.
    pub(super) fn failed(operation: String, cause: Arc<Error>, is_ambiguous: bool) -> Self {
        BulkError { operation, status: cause.status(), is_ambiguous, cause: Some(cause) }
    }

    /// The status of the operation, or of the request; `None` when the service has not
    /// answered.
    pub fn status(&self) -> Option<Status> {
        self.status
    }

    /// Whether it is unknown if the operation was applied. The answer to an attempt was lost. Then
    /// the operation could not be sent again, or the service refused the repeat.
    pub fn is_ambiguous(&self) -> bool {
        self.is_ambiguous
    }

    /// Whether the document, or its container, does not exist, and the operation was not
    /// applied. A 404/1002 does not count: it says that the region has not yet applied the
    /// writes of the session, and the document may exist.
    pub fn is_not_found(&self) -> bool {
        self.has_code(status::NOT_FOUND.code) && self.status != Some(status::READ_SESSION_NOT_AVAILABLE)
    }

    /// Whether the document does not exist, but its container exists, and the operation was
    /// not applied.
    pub fn is_document_not_found(&self) -> bool {
        self.is_not_found() && self.status != Some(status::OWNER_RESOURCE_NOT_FOUND)
    }

    /// Whether the id or a unique key exists already, and the operation was not applied.
    pub fn is_conflict(&self) -> bool {
        self.has_code(status::CONFLICT.code)
    }

    /// Whether the document has another etag, or a patch's condition does not hold, and the
    /// operation was not applied.
    pub fn is_precondition_failed(&self) -> bool {
        self.has_code(status::PRECONDITION_FAILED.code)
    }

    /// Whether the service throttled the operation until the bulk gave up.
    pub fn is_throttled(&self) -> bool {
        self.has_code(status::TOO_MANY_REQUESTS.code)
    }

    /// The error of the whole request, or of the input; `None` when the service refused this
    /// operation only.
    pub fn cause(&self) -> Option<&Error> {
        self.cause.as_deref()
    }

    fn has_code(&self, code: u16) -> bool {
        !self.is_ambiguous && self.status.is_some_and(|status| status.code == code)
    }
}

impl fmt::Display for BulkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let BulkError { operation, status, is_ambiguous, cause } = self;
        if *is_ambiguous {
            write!(f, "the {operation} of a bulk may or may not have been applied")?;
        } else {
            write!(f, "the {operation} of a bulk was not applied")?;
        }
        match (cause, status) {
            (Some(cause), _) => write!(f, ": {cause}"),
            (None, Some(status)) => write!(f, ": {status}"),
            (None, None) => Ok(()),
        }
    }
}

impl std::error::Error for BulkError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.cause.as_deref().map(|cause| cause as &(dyn std::error::Error + 'static))
    }
}

/// Sums over the operations and requests of a bulk so far.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[non_exhaustive]
pub struct BulkTotals {
    /// Operations that have a result.
    pub operations: u64,
    /// How many of these operations were not applied, or may not have been.
    pub failed_operations: u64,
    /// Requests that ended.
    pub requests: u64,
    /// How many of these requests were throttled, wholly or in part.
    pub throttled_requests: u64,
    /// Request units of all requests that were answered.
    pub charge: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_that_lags_and_a_missing_container_are_not_a_missing_document() {
        // The last column: `is_not_found` and `is_document_not_found`.
        for (status, is_ambiguous, expected) in [
            (status::NOT_FOUND, false, (true, true)),
            (status::NOT_FOUND, true, (false, false)),
            (status::READ_SESSION_NOT_AVAILABLE, false, (false, false)),
            (status::OWNER_RESOURCE_NOT_FOUND, false, (true, false)),
            (status::CONFLICT, false, (false, false)),
        ] {
            let error = BulkError::refused("delete `7`".to_owned(), status, is_ambiguous);
            assert_eq!((error.is_not_found(), error.is_document_not_found()), expected, "{error}");
        }
    }
}
