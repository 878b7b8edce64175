//! The error of this crate: opaque, with methods that say what kind it is.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use perihelion_wire::status::{self, Status};
use perihelion_wire::transport::Failure;

use crate::diagnostics::Diagnostics;
use crate::response::{self, Response};

/// The error of an operation: why it failed.
#[derive(Clone)]
pub struct Error(Box<Inner>);

#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    message: String,
    status: Option<Status>,
    headers: HeaderMap,
    body: Bytes,
    diagnostics: Diagnostics,
    operation_index: Option<usize>,
}

/// The kinds of failure that a caller can distinguish.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The service refused the request; [`Error::status`] has the status.
    Service,
    /// The service did not answer: a failure of connection, TLS or protocol, or a request
    /// that took too long although the operation had time left.
    Transport,
    /// The operation did not end before its deadline.
    Timeout,
    /// The write may or may not have been applied: its answer was lost, or does not say whether
    /// the write was applied.
    Ambiguous,
    /// The credential could not be used or renewed.
    Credential,
    /// The caller's options, names or bodies cannot be used.
    Input,
    /// The service's answer cannot be understood.
    Answer,
    /// The account does not have the feature; nothing was sent.
    Unsupported,
}

/// When the body of a refusal is not the service's JSON, at most this many bytes of it
/// become the message.
const BODY_SHOWN_BYTES_MAX: usize = 512;

/// The most bytes of the service's message that are kept. The service's messages have a few hundred
/// bytes; a proxy may send megabytes. The whole body is in [`Error::body`].
const MESSAGE_BYTES_MAX: usize = 4 * 1024;

impl Error {
    /// An error of kind [`ErrorKind::Input`].
    pub fn input(message: impl Into<String>) -> Self {
        Error::new(ErrorKind::Input, message.into())
    }

    /// An error of kind [`ErrorKind::Answer`].
    pub fn answer(message: impl Into<String>) -> Self {
        Error::new(ErrorKind::Answer, message.into())
    }

    /// An error of kind [`ErrorKind::Credential`].
    pub fn credential(message: impl Into<String>) -> Self {
        Error::new(ErrorKind::Credential, message.into())
    }

    /// An error of kind [`ErrorKind::Timeout`].
    pub fn timeout(message: impl Into<String>) -> Self {
        Error::new(ErrorKind::Timeout, message.into())
    }

    /// An error of kind [`ErrorKind::Unsupported`].
    pub(crate) fn unsupported(message: impl Into<String>) -> Self {
        Error::new(ErrorKind::Unsupported, message.into())
    }

    pub(crate) fn new(kind: ErrorKind, message: String) -> Self {
        Error(Box::new(Inner {
            kind,
            message,
            status: None,
            headers: HeaderMap::new(),
            body: Bytes::new(),
            diagnostics: Diagnostics::default(),
            operation_index: None,
        }))
    }

    /// The error for a request that the service refused.
    pub(crate) fn refused(status: Status, headers: HeaderMap, body: Bytes) -> Self {
        let mut error = Error::new(ErrorKind::Service, service_message(&body));
        error.0.status = Some(status);
        error.0.headers = headers;
        error.0.body = body;
        error
    }

    /// The error for a batch that was not applied because the service refused the
    /// operation with this index.
    pub fn batch_refused(index: usize, status: Status, message: String, answer: Response) -> Self {
        let mut error = Error::new(ErrorKind::Service, message).with_diagnostics(answer.diagnostics);
        error.0.status = Some(status);
        error.0.headers = answer.headers;
        error.0.body = answer.body;
        error.0.operation_index = Some(index);
        error
    }

    /// The error for a write whose answer has a status of success but a body that cannot be
    /// understood. The write may have been applied, so the kind is [`ErrorKind::Ambiguous`].
    pub fn ambiguous_answer(message: String, answer: Response) -> Self {
        let mut error = Error::new(ErrorKind::Ambiguous, message).with_diagnostics(answer.diagnostics);
        error.0.status = Some(answer.status);
        error.0.headers = answer.headers;
        error.0.body = answer.body;
        error
    }

