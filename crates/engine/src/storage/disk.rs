//! The store that remembers: one redb file in a data directory.
//!
//! A commit is one redb transaction: copy-on-write pages, a first sync, then
//! the header that makes them current and a second sync (`quick_repair`, which
//! docs/storage.md pays for with measurements). The keyspace is one table.
//!
//! Always true: `commit` returns `Ok` only after the second sync succeeded;
//! after any failed commit no other is attempted, because a kernel that failed
//! one fsync may forget the dirty pages and report the next one as a success.

mod open;
mod probation;

use std::fmt;
use std::ops::ControlFlow;
use std::panic::{self, AssertUnwindSafe};
use std::path::Path;
use std::sync::OnceLock;

use bytes::Bytes;
use redb::{
    CommitError, Database, ReadOnlyTable, ReadableDatabase, StorageBackend, StorageError, TableDefinition,
    TableError, TransactionError,
};

use super::{Direction, KeyRange, Store, StoreError, StoreErrorKind, View, Visitor, Write};

/// The engine's whole keyspace.
const KEYSPACE: TableDefinition<'static, &[u8], &[u8]> = TableDefinition::new("perihelion.keyspace");

/// Pages redb may hold in memory, clean and dirty. It grows with use and never
/// beyond this; the operating system's own cache stands behind it, so a miss
/// is a system call and not a disk read. An idle process stays far below.
const PAGE_CACHE_BYTES_MAX: usize = 64 * 1024 * 1024;

/// A data directory, open in this process only.
pub struct DiskStore {
    /// There until the store is dropped.
    database: Option<Database>,
    place: Place,
    /// Why commits are refused from now on. Set once, by the commit that failed.
    failure: OnceLock<String>,
}

impl DiskStore {
    /// Opens the data directory, or makes one if there is none. A directory
    /// that is refused is left as it was, to the byte.
    pub fn open(directory: &Path) -> Result<DiskStore, StoreError> {
        open::directory(directory)
    }

    /// Opens a store on anything that can keep bytes. Simulations put their
    /// disk here.
    pub fn with_backend(backend: impl StorageBackend) -> Result<DiskStore, StoreError> {
        open::backend(Box::new(backend), Place("the given backend".to_string()), || Ok(()))
    }

    fn database(&self) -> Result<&Database, RedbError> {
        self.database.as_ref().ok_or(RedbError { kind: StoreErrorKind::Io, detail: "closed".to_string() })
    }

    fn try_commit(&self, writes: &[Write<'_>]) -> Result<(), RedbError> {
        let mut transaction = self.database()?.begin_write()?;
        transaction.set_quick_repair(true);
        {
            let mut keyspace = transaction.open_table(KEYSPACE)?;
            for write in writes {
                match write.value {
                    Some(value) => drop(keyspace.insert(write.key, value)?),
                    None => drop(keyspace.remove(write.key)?),
                }
            }
        }
        Ok(transaction.commit()?)
    }
}

impl Store for DiskStore {
    fn view(&self) -> Result<Box<dyn View + '_>, StoreError> {
        let keyspace = guarded(|| Ok(self.database()?.begin_read()?.open_table(KEYSPACE)?))
            .map_err(|error| self.place.failed("read", error))?;
        Ok(Box::new(DiskView { keyspace, place: &self.place }))
    }

    fn commit(&self, writes: &mut dyn Iterator<Item = Write<'_>>) -> Result<(), StoreError> {
        if let Some(failure) = self.failure.get() {
            return Err(self.place.closed_to_writes(failure));
        }
        // The caller's iterator runs before the transaction begins: it may
        // panic. In key order the writes of one page lie together.
        let mut writes: Vec<Write<'_>> = writes.collect();
        writes.sort_by(|a, b| a.key.cmp(b.key));
        debug_assert!(writes.is_sorted_by(|a, b| a.key < b.key), "a key appears twice in one commit");
        if writes.is_empty() {
            return Ok(());
        }
        guarded(|| self.try_commit(&writes)).map_err(|error| {
            let error = self.place.failed("write", error);
            let _ = self.failure.set(error.message.clone());
            error
        })
    }

    fn is_durable(&self) -> bool {
        true
    }
}

impl Drop for DiskStore {
    fn drop(&mut self) {
        // Closing writes too. Whether it succeeds does not matter to what was
        // acknowledged: that was synced before.
        let _ = guarded(|| {
            drop(self.database.take());
            Ok(())
        });
    }
}

impl fmt::Debug for DiskStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DiskStore").field("place", &self.place.0).finish_non_exhaustive()
    }
}

