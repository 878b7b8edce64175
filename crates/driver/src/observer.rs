//! Observers: callbacks for every operation that ends. An observer is called in
//! the task of the caller, so it can attribute requests to what they were made
//! for. `telemetry` reports the same operations as metrics and events.

use http::HeaderMap;
use perihelion_wire::headers;
use perihelion_wire::status::Status;

use crate::diagnostics::Diagnostics;
use crate::error::Error;
use crate::operation::{Operation, Verb};
use crate::response::Response;

/// Is called for every operation that ends; see
/// [`Driver::with_observer`](crate::Driver::with_observer).
pub trait Observer: Send + Sync + 'static {
    /// Called once for each operation, in the caller's task, before the caller gets
    /// the answer. It must not block.
    fn ended(&self, operation: &Ended<'_>);
}

/// An operation that has ended.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Ended<'a> {
    /// What the operation does.
    pub verb: Verb,
    /// Whether it was an operation on documents.
    pub is_data_plane: bool,
    /// The service's status; `None` when it did not answer.
    pub status: Option<Status>,
    /// The answer's headers; empty when there was none.
    pub headers: &'a HeaderMap,
    /// Attempts, charges, timings.
    pub diagnostics: &'a Diagnostics,
}

impl Ended<'_> {
    /// The requests that were sent, as far as the driver knows: attempts, and their
    /// repeats after throttling.
    pub fn requests(&self) -> u64 {
        let attempts = self.diagnostics.attempts().map(|attempt| 1 + u64::from(attempt.throttled));
        attempts.sum::<u64>() + u64::from(self.diagnostics.omitted())
    }

    /// How often the service throttled it.
    pub fn throttles(&self) -> u64 {
        self.diagnostics.attempts().map(|attempt| u64::from(attempt.throttled)).sum()
    }

    /// Whether another writer was faster: 409, 412, or a refused batch (207), whose
    /// body has the status of the operation that was refused.
    pub fn is_conflict(&self) -> bool {
        self.status.is_some_and(|status| matches!(status.code, 207 | 409 | 412))
    }

    /// When the service answered, by the service's clock: seconds since 1970.
    pub fn date(&self) -> Option<u64> {
        perihelion_wire::date::parse(self.headers.get(headers::DATE)?.to_str().ok()?)
    }

    pub(crate) fn tell(observer: &dyn Observer, operation: &Operation, result: &Result<Response, Error>) {
        let (status, headers, diagnostics) = match result {
            Ok(answer) => (Some(answer.status), &answer.headers, &answer.diagnostics),
            Err(error) => (error.status(), error.headers(), error.diagnostics()),
        };
        let is_data_plane = operation.is_data_plane();
        observer.ended(&Ended { verb: operation.verb, is_data_plane, status, headers, diagnostics });
    }
}