    /// The error for a distributed transaction that was refused because of the operation with
    /// this index. The index is `None` if no single operation is the cause.
    pub(crate) fn into_operation_refused(
        mut self,
        index: Option<usize>,
        status: Status,
        message: String,
    ) -> Self {
        self.0.operation_index = index;
        self.0.status = Some(status);
        self.0.message = message;
        self
    }

    /// The error with another kind and message.
    pub(crate) fn with_kind_and_message(mut self, kind: ErrorKind, message: String) -> Self {
        self.0.kind = kind;
        self.0.message = message;
        self
    }

    /// The error for an operation whose container does not exist. The service's answer to
    /// the read of the container has no sub-status, so the sub-status is set here.
    pub(crate) fn into_container_not_found(mut self, database: &str, container: &str) -> Self {
        self.0.status = Some(status::OWNER_RESOURCE_NOT_FOUND);
        self.0.message = format!(
            "there is no container `{container}` in database `{database}`: check both names, or create the \
             container first"
        );
        self
    }

    /// The error for a request that the service did not answer.
    pub(crate) fn unanswered(failure: &Failure) -> Self {
        Error::new(ErrorKind::Transport, failure.message.to_string())
    }

    /// Marks the failure as ambiguous: the write may have been applied.
    pub(crate) fn into_ambiguous(mut self) -> Self {
        self.0.kind = ErrorKind::Ambiguous;
        self
    }

    /// Sets the diagnostics of the operation that failed.
    pub fn with_diagnostics(mut self, diagnostics: Diagnostics) -> Self {
        self.0.diagnostics = diagnostics;
        self
    }

    /// The kind of failure.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The status of the answer that became this error; `None` when there is none. If one operation
    /// of a batch or of a distributed transaction was refused, this is the status of that operation.
    pub fn status(&self) -> Option<Status> {
        self.0.status
    }

    /// The message: what went wrong, in the service's words or in ours.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// The body of the answer that became this error; empty when there is none.
    pub fn body(&self) -> &Bytes {
        &self.0.body
    }

    /// The headers of the answer that became this error; empty when there is none.
    pub fn headers(&self) -> &HeaderMap {
        &self.0.headers
    }

    /// Attempts, regions, timings, charges.
    pub fn diagnostics(&self) -> &Diagnostics {
        &self.0.diagnostics
    }

    /// The index of the operation of a batch or of a distributed transaction that the service
    /// refused, from zero. Because of this refusal, no operation of the batch or transaction was
    /// applied. `None` for every other error.
    pub fn operation_index(&self) -> Option<usize> {
        self.0.operation_index
    }

    /// Whether the resource, or the container that it should be in, does not exist; see also
    /// [`Error::is_document_not_found`]. A 404/1002 does not count: it says that the region has not
    /// yet applied the writes of the session.
    pub fn is_not_found(&self) -> bool {
        self.has_code(status::NOT_FOUND.code) && self.0.status != Some(status::READ_SESSION_NOT_AVAILABLE)
    }

    /// Whether the container that the resource should be in does not exist (404/1003). Such
    /// an error says nothing about a document; in most cases the container's name is
    /// misspelt.
    pub fn is_container_not_found(&self) -> bool {
        self.0.kind == ErrorKind::Service && self.0.status == Some(status::OWNER_RESOURCE_NOT_FOUND)
    }

    /// Whether the document does not exist, in a container that does. Programs that take a
    /// missing document as "deleted" or "never created" should call this method, and not
    /// [`Error::is_not_found`]: when the container was deleted, nothing is known about its
    /// documents.
    pub fn is_document_not_found(&self) -> bool {
        self.is_not_found() && !self.is_container_not_found()
    }

    /// Whether the id, name or unique key exists already.
    pub fn is_conflict(&self) -> bool {
        self.has_code(status::CONFLICT.code)
    }

    /// Whether the etag of the request is not the current one.
    pub fn is_precondition_failed(&self) -> bool {
        self.has_code(status::PRECONDITION_FAILED.code)
    }

    /// Whether the last answer was 429, after the retries that the options and the time
    /// allowed.
    pub fn is_throttled(&self) -> bool {
        self.has_code(status::TOO_MANY_REQUESTS.code)
    }

    /// Whether it is unknown if the write was applied.
    pub fn is_ambiguous(&self) -> bool {
        self.0.kind == ErrorKind::Ambiguous
    }

