//! Waiting for room: what a checkpoint on its thread does while the disk is full.
//!
//! redb cannot be used any more after a failed write. So a write of a checkpoint for which the disk
//! has no room does not fail. The checkpoint thread reports that it waits, and tries the write again
//! when the committing thread asks for it. Meanwhile the commits go to the log, and are refused
//! with [`StoreErrorKind::Full`](crate::storage::StoreErrorKind::Full) when the log is full. Nothing
//! is lost by waiting: the log has every commit that the checkpoint moves. Reads do not wait,
//! because redb's readers take none of the locks that its writer holds during a write.

use std::io;
use std::sync::mpsc::{Receiver, SyncSender};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::failure::Failure;

/// What the checkpoint thread tells the committing thread.
pub(super) enum Report {
    /// The checkpoint has ended.
    Done { outcome: Result<(), Failure>, took: Duration },
    /// The disk has no room for the checkpoint, which waits for a request to try again.
    WaitsForRoom,
}

/// The ends of the channels that the checkpoint thread holds.
#[derive(Debug)]
pub(super) struct RoomWait {
    report: SyncSender<Report>,
    /// A message asks to try again. The channel is closed when the store is closed.
    retries: Mutex<Receiver<()>>,
}

impl RoomWait {
    pub(super) fn new(report: SyncSender<Report>, retries: Receiver<()>) -> RoomWait {
        RoomWait { report, retries: Mutex::new(retries) }
    }

    /// Reports that there is no room and waits for a request to try again. Returns `false` if the
    /// store is being closed.
    pub(super) fn wait(&self) -> bool {
        let retries = self.retries.lock().unwrap_or_else(PoisonError::into_inner);
        self.report.send(Report::WaitsForRoom).is_ok() && retries.recv().is_ok()
    }
}

/// Whether the operating system refused a write because there is no room.
pub(super) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}
