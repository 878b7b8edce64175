//! The disk store: a redb file with a log in front of it.
//!
//! A commit is appended to the log as one record, with one sync, and added to the overlay, a map in
//! memory over the data file. From time to time a checkpoint writes the overlay to the data file,
//! and the log starts again. A very large commit goes to the data file directly. docs/storage.md
//! explains this design, and the state that a crash at each step leaves.
//!
//! Always true:
//! - `commit` returns `Ok` only after its writes were synced;
//! - a view shows the commits of the log on top of the data file;
//! - after a failed commit or checkpoint the store writes nothing any more, because a
//!   kernel that failed one fsync may drop the dirty pages and report success for the next
//!   fsync. The exceptions are a record for which the disk had no room (`log.rs`), and a
//!   checkpoint that waits for room (`room.rs`).

mod checkpoint;
mod crc32c;
mod deferred_writes;
mod directory;
mod failure;
mod log;
mod open;
mod pace;
mod record;
mod room;
mod view;

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use redb::{Database, ReadableDatabase, TableDefinition};

use self::checkpoint::{Checkpoint, Checkpointer};
use self::deferred_writes::DeferredWrites;
use self::failure::{Failure, Location, catch_panic};
use self::log::Log;
use self::record::LoggedWrite;
use self::view::{Base, DiskView, Layers, Overlay};
use super::{Direction, KeyRange, Store, StoreError, StoreErrorKind, View, Write};

pub use self::checkpoint::CheckpointMode;
pub use self::directory::Directory;
pub use self::open::FILE_NAME as DISK_FILE;

/// The engine's whole keyspace.
const KEYSPACE: TableDefinition<'static, &[u8], &[u8]> = TableDefinition::new("perihelion.keyspace");

/// The most bytes of pages that redb holds in memory, clean and dirty. The operating
/// system caches the file too, so a miss in this cache is mostly a system call and not a
/// disk read. An idle process uses far less memory.
const PAGE_CACHE_BYTES_MAX: usize = 64 * 1024 * 1024;

/// The room in the data file that a commit which bypasses the log needs, as a multiple of the bytes of
/// the commit and of the log. Pages of the data file are at least half full, so these bytes take at
/// most twice their size there. Changed pages are copied too, but mostly to pages that are free already.
const DATA_FILE_BYTES_PER_BYTE: u64 = 2;

/// The part of a log file after which a checkpoint begins, unless one is running. Under many
/// writes the running checkpoint ends about here (`pace.rs`), and the next one begins at once.
const CHECKPOINT_FILL: f64 = 0.8;

/// Options of a disk store.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct DiskOptions {
    /// The limits of the log.
    pub log: LogLimits,
    /// Where checkpoints run.
    pub checkpoints: CheckpointMode,
    /// The instance number of a new data file. Every record of its log has this
    /// number. The number is random and secret, except in simulation (see `record.rs`).
    pub instance: u64,
}

/// The limits of the log. The log has two files. Their limits bound the memory of the
/// overlay and the time to open the store after a crash. A record that is above the limits of a
/// file, but not above `record_bytes`, is the only record of its file.
#[derive(Debug, Clone, Copy)]
pub struct LogLimits {
    /// The most bytes in a file.
    pub file_bytes: u64,
    /// The most writes in a file. This limit bounds the memory of the overlay, in which a
    /// small write takes more bytes than in the log.
    pub file_writes: usize,
    /// After this many removals a checkpoint begins before the log is full, unless one is
    /// running. A scan has to pass over each removal and over the entry that the removal
    /// hides.
    pub removals: usize,
    /// The most bytes of a record. A larger commit bypasses the log and goes to the data file at once.
    /// A commit of the data file needs two syncs and an append to the log only one, but writing many
    /// bytes twice costs more than a sync.
    pub record_bytes: usize,
}

impl LogLimits {
    /// The limits that the measurements in docs/storage.md suggest.
    const PRODUCTION: LogLimits = LogLimits {
        file_bytes: 16 * 1024 * 1024,
        file_writes: 100_000,
        removals: 4096,
        record_bytes: 2 * 1024 * 1024,
    };

    /// Small limits, so that checkpoints are frequent.
    const SIMULATION: LogLimits =
        LogLimits { file_bytes: 64 * 1024, file_writes: 100, removals: 30, record_bytes: 48 * 1024 };
}

