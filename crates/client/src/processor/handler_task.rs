//! `HandlerTask`: the handler's work on one page of changes, in a task of its own. So the lease
//! is renewed even while the handler blocks its thread, as long as the runtime has another
//! thread.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use serde_json::value::RawValue;
use tokio::task::JoinHandle;

use super::Shared;
use super::handler::{ChangeHandler, HandlerError};
use super::page::{panic_error, process_page};
use crate::FeedRange;

/// The task. Dropping it cancels the handler.
pub(super) struct HandlerTask(JoinHandle<Result<(), HandlerError>>);

impl HandlerTask {
    /// Starts the task. It gives the page to the handler as soon as the limit of parallel pages
    /// allows that.
    pub(super) fn start<H: ChangeHandler>(
        shared: &Arc<Shared<H>>,
        range: &FeedRange,
        documents: &Arc<Vec<Box<RawValue>>>,
    ) -> Self {
        let (shared, range, documents) = (Arc::clone(shared), range.clone(), Arc::clone(documents));
        HandlerTask(tokio::spawn(async move {
            // The semaphore is never closed.
            let _permit = shared.page_permits.acquire().await;
            process_page(&shared.handler, &shared.options, &range, &documents).await
        }))
    }
}

impl HandlerTask {
    /// Cancels the handler, and waits until it has ended. A handler that blocks its thread ends
    /// only when it yields. If the returned future is dropped, `cancel` may be called again.
    pub(super) async fn cancel(&mut self) {
        self.0.abort();
        if !self.0.is_finished() {
            // The result of a cancelled handler does not count.
            let _ = (&mut self.0).await;
        }
    }
}

impl Future for HandlerTask {
    type Output = Result<(), HandlerError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let ended = ready!(Pin::new(&mut self.0).poll(context));
        Poll::Ready(ended.unwrap_or_else(|error| match error.try_into_panic() {
            // A panic outside of `ChangeHandler::handle`, as in `ChangeHandler::poison`.
            Ok(panic) => Err(panic_error(panic.as_ref())),
            Err(_) => Err("the runtime is shutting down".into()),
        }))
    }
}

impl Drop for HandlerTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}
