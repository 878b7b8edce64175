//! Tasks that the driver runs for all its operations, such as the read of a container's
//! metadata. No operation owns such a task: it goes on when the operation that started it is
//! cancelled. All tasks are aborted when the last clone of the driver is dropped.

use std::future::Future;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::task::JoinSet;

/// The tasks that are under way.
#[derive(Debug, Default)]
pub(crate) struct SharedTasks(Mutex<JoinSet<()>>);

impl SharedTasks {
    /// Starts a task on the current runtime.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.lock();
        // Tasks that have ended are removed, so that the set does not grow.
        while tasks.try_join_next().is_some() {}
        tasks.spawn(task);
    }

    /// How many tasks are under way.
    pub(crate) fn count(&self) -> usize {
        let mut tasks = self.lock();
        while tasks.try_join_next().is_some() {}
        tasks.len()
    }

    /// Aborts all tasks.
    pub(crate) fn abort_all(&self) {
        self.lock().abort_all();
    }

    fn lock(&self) -> MutexGuard<'_, JoinSet<()>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
