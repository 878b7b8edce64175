//! What can go wrong inside, and how the contract wants it said. The runtime
//! and its client read the words of some messages: they are spelt here, once.

use duroxide::providers::ProviderError;
use perihelion_client::Error;

/// A failure, before it is said in the contract's words.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The database refused or could not be asked.
    Storage(Error),
    /// The token is not one, or its lock is another's, gone, or run out.
    LockLost,
    /// What is asked for is not there.
    NotFound(String),
    /// An instance has not ended.
    Running(String),
    /// What is asked for cannot be, and will not be by asking again.
    Refused(String),
    /// Someone else was faster too often; ask again.
    Contended(String),
}

impl Failure {
    /// Whether the same request may succeed later.
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            Failure::Storage(error) => error.is_transient(),
            Failure::Contended(_) => true,
            Failure::LockLost | Failure::NotFound(_) | Failure::Running(_) | Failure::Refused(_) => false,
        }
    }

    /// Whether a conditional write lost: the document changed, is gone, or exists.
    pub(crate) fn is_stale(&self) -> bool {
        matches!(self, Failure::Storage(error)
            if error.is_precondition_failed() || error.is_not_found() || error.is_conflict())
    }

    pub(crate) fn into_error(self, operation: &str) -> ProviderError {
        let is_transient = self.is_transient();
        let message = match self {
            Failure::Storage(error) => error.to_string(),
            Failure::LockLost => {
                "Invalid lock token: the lock is unknown, has expired, or is held by another".to_owned()
            }
            Failure::NotFound(instance) => format!("Instance {instance} not found"),
            Failure::Running(instance) => {
                format!("Instance {instance} is still running. Cancel it first, or delete it with force")
            }
            Failure::Refused(message) | Failure::Contended(message) => message,
        };
        if is_transient {
            ProviderError::retryable(operation, message)
        } else {
            ProviderError::permanent(operation, message)
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Storage(error)
    }
}
