//! Runs long work on a thread of the runtime.
//!
//! A query may scan many documents. On a multi-threaded runtime tokio is told
//! first, so that it moves the thread's other tasks to another thread. On a
//! single thread (simulation) there is no other thread, so the work just runs.

use tokio::runtime::{Handle, RuntimeFlavor};

/// Runs `work` on this thread, and lets other tasks run where that is possible.
pub(crate) fn run<T>(work: impl FnOnce() -> T) -> T {
    match Handle::try_current().map(|handle| handle.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        _ => work(),
    }
}
