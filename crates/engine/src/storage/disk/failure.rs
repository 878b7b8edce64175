//! Failures of the disk store, sorted into the few kinds that a caller can act on.
//!
//! The errors of redb and of the operating system become a [`StoreErrorKind`]
//! and a sentence. redb panics on some kinds of damage. A damaged file is input from
//! outside, so [`catch_panic`] turns the panic into an error.

use std::io;
use std::panic::{self, AssertUnwindSafe};
use std::path::Path;

use redb::{CommitError, DatabaseError, StorageError, TableError, TransactionError};

use crate::storage::{StoreError, StoreErrorKind};

/// A failure: its kind, and a text about it that does not name the file.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) kind: StoreErrorKind,
    pub(super) detail: String,
}

impl Failure {
    /// The disk has no room for a record of the log, or for a checkpoint that must end before a
    /// record can be written.
    pub(super) fn full(error: &io::Error) -> Failure {
        Failure { kind: StoreErrorKind::Full, detail: error.to_string() }
    }

    pub(super) fn damaged(detail: impl Into<String>) -> Failure {
        Failure { kind: StoreErrorKind::Damaged, detail: detail.into() }
    }
}

/// Runs a call of redb and turns a panic into an error.
pub(super) fn catch_panic<T>(call: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    panic::catch_unwind(AssertUnwindSafe(call))
        .unwrap_or_else(|_| Err(Failure::damaged("its pages are inconsistent")))
}

/// The name of the data file in error messages: its path, or a text for a simulated
/// directory.
#[derive(Debug)]
pub(super) struct Location(pub(super) String);

impl Location {
    /// The error for a failed operation on the data file, with advice. `verb` names
    /// the operation, such as "open".
    pub(super) fn failed_to(&self, verb: &str, failure: impl Into<Failure>) -> StoreError {
        let Failure { kind, detail } = failure.into();
        let advice = match kind {
            StoreErrorKind::InUse => "Stop the process that has it open, or choose another directory.",
            StoreErrorKind::TooNew => "Use the version that wrote it, or a newer one.",
            StoreErrorKind::TooOld => "Start a server with the data once, which upgrades it.",
            StoreErrorKind::Damaged => {
                "Use the version of perihelion that wrote it, restore a backup, or choose another directory."
            }
            StoreErrorKind::Full => "Free some space on its disk; writes then succeed again.",
            StoreErrorKind::Io => "Check that the disk is healthy, has free space and is writable.",
        };
        let location = &self.0;
        StoreError { kind, message: format!("cannot {verb} {location}: {detail}. {advice}") }
    }

    /// The error for a write after an earlier write failed.
    pub(super) fn closed_to_writes(&self, failure: &str) -> StoreError {
        let location = &self.0;
        let message = format!(
            "cannot write {location}: an earlier write failed ({failure}), and it is not known what is \
             on the disk. Restart the process, which then reads the disk again"
        );
        StoreError { kind: StoreErrorKind::Io, message }
    }
}

/// The error for a path that the operating system refused, with advice. `action`
/// says what failed, such as "open the data file".
pub(super) fn path_refused(action: &str, path: &Path, error: &io::Error) -> StoreError {
    let advice = match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            "Give this user the right to write there, or choose another directory."
        }
        io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory | io::ErrorKind::IsADirectory => {
            "The data directory must be a directory, and its data file a file; choose another directory."
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "Free some space on that disk.",
        _ => "Check the path and the disk, or choose another directory.",
    };
    let message = format!("cannot {action} {}: {error}. {advice}", path.display());
    StoreError { kind: StoreErrorKind::Io, message }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        Failure { kind: StoreErrorKind::Io, detail: error.to_string() }
    }
}

impl From<StorageError> for Failure {
    fn from(error: StorageError) -> Failure {
        use std::io::ErrorKind::{InvalidData, UnexpectedEof};
        let kind = match &error {
            StorageError::Corrupted(_) => StoreErrorKind::Damaged,
            // No magic number, or a page beyond the end of the file.
            StorageError::Io(io) if matches!(io.kind(), InvalidData | UnexpectedEof) => {
                StoreErrorKind::Damaged
            }
            _ => StoreErrorKind::Io,
        };
        Failure { kind, detail: error.to_string() }
    }
}

impl From<TransactionError> for Failure {
    fn from(error: TransactionError) -> Failure {
        match error {
            TransactionError::Storage(error) => error.into(),
            other => Failure { kind: StoreErrorKind::Io, detail: other.to_string() },
        }
    }
}

impl From<CommitError> for Failure {
    fn from(error: CommitError) -> Failure {
        match error {
            CommitError::Storage(error) => error.into(),
            other => Failure { kind: StoreErrorKind::Io, detail: other.to_string() },
        }
    }
}

impl From<TableError> for Failure {
    fn from(error: TableError) -> Failure {
        match error {
            TableError::Storage(error) => error.into(),
            other => Failure::damaged(other.to_string()),
        }
    }
}

impl From<DatabaseError> for Failure {
    fn from(error: DatabaseError) -> Failure {
        match error {
            DatabaseError::DatabaseAlreadyOpen => Failure {
                kind: StoreErrorKind::InUse,
                detail: "it is already open, in another process or in this one".to_string(),
            },
            DatabaseError::Storage(error) => error.into(),
            other => Failure::damaged(other.to_string()),
        }
    }
}