struct DiskView<'a> {
    /// Keeps its transaction, and so its snapshot, alive.
    keyspace: ReadOnlyTable<&'static [u8], &'static [u8]>,
    place: &'a Place,
}

impl View for DiskView<'_> {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        let read = || Ok(self.keyspace.get(key)?.map(|value| Bytes::copy_from_slice(value.value())));
        guarded(read).map_err(|error| self.place.failed("read", error))
    }

    fn scan(
        &self,
        range: KeyRange<'_>,
        direction: Direction,
        visit: &mut Visitor<'_>,
    ) -> Result<(), StoreError> {
        if range.is_empty() {
            return Ok(());
        }
        let read_failed = |error| self.place.failed("read", error);
        let mut entries =
            guarded(|| Ok(self.keyspace.range::<&[u8]>((range.from, range.to))?)).map_err(read_failed)?;
        loop {
            let next = || {
                let entry = match direction {
                    Direction::Forward => entries.next().transpose()?,
                    Direction::Backward => entries.next_back().transpose()?,
                };
                // Where a damaged page cannot say how long its values are.
                let _ = entry.as_ref().map(|(key, value)| (key.value(), value.value()));
                Ok(entry)
            };
            let Some((key, value)) = guarded(next).map_err(read_failed)? else { break };
            if let ControlFlow::Break(()) = visit(key.value(), value.value()) {
                break;
            }
        }
        Ok(())
    }
}

/// Calls redb. It answers most damage with an error and some with a failed
/// assertion; a damaged file is outside input, so that is an error as well.
fn guarded<T>(call: impl FnOnce() -> Result<T, RedbError>) -> Result<T, RedbError> {
    panic::catch_unwind(AssertUnwindSafe(call))
        .unwrap_or_else(|_| Err(RedbError::damaged("its pages contradict each other")))
}

/// What error messages call the thing that failed: a path, mostly.
struct Place(String);

impl Place {
    fn failed(&self, what: &str, error: impl Into<RedbError>) -> StoreError {
        let RedbError { kind, detail } = error.into();
        let advice = match kind {
            StoreErrorKind::InUse => "Stop the process that has it open, or choose another directory.",
            StoreErrorKind::TooNew => "Use the version that wrote it, or a newer one.",
            StoreErrorKind::Damaged => {
                "Use the version of perihelion that wrote it, restore a backup, or choose another directory."
            }
            StoreErrorKind::Io => "Check that the disk is healthy, has free space and may be written.",
        };
        let place = &self.0;
        StoreError { kind, message: format!("cannot {what} {place}: {detail}. {advice}") }
    }

    fn closed_to_writes(&self, failure: &str) -> StoreError {
        let place = &self.0;
        let message = format!(
            "cannot write {place}: an earlier write failed, and what the disk holds is only known after a \
             restart ({failure})"
        );
        StoreError { kind: StoreErrorKind::Io, message }
    }
}

/// redb's many errors as the few that a caller can act on.
struct RedbError {
    kind: StoreErrorKind,
    detail: String,
}

impl RedbError {
    fn damaged(detail: impl Into<String>) -> RedbError {
        RedbError { kind: StoreErrorKind::Damaged, detail: detail.into() }
    }
}

impl From<StorageError> for RedbError {
    fn from(error: StorageError) -> RedbError {
        use std::io::ErrorKind::{InvalidData, UnexpectedEof};
        let kind = match &error {
            StorageError::Corrupted(_) => StoreErrorKind::Damaged,
            // No magic number, or a page that lies beyond the end of the file.
            StorageError::Io(io) if matches!(io.kind(), InvalidData | UnexpectedEof) => {
                StoreErrorKind::Damaged
            }
            _ => StoreErrorKind::Io,
        };
        RedbError { kind, detail: error.to_string() }
    }
}

impl From<TransactionError> for RedbError {
    fn from(error: TransactionError) -> RedbError {
        match error {
            TransactionError::Storage(error) => error.into(),
            other => RedbError { kind: StoreErrorKind::Io, detail: other.to_string() },
        }
    }
}

impl From<CommitError> for RedbError {
    fn from(error: CommitError) -> RedbError {
        match error {
            CommitError::Storage(error) => error.into(),
            other => RedbError { kind: StoreErrorKind::Io, detail: other.to_string() },
        }
    }
}

impl From<TableError> for RedbError {
    fn from(error: TableError) -> RedbError {
        match error {
            TableError::Storage(error) => error.into(),
            other => RedbError::damaged(other.to_string()),
        }
    }
}
