//! [`Flight`]: a request in a task of its own.
//!
//! Callers may keep a request without polling it, for example in an unordered stream of
//! requests with a slow consumer. If such a request read its answer itself, it would hold its
//! stream and the connection's flow-control window until it is polled again, and would not
//! notice its deadline. So a task reads the answer and gives the stream back, whether or not
//! the caller polls.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use perihelion_wire::transport::{Failure, FailureKind, Sent};
use tokio::task::JoinHandle;
use tracing::Span;

use super::carried_span::CarriedSpan;
use super::transfer::Delivered;

/// A request that a task carries out. Dropping the flight cancels the request.
pub(super) struct Flight {
    task: JoinHandle<Delivered>,
    /// The caller's span, in which the task runs. `None` when there is none, or when it was
    /// released.
    span: Option<CarriedSpan>,
}

impl Flight {
    /// Starts the task on the current runtime, in the caller's span.
    pub(super) fn start<F>(exchange: F) -> Self
    where
        F: Future<Output = Delivered> + Send + 'static,
    {
        let span = CarriedSpan::current();
        let task = match span.clone() {
            None => tokio::spawn(exchange),
            Some(span) => tokio::spawn(span.instrument(exchange)),
        };
        Flight { task, span }
    }
}

impl Future for Flight {
    type Output = Delivered;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // A background task that awaits an abandoned request has no span. The caller's span must
        // end with its operation, and not with the request.
        if let Some(span) = self.span.take_if(|_| Span::current().is_none()) {
            span.release();
        }
        match ready!(Pin::new(&mut self.task).poll(cx)) {
            Ok(done) => Poll::Ready(done),
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => {
                    let text = "the runtime that carried out the request was shut down";
                    Poll::Ready(Err(Failure::new(FailureKind::Closed, Sent::Unknown, text)).into())
                }
            },
        }
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        self.task.abort();
    }
}
