//! The repair signal tells the reconciler of this process about unfinished work after a
//! commit. `record_unfinished_work` reports work that this process has left. When a poll
//! finds work that another process has left, `wake_reconciler` reports it.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

#[derive(Debug, Default)]
pub(crate) struct RepairSignal {
    wake: Notify,
    /// Whether this process has left work unfinished since the reconciler last asked.
    has_unfinished_work: AtomicBool,
}

impl RepairSignal {
    /// Wakes the reconciler: a poll has found unfinished work of another process.
    pub(crate) fn wake_reconciler(&self) {
        self.wake.notify_one();
    }

    /// Waits for the next `wake_reconciler`.
    pub(crate) async fn woken(&self) {
        self.wake.notified().await;
    }

    /// Records that this process could not finish its work after a commit.
    pub(crate) fn record_unfinished_work(&self) {
        self.has_unfinished_work.store(true, Ordering::Release);
    }

    /// Whether this process has left work unfinished since the last call of this method.
    pub(crate) fn take_unfinished_work(&self) -> bool {
        self.has_unfinished_work.swap(false, Ordering::AcqRel)
    }
}
