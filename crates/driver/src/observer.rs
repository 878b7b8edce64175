//! Observers: callbacks for every operation that ends. An observer is called in
//! the caller's task, so it can attribute requests to the work that the caller is
//! doing. `telemetry` reports the same operations as metrics and events.

use http::HeaderMap;
use perihelion_model::partition_key::PartitionKey;
use perihelion_wire::headers;
use perihelion_wire::status::Status;

use crate::diagnostics::Diagnostics;
use crate::error::Error;
use crate::operation::{Operation, Scope, Verb};
use crate::response::Response;

/// A callback for every operation that ends. Register it with
/// [`Driver::with_observer`](crate::Driver::with_observer).
pub trait Observer: Send + Sync + 'static {
    /// Called once for each operation, in the caller's task, before the caller gets
    /// the answer. An implementation must not block. There is no call for an operation
    /// whose options are refused, for a transaction that fails before it is sent, or for an
    /// operation whose future is dropped before it ends.
    fn ended(&self, operation: &EndedOperation<'_>);
}

/// An operation that has ended.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct EndedOperation<'a> {
    /// The verb: what the operation does.
    pub verb: Verb,
    /// Whether the operation was on documents.
    pub is_data_plane: bool,
    /// The partition key, if the operation went to one logical partition.
    pub partition_key: Option<&'a PartitionKey>,
    /// The status of the answer; `None` when the operation ended without one.
    pub status: Option<Status>,
    /// The headers of the answer; empty when the operation ended without one.
    pub headers: &'a HeaderMap,
    /// Attempts, charges, timings.
    pub diagnostics: &'a Diagnostics,
}

impl EndedOperation<'_> {
    /// The approximate number of requests that were sent: one for each attempt, and one for
    /// each throttled answer, because the request is then sent again. If an attempt gives up after
    /// a throttled answer, no request follows that answer, and the number is one too high. A repeat
    /// with a new access token is not counted.
    pub fn requests(&self) -> u64 {
        let attempts = self.diagnostics.attempts().map(|attempt| 1 + u64::from(attempt.throttled));
        attempts.sum::<u64>() + u64::from(self.diagnostics.omitted_attempts())
    }

    /// How often the service throttled the operation.
    pub fn throttles(&self) -> u64 {
        self.diagnostics.attempts().map(|attempt| u64::from(attempt.throttled)).sum()
    }

    /// Whether another writer may have been faster: 409, 412, or a refused batch (207),
    /// whose body has the reason.
    pub fn is_conflict(&self) -> bool {
        self.status.is_some_and(|status| matches!(status.code, 207 | 409 | 412))
    }

    /// When the service answered, by the service's clock: seconds since 1970. `None` when
    /// there is no answer with a date.
    pub fn date(&self) -> Option<u64> {
        perihelion_wire::date::parse(self.headers.get(headers::DATE)?.to_str().ok()?)
    }

    /// Calls the observer with the result of an operation.
    pub(crate) fn notify(observer: &dyn Observer, operation: &Operation, result: &Result<Response, Error>) {
        let (status, headers, diagnostics) = match result {
            Ok(answer) => (Some(answer.status), &answer.headers, &answer.diagnostics),
            Err(error) => (error.status(), error.headers(), error.diagnostics()),
        };
        let partition_key = match &operation.scope {
            Scope::Key(scope) => Some(&scope.key),
            Scope::Unpartitioned | Scope::Range(_) | Scope::Slice(..) | Scope::Everywhere => None,
        };
        observer.ended(&EndedOperation {
            verb: operation.verb,
            is_data_plane: operation.is_data_plane(),
            partition_key,
            status,
            headers,
            diagnostics,
        });
    }
}