impl DiskOptions {
    /// The options of [`DiskStore::open`].
    pub fn new() -> DiskOptions {
        let instance = open::random_instance();
        DiskOptions { log: LogLimits::PRODUCTION, checkpoints: CheckpointMode::Thread, instance }
    }

    /// For simulated disks: no thread, no randomness, and small limits, so that a checkpoint begins
    /// after few commits. The checkpoint ends with the third commit after that.
    pub fn simulation() -> DiskOptions {
        let checkpoints = CheckpointMode::Inline { commits_later: 3 };
        DiskOptions { log: LogLimits::SIMULATION, checkpoints, instance: 1 }
    }

    /// Sets the limits of the log.
    pub fn with_log(mut self, log: LogLimits) -> DiskOptions {
        self.log = log;
        self
    }

    /// Sets where checkpoints run.
    pub fn with_checkpoints(mut self, checkpoints: CheckpointMode) -> DiskOptions {
        self.checkpoints = checkpoints;
        self
    }
}

impl Default for DiskOptions {
    fn default() -> DiskOptions {
        DiskOptions::new()
    }
}

/// A data directory, open in this process only.
pub struct DiskStore {
    core: Arc<Core>,
    /// `Some` until the store is dropped.
    writer: Mutex<Option<Writer>>,
}

/// The state that commits, views and checkpoints share.
struct Core {
    // Rust drops fields in this order: the snapshot in `layers` must be dropped
    // before its database.
    layers: RwLock<Layers>,
    database: DataFile,
    deferred: DeferredWrites,
    location: Arc<Location>,
    /// The text of the failure after which commits are refused. Set once, by the commit or
    /// checkpoint that failed.
    failure: OnceLock<String>,
}

/// The state of the committing thread.
struct Writer {
    log: Log,
    checkpointer: Checkpointer,
    /// The sequence number of the last commit.
    sequence: u64,
    /// The number of removals that were stored in the active overlay, including removals
    /// that a later write replaced.
    removals: usize,
    /// The instance number of the data file; `None` for a file of format 1, which has no log.
    instance: Option<u64>,
    /// Whether the marker of the data file (`open.rs`) has the current format. The first commit
    /// raises an earlier format.
    is_current: bool,
    /// The instance number that the first commit gives to a file of format 1.
    new_instance: u64,
    limits: LogLimits,
}

impl DiskStore {
    /// Opens the data directory, or creates it. If the directory is refused, not a single byte of
    /// it is changed.
    pub fn open(directory: &Path) -> Result<DiskStore, StoreError> {
        DiskStore::open_with(directory, DiskOptions::new())
    }

    /// Verifies the pages of the data file in a directory, with their checksums. Changes nothing.
    pub fn check_files(directory: &Path) -> Result<(), StoreError> {
        open::check_files(directory)
    }

    /// Opens the data directory with other options.
    pub fn open_with(directory: &Path, options: DiskOptions) -> Result<DiskStore, StoreError> {
        open::open_path(directory, &options)
    }

    /// Opens a store on a simulated directory, without threads or randomness.
    pub fn with_backend(directory: impl Directory) -> Result<DiskStore, StoreError> {
        DiskStore::with_backend_and(directory, DiskOptions::simulation())
    }

    /// Opens a store on a simulated directory with other options.
    pub fn with_backend_and(
        directory: impl Directory,
        options: DiskOptions,
    ) -> Result<DiskStore, StoreError> {
        open::open_directory(Box::new(directory), Location("the given backend".to_string()), &options)
    }
}

impl Store for DiskStore {
    fn view(&self) -> Result<Box<dyn View + '_>, StoreError> {
        let layers = self.core.layers().clone();
        Ok(Box::new(DiskView { layers, location: &self.core.location }))
    }

    fn commit(&self, writes: &mut dyn Iterator<Item = Write<'_>>) -> Result<(), StoreError> {
        // The caller's iterator runs before anything is locked: it may panic,
        // or read from a view.
        let writes: Vec<Write<'_>> = writes.collect();
        debug_assert!(keys_are_distinct(&writes), "a key appears twice in one commit");
        let core = &*self.core;
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(failure) = core.failure.get() {
            return Err(core.location.closed_to_writes(failure));
        }
        let Some(writer) = writer.as_mut().filter(|_| !writes.is_empty()) else { return Ok(()) };
        catch_panic(|| writer.commit(core, &writes)).map_err(|failure| {
            let is_full = failure.kind == StoreErrorKind::Full;
            let error = core.location.failed_to("write", failure);
            if !is_full {
                core.close_to_writes(&error.message);
            }
            error
        })
    }

    fn failure(&self) -> Option<String> {
        self.core.failure.get().cloned()
    }

    fn is_durable(&self) -> bool {
        true
    }
}

