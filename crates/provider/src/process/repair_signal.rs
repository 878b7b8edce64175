//! The repair signal tells the reconciler of this process that there is something
//! to repair: work that this process (`leave_work`) or another one (`call`) left behind.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

#[derive(Debug, Default)]
pub(crate) struct RepairSignal {
    called: Notify,
    /// This process has left work since the reconciler last asked.
    has_left_work: AtomicBool,
}

impl RepairSignal {
    /// A poll has found work that another process left behind.
    pub(crate) fn call(&self) {
        self.called.notify_one();
    }

    /// Waits for the next call.
    pub(crate) async fn called(&self) {
        self.called.notified().await;
    }

    /// This process could not finish something after a commit.
    pub(crate) fn leave_work(&self) {
        self.has_left_work.store(true, Ordering::Release);
    }

    /// Whether this process has left work since the last call of this method.
    pub(crate) fn take_left_work(&self) -> bool {
        self.has_left_work.swap(false, Ordering::AcqRel)
    }
}