    /// Whether the account does not have the feature that the operation needs. For a distributed
    /// transaction: the account has several write regions, or the service says that the account
    /// has no transactions (400/5406).
    pub fn is_unsupported(&self) -> bool {
        let is_disabled = self.0.status == Some(status::TRANSACTIONS_DISABLED);
        self.0.kind == ErrorKind::Unsupported || (self.0.kind == ErrorKind::Service && is_disabled)
    }

    /// Whether the operation did not end before its deadline.
    pub fn is_timeout(&self) -> bool {
        self.0.kind == ErrorKind::Timeout
    }

    /// The wait that the service asks for.
    pub fn retry_after(&self) -> Option<Duration> {
        response::retry_after(&self.0.headers)
    }

    /// Whether the same operation may succeed when it is tried again later: the
    /// service or the network is at fault, and not the request. The driver has used up
    /// its own retries. An ambiguous write is transient too, but it may have been applied
    /// already.
    pub fn is_transient(&self) -> bool {
        match self.0.kind {
            ErrorKind::Transport | ErrorKind::Timeout | ErrorKind::Ambiguous => true,
            ErrorKind::Credential | ErrorKind::Input | ErrorKind::Answer | ErrorKind::Unsupported => false,
            ErrorKind::Service => self.0.status.is_some_and(|status| {
                let transient =
                    [status::REQUEST_TIMEOUT, status::GONE, status::TOO_MANY_REQUESTS, status::RETRY_WITH];
                // A region is failing over, or has not applied the writes of the session yet.
                let of_region = [
                    status::WRITE_FORBIDDEN,
                    status::DATABASE_ACCOUNT_NOT_FOUND,
                    status::READ_SESSION_NOT_AVAILABLE,
                ];
                transient.iter().any(|other| other.code == status.code)
                    || of_region.contains(&status)
                    || status.code >= status::INTERNAL_SERVER_ERROR.code
            }),
        }
    }

    fn has_code(&self, code: u16) -> bool {
        self.0.kind == ErrorKind::Service && self.0.status.is_some_and(|status| status.code == code)
    }
}

/// The message of an error body, `{"code": ..., "message": ...}`.
fn service_message(body: &[u8]) -> String {
    #[derive(serde::Deserialize)]
    struct ErrorBody {
        message: String,
    }
    match serde_json::from_slice::<ErrorBody>(body) {
        Ok(error) if error.message.len() <= MESSAGE_BYTES_MAX => error.message,
        Ok(error) => {
            let end = error.message.floor_char_boundary(MESSAGE_BYTES_MAX);
            format!("{}… ({} bytes)", &error.message[..end], error.message.len())
        }
        Err(_) => String::from_utf8_lossy(&body[..body.len().min(BODY_SHOWN_BYTES_MAX)]).into_owned(),
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_ambiguous() {
            f.write_str("the write may or may not have been applied: ")?;
        }
        if let Some(status) = self.0.status {
            write!(f, "{status}: ")?;
        }
        f.write_str(&self.0.message)?;
        if let Some(last) = self.0.diagnostics.attempts().last() {
            let diagnostics = &self.0.diagnostics;
            let count = diagnostics.attempts().count() + diagnostics.omitted_attempts() as usize;
            write!(f, " (attempt {count}, region {})", last.region)?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("kind", &self.0.kind)
            .field("status", &self.0.status)
            .field("message", &self.0.message)
            .field("diagnostics", &self.0.diagnostics)
            .finish_non_exhaustive()
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(body: &str, expected: &str) {
        let error = Error::refused(Status::new(400, 0), HeaderMap::new(), Bytes::from(body.to_owned()));
        assert_eq!(error.message(), expected);
    }

    #[test]
    fn the_message_of_a_refusal_is_bounded() {
        check(r#"{"code":"BadRequest","message":"too bad"}"#, "too bad");
        let long = "ä".repeat(MESSAGE_BYTES_MAX);
        let kept = "ä".repeat(MESSAGE_BYTES_MAX / 2);
        check(&format!(r#"{{"message":"{long}"}}"#), &format!("{kept}… ({} bytes)", long.len()));
        check(&"x".repeat(5000), &"x".repeat(BODY_SHOWN_BYTES_MAX));
    }
}
