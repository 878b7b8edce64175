//! Carries the caller's `tracing` span into the task of its request.
//!
//! A span stays open as long as a handle to it exists. The losing leg of a hedge is awaited in
//! the background for its charge, after its operation has ended. So the span can be released
//! while the task of the request still runs.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};

use tracing::Span;

/// The span that a task carries. Clones share it.
#[derive(Clone)]
pub(super) struct CarriedSpan(Arc<Mutex<Span>>);

impl CarriedSpan {
    /// Carries the current span; `None` when there is none.
    pub(super) fn current() -> Option<Self> {
        let span = Span::current();
        (!span.is_none()).then(|| CarriedSpan(Arc::new(Mutex::new(span))))
    }

    /// Releases the span. The task goes on without one.
    pub(super) fn release(self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Span::none();
    }

    /// Runs a future in this span.
    pub(super) async fn instrument<F: Future>(self, future: F) -> F::Output {
        let mut future = pin!(future);
        poll_fn(|context| {
            let span = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let _entered = span.enter();
            future.as_mut().poll(context)
        })
        .await
    }
}

#[cfg(test)]
mod tests;
