//! `Failure`: the errors inside the provider, and their conversion to duroxide's
//! `ProviderError`. duroxide's client and validations search error messages for words
//! such as "not found", "still running" and "Invalid lock token". These words must stay.

use duroxide::providers::ProviderError;
use perihelion_client::{Error, ErrorKind, Status};

/// An error inside the provider, before it becomes a `ProviderError`.
#[derive(Debug)]
pub(crate) enum Failure {
    /// A request was refused or failed.
    Storage(Error),
    /// The token is invalid, or its lock has expired or belongs to another holder.
    LockLost,
    /// The instance, or one of its executions, does not exist. Holds the words that name it in the
    /// error text.
    NotFound(String),
    /// The container does not exist, and the provider was opened for a tool. Holds its name.
    NotFoundContainer(String),
    /// The instance has not ended. Holds its id.
    StillRunning(String),
    /// The request is not possible. Repeating it does not help.
    Refused(String),
    /// Other writers changed the documents meanwhile, or a task was aborted. The request may
    /// be repeated.
    Contended(String),
}

/// Why a provider cannot run on an account or a container. Opening it again does not help.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Objection {
    /// What is wrong, without a full stop.
    pub(crate) finding: String,
    /// What to do about it, without a full stop.
    pub(crate) advice: String,
}

impl Objection {
    pub(crate) fn new(finding: impl Into<String>, advice: impl Into<String>) -> Self {
        Objection { finding: finding.into(), advice: advice.into() }
    }
}

impl From<Objection> for Failure {
    fn from(Objection { finding, advice }: Objection) -> Self {
        Failure::Refused(format!("{finding}. {advice}"))
    }
}

impl Failure {
    /// Whether the same request may succeed later.
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            Failure::Storage(error) => error.is_transient() || is_access_refused(error),
            Failure::Contended(_) => true,
            Failure::LockLost
            | Failure::NotFound(_)
            | Failure::NotFoundContainer(_)
            | Failure::StillRunning(_)
            | Failure::Refused(_) => false,
        }
    }

    /// Whether the same request may succeed later. Unlike [`Failure::is_transient`] this leaves out
    /// refused access: when a provider is opened, a wrong key is reported at once.
    pub(crate) fn is_service_fault(&self) -> bool {
        self.is_transient() && !matches!(self, Failure::Storage(error) if is_access_refused(error))
    }

    /// Whether the container was deleted while the provider ran.
    pub(crate) fn is_container_missing(&self) -> bool {
        matches!(self, Failure::Storage(error) if error.is_container_not_found())
    }

    /// Whether a conditional write failed because another writer was first: the document
    /// has another etag, was deleted, or was created.
    pub(crate) fn is_stale(&self) -> bool {
        matches!(self, Failure::Storage(error)
            if error.is_precondition_failed() || error.is_document_not_found() || error.is_conflict())
    }

    /// Whether it is unknown if a write was applied.
    pub(crate) fn is_ambiguous(&self) -> bool {
        matches!(self, Failure::Storage(error) if error.is_ambiguous())
    }

    /// One short line for a person: the beginning of the message.
    pub(crate) fn summary(&self) -> String {
        const CHARS_MAX: usize = 160;
        let text = match self {
            Failure::Storage(error) => error.to_string(),
            Failure::LockLost => "the lock is lost".to_owned(),
            Failure::NotFound(instance) => format!("{instance} does not exist"),
            Failure::NotFoundContainer(name) => format!("the container {name} does not exist"),
            Failure::StillRunning(instance) => format!("{instance} still runs"),
            Failure::Refused(message) | Failure::Contended(message) => message.clone(),
        };
        let line = text.lines().next().unwrap_or_default();
        match line.char_indices().nth(CHARS_MAX) {
            Some((end, _)) => format!("{}…", &line[..end]),
            None => line.to_owned(),
        }
    }

    /// duroxide's error. `operation` is the name of the provider's method that failed.
    pub(crate) fn into_error(self, operation: &str) -> ProviderError {
        let is_transient = self.is_transient();
        self.into_provider_error(operation, is_transient)
    }

    /// duroxide's error when a provider cannot be opened. Refused access is permanent.
    pub(crate) fn into_opening_error(self) -> ProviderError {
        let is_transient = self.is_service_fault();
        self.into_provider_error("open", is_transient)
    }

    fn into_provider_error(self, operation: &str, is_transient: bool) -> ProviderError {
        let message = match self {
            Failure::Storage(error) => error.to_string(),
            Failure::LockLost => {
                "Invalid lock token: the lock is unknown, has expired, or is held by another".to_owned()
            }
            Failure::NotFound(instance) => format!("Instance {instance} not found"),
            Failure::NotFoundContainer(name) => format!("the container {name} does not exist"),
            Failure::StillRunning(instance) => {
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

/// Whether the service refused the key or token, or no token could be obtained. While a provider
/// runs, the reason is a key or a token that is being replaced, so this failure is transient.
pub(crate) fn is_access_refused(error: &Error) -> bool {
    let is_refused = |status: Status| match status.code {
        401 => true,
        // There is no sub-status, or a sub-status of Entra ID. Refusals with other sub-statuses, such
        // as 1014 (the logical partition is full), are permanent.
        403 => status.sub == 0 || (5300..5400).contains(&status.sub),
        _ => false,
    };
    error.kind() == ErrorKind::Credential || error.status().is_some_and(is_refused)
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Storage(error)
    }
}