fn keys_are_distinct(writes: &[Write<'_>]) -> bool {
    let mut keys: Vec<&[u8]> = writes.iter().map(|write| write.key).collect();
    keys.sort_unstable();
    keys.is_sorted_by(|a, b| a < b)
}

impl Writer {
    /// Makes a commit durable and visible: through the log, or directly in the data file if
    /// the commit is too large for the log.
    fn commit(&mut self, core: &Core, writes: &[Write<'_>]) -> Result<(), Failure> {
        self.log.erase_refused_record()?;
        let instance = match self.instance {
            Some(instance) => {
                if !self.is_current {
                    core.raise_format()?;
                }
                instance
            }
            None => {
                core.upgrade(self.new_instance)?;
                *self.instance.insert(self.new_instance)
            }
        };
        self.is_current = true;
        let Some(size) = record::size(writes).filter(|size| *size <= self.limits.record_bytes) else {
            return self.commit_without_log(core, writes);
        };
        let is_due = self.removals >= self.limits.removals || self.log.fill() >= CHECKPOINT_FILL;
        if !self.log.has_room(size, writes.len()) || is_due && self.checkpointer.is_idle()? {
            self.begin_checkpoint(core)?;
        }
        let record = record::encode(instance, self.sequence + 1, writes, size);
        self.log.append(&record)?;
        self.sequence += 1;
        self.publish(core, record.entries)?;
        // A checkpoint that fails here closes the store to writes. This commit
        // succeeds all the same, because it is durable already.
        if let Err(failure) = self.checkpointer.after_commit(core, self.log.fill()) {
            core.close_to_writes(&failure.detail);
        }
        Ok(())
    }

    /// Makes a durable commit visible. The active overlay stores the removal of a key only if
    /// a layer below has the key. Otherwise the key is dropped from the active overlay. So a
    /// queue whose items are added and removed between two checkpoints leaves no removals
    /// that a scan must pass over.
    fn publish(&mut self, core: &Core, entries: Vec<LoggedWrite>) -> Result<(), Failure> {
        let below = core.layers().clone();
        let has_below = |key: &[u8]| match below.frozen.get(key) {
            Some(value) => Ok(value.is_some()),
            None => Ok::<_, Failure>(below.base.get(key)?.is_some()),
        };
        let mut needs_no_entry = Vec::new();
        for (key, value) in &entries {
            needs_no_entry.push(value.is_none() && !has_below(key)?);
        }
        drop(below); // While this snapshot exists, every changed node would be copied.
        let mut layers = core.layers_mut();
        for ((key, value), needs_no_entry) in entries.into_iter().zip(needs_no_entry) {
            self.removals += usize::from(value.is_none() && !needs_no_entry);
            match needs_no_entry {
                true => layers.active.remove(&key),
                false => layers.active.insert(&key, value),
            }
        }
        Ok(())
    }

    /// Freezes the active overlay, starts a checkpoint of the frozen overlay, and switches to
    /// the other log file. First waits for the previous checkpoint, because the records of
    /// the other file may be overwritten only after that checkpoint. So memory and log are
    /// bounded. If the previous checkpoint waits for room, nothing changes, and the disk counts
    /// as full.
    fn begin_checkpoint(&mut self, core: &Core) -> Result<(), Failure> {
        self.checkpointer.finish(core)?;
        let overlay = {
            let mut layers = core.layers_mut();
            layers.frozen = std::mem::take(&mut layers.active);
            layers.frozen.clone()
        };
        self.log.switch();
        self.removals = 0;
        self.checkpointer.start(Checkpoint { overlay, last_sequence: self.sequence })
    }

    /// Writes a commit that is too large for the log to the data file, in one
    /// transaction with all commits that the data file does not have yet.
    fn commit_without_log(&mut self, core: &Core, writes: &[Write<'_>]) -> Result<(), Failure> {
        self.checkpointer.finish(core)?;
        let bytes = |write: &Write<'_>| write.key.len() + write.value.map_or(0, <[u8]>::len);
        let bytes = writes.iter().map(bytes).sum::<usize>() as u64 + self.log.bytes();
        self.log.check_room(bytes * DATA_FILE_BYTES_PER_BYTE)?;
        let active = core.layers().active.clone();
        core.write_to_data_file(&active, writes, self.sequence + 1)?;
        self.sequence += 1;
        let base = core.read_base()?;
        {
            let mut layers = core.layers_mut();
            layers.base = base;
            layers.active = Overlay::default();
        }
        self.log.restart();
        self.removals = 0;
        Ok(())
    }

    /// Writes a last checkpoint and removes the log.
    fn close(&mut self, core: &Core) -> Result<(), Failure> {
        self.checkpointer.finish(core)?;
        let active = core.layers().active.clone();
        if !active.is_empty() {
            core.write_to_data_file(&active, &[], self.sequence)?;
        }
        Ok(self.log.remove()?)
    }
}

impl Core {
    fn layers(&self) -> RwLockReadGuard<'_, Layers> {
        self.layers.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn layers_mut(&self) -> RwLockWriteGuard<'_, Layers> {
        // No caller's code runs under the lock and no change fails halfway, so
        // the layers are consistent even when the lock is poisoned.
        self.layers.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Refuses all later commits and all later writes to the data file. Views still work.
    fn close_to_writes(&self, failure: &str) {
        let _ = self.failure.set(failure.to_string());
        self.deferred.forbid_writes();
    }

    /// Writes one durable transaction to the data file: the overlay, then the writes.
    /// `last_sequence` is the sequence number of the last commit among them.
    fn write_to_data_file(
        &self,
        overlay: &Overlay,
        writes: &[Write<'_>],
        last_sequence: u64,
    ) -> Result<(), Failure> {
        const EVERYTHING: KeyRange<'static> =
            KeyRange { from: std::ops::Bound::Unbounded, to: std::ops::Bound::Unbounded };
        let mut transaction = self.database.get()?.begin_write()?;
        transaction.set_quick_repair(true);
        {
            let mut keyspace = transaction.open_table(KEYSPACE)?;
            let mut put = |key: &[u8], value: Option<&[u8]>| -> Result<(), Failure> {
                match value {
                    Some(value) => drop(keyspace.insert(key, value)?),
                    None => drop(keyspace.remove(key)?),
                }
                Ok(())
            };
            // In key order, writes to the same page follow each other.
            for (key, value) in overlay.range(EVERYTHING, Direction::Forward) {
                put(key, value.as_deref())?;
            }
            let mut writes = writes.to_vec();
            writes.sort_unstable_by(|a, b| a.key.cmp(b.key));
            for write in writes {
                put(write.key, write.value)?;
            }
        }
        open::set_covered(&transaction, last_sequence)?;
        Ok(transaction.commit()?)
    }

    /// Upgrades a data file of format 1.
    fn upgrade(&self, instance: u64) -> Result<(), Failure> {
        open::write_marker(self.database.get()?, instance)
    }

    /// Raises the format of a data file of format 2.
    fn raise_format(&self) -> Result<(), Failure> {
        open::raise_format(self.database.get()?)
    }

    fn read_base(&self) -> Result<Arc<Base>, Failure> {
        self.database.read_base()
    }
}

/// The redb database. `None` while it is being closed.
struct DataFile(Option<Database>);

impl DataFile {
    fn get(&self) -> Result<&Database, Failure> {
        self.0.as_ref().ok_or_else(|| std::io::Error::other("closed").into())
    }

    /// A snapshot of the data file's keyspace as it is now.
    fn read_base(&self) -> Result<Arc<Base>, Failure> {
        Ok(Arc::new(self.get()?.begin_read()?.open_table(KEYSPACE)?))
    }
}

impl Drop for DataFile {
    fn drop(&mut self) {
        // redb writes to the file when it is closed, and this write may fail. Acknowledged
        // commits were synced before, so the failure loses nothing.
        let _ = catch_panic(|| {
            drop(self.0.take());
            Ok(())
        });
    }
}

impl Drop for DiskStore {
    fn drop(&mut self) {
        let writer = self.writer.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        let Some(mut writer) = writer else { return };
        if self.core.failure.get().is_none()
            && let Err(failure) = catch_panic(|| writer.close(&self.core))
        {
            // Every acknowledged commit is in the log or in the data file, and the
            // next opening reads both.
            self.core.close_to_writes(&failure.detail);
        }
        writer.checkpointer.stop();
    }
}

impl fmt::Debug for DiskStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DiskStore").field("location", &self.core.location.0).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
