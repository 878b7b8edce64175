//! Runs long work on a thread of the runtime.
//!
//! A query may scan many documents, and a transaction may read many. On a multi-threaded runtime
//! `block_in_place` makes tokio move the thread's other tasks to another thread. A single-threaded
//! runtime (as in the simulation) has no other thread, so the work just runs.

use tokio::runtime::{Handle, RuntimeFlavor};

/// Runs `work` on this thread. If the runtime has several threads, other tasks run at the same
/// time.
pub fn run<T>(work: impl FnOnce() -> T) -> T {
    match Handle::try_current().map(|handle| handle.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        _ => work(),
    }
}
