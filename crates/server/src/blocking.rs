//! Work that takes a while, on a thread that others need.
//!
//! A query may scan many documents. On a multi-threaded runtime the worker
//! tells tokio first, so that its other tasks move elsewhere; on a single
//! thread (simulation) there is nowhere to move them, and it just runs.

use tokio::runtime::{Handle, RuntimeFlavor};

/// Runs `work` here, letting other tasks go on where that is possible.
pub(crate) fn run<T>(work: impl FnOnce() -> T) -> T {
    match Handle::try_current().map(|handle| handle.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        _ => work(),
    }
}
