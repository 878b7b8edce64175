//! `ChangeHandler`: the interface that an application implements for a change feed processor,
//! with the pages and events that the handler receives.

use std::any::Any;
use std::future::Future;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use serde::de::DeserializeOwned;

use crate::{Error, FeedRange};

/// An error of a handler: any error.
pub type HandlerError = Box<dyn std::error::Error + Send + Sync>;

/// Processes the changes of a container. One handler serves all ranges of an instance, so
/// several calls may run at the same time; the changes of one range come one page after the
/// other.
///
/// [`handler_fn`] makes a handler of a closure.
pub trait ChangeHandler: Send + Sync + 'static {
    /// The type of a change: a document, or a [`Change`](crate::Change) when the processor has
    /// [all versions](crate::ProcessorOptions::with_all_versions).
    type Item: DeserializeOwned + Send + 'static;

    /// Processes a page of changes. When it returns `Ok`, the position after the page is
    /// stored. A page may come again, in this instance or another: after a crash, and when a
    /// lease was lost. The future is dropped when the lease is lost while it runs.
    ///
    /// The call runs in a task of its own. It should not block its thread: a lease can only be
    /// renewed while a thread of the runtime is free.
    fn handle(&self, changes: Changes<Self::Item>) -> impl Future<Output = Result<(), HandlerError>> + Send;

    /// Takes a document that cannot be processed. Either it cannot be parsed, or
    /// [`handle`](ChangeHandler::handle) was called with only this document and has failed as
    /// often as the options allow. With `Ok` the document counts as processed. With an error
    /// the whole page is processed again later, and the later pages of the range wait.
    ///
    /// The default implementation returns the error of the document: no document is skipped
    /// unless the application says so.
    fn poison(&self, poison: PoisonDocument) -> impl Future<Output = Result<(), HandlerError>> + Send {
        async move { Err(poison.error) }
    }

    /// Receives each event of the processor, for logs and metrics. A panic is logged and otherwise
    /// ignored.
    fn on_event(&self, _event: ProcessorEvent) {}
}

/// Gives an event to the handler. A panic of `on_event` must not end a task of the processor: it is
/// logged and otherwise ignored.
pub(super) fn report<H: ChangeHandler>(handler: &H, event: ProcessorEvent) {
    let reported = catch_unwind(AssertUnwindSafe(|| handler.on_event(event)));
    if let Err(panic) = reported {
        let panic = panic_text(panic.as_ref());
        tracing::error!(panic, "`on_event` of the handler of a change feed processor panicked");
    }
}

/// The text of a panic.
pub(super) fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("the panic has no text")
}

/// A page of changes.
#[derive(Debug)]
#[non_exhaustive]
pub struct Changes<T> {
    /// The changes, oldest first.
    pub items: Vec<T>,
    /// The part of the container that the changes come from.
    pub range: FeedRange,
    /// The number of this attempt to process these changes, from one.
    pub attempt: u32,
}

/// A document that cannot be processed.
#[derive(Debug)]
#[non_exhaustive]
pub struct PoisonDocument {
    /// The document as JSON text. If the processor has all versions: the whole change, with the
    /// current and the previous version.
    pub document: String,
    /// The part of the container that the document comes from.
    pub range: FeedRange,
    /// The last error of the handler, or of the parser.
    pub error: HandlerError,
    /// How often the handler was called with only this document and has failed; 0 when the
    /// document cannot be parsed.
    pub attempts: u32,
}

/// An event of a processor.
#[derive(Debug)]
#[non_exhaustive]
pub enum ProcessorEvent {
    /// This instance processes the changes of a range from now on.
    Acquired {
        /// The range.
        range: FeedRange,
    },
    /// This instance no longer processes the changes of a range.
    Released {
        /// The range.
        range: FeedRange,
        /// The reason.
        reason: ReleaseReason,
    },
    /// The handler has failed; the changes are given to it again.
    HandlerFailed {
        /// The range of the changes.
        range: FeedRange,
        /// The error of the handler.
        error: HandlerError,
    },
    /// The lease of a range has expired while the handler had a page of it, because the handler
    /// blocked the threads of the runtime. Another instance may have taken the lease and
    /// processes the page again. Use `tokio::task::spawn_blocking` for work that blocks, smaller
    /// pages, or a longer lease.
    HandlerBlocked {
        /// The range of the changes.
        range: FeedRange,
        /// How long ago the lease has expired.
        expired_since: Duration,
    },
    /// A request has failed, or a lease document is not valid. The instance tries again later.
    RequestFailed {
        /// The range that is affected; `None` when the leases could not be listed, or when a lease
        /// document has no valid range.
        range: Option<FeedRange>,
        /// The error.
        error: Error,
    },
}

/// Why an instance no longer processes a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReleaseReason {
    /// The processor was stopped.
    Stopped,
    /// Another instance has asked for the range, and got it.
    HandedOver,
    /// The range was split; its parts have leases of their own.
    Split,
    /// Another instance has taken the lease, it was deleted, or it could not be renewed in
    /// time.
    Lost,
}

/// Makes a [`ChangeHandler`] of a closure.
pub fn handler_fn<T, F, R>(function: F) -> HandlerFn<T, F>
where
    T: DeserializeOwned + Send + 'static,
    F: Fn(Changes<T>) -> R + Send + Sync + 'static,
    R: Future<Output = Result<(), HandlerError>> + Send,
{
    HandlerFn { function, items: PhantomData }
}

/// A closure as a [`ChangeHandler`]. See [`handler_fn`].
pub struct HandlerFn<T, F> {
    function: F,
    items: PhantomData<fn() -> T>,
}

impl<T, F, R> ChangeHandler for HandlerFn<T, F>
where
    T: DeserializeOwned + Send + 'static,
    F: Fn(Changes<T>) -> R + Send + Sync + 'static,
    R: Future<Output = Result<(), HandlerError>> + Send,
{
    type Item = T;

    fn handle(&self, changes: Changes<T>) -> impl Future<Output = Result<(), HandlerError>> + Send {
        (self.function)(changes)
    }
}

impl<T, F> std::fmt::Debug for HandlerFn<T, F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("HandlerFn")
    }
}
