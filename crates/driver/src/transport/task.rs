//! A background task that ends when its owner is dropped.

use std::future::Future;

use tokio::task::{AbortHandle, JoinHandle};

/// Aborts its task when dropped.
#[derive(Debug)]
pub(super) struct AbortOnDrop(AbortHandle);

impl AbortOnDrop {
    /// Starts the task on the current runtime.
    pub(super) fn spawn<F>(future: F) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let handle: JoinHandle<()> = tokio::spawn(future);
        AbortOnDrop(handle.abort_handle())
    }
}

impl AbortOnDrop {
    /// Takes over a task that was started before. Dropping the result aborts the task.
    pub(super) fn new(task: &JoinHandle<()>) -> Self {
        AbortOnDrop(task.abort_handle())
    }

    pub(super) fn is_finished(&self) -> bool {
        self.0.is_finished()
    }
}

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}
