//! A redb backend that defers all writes until the file is accepted.
//!
//! redb writes while it opens a file: it marks the file as open, repairs the file after a
//! crash, or gives an empty file its layout. But whether the file belongs to this
//! program, and in which format it is, can be read only after redb has opened the file. So
//! redb opens the file through this backend, which keeps every write in memory. When
//! the file has been accepted, [`DeferredWrites::apply`] performs the deferred
//! operations on the disk, in the order and with the syncs that redb chose. From then on
//! every call goes to the disk. A file that is not accepted was never written to.
//!
//! A power cut during `apply` leaves the same state as a power cut while redb opens the file
//! itself, because the disk sees the same operations.
//!
//! After a failure of the store, [`DeferredWrites::forbid_writes`] stops all
//! later writes. During a checkpoint, a write for which the disk has no room waits
//! ([`DeferredWrites::set_room_wait`]).

use std::io;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redb::{BackendError, StorageBackend};

use super::room::{RoomWait, is_full};

/// The most bytes that redb may write before the file is accepted. When redb creates
/// or repairs a file, it writes a few dozen pages. This limit is hundreds of times larger.
const DEFERRED_BYTES_MAX: usize = 64 * 1024 * 1024;

/// The bytes of the magic number at the beginning of a redb file.
const MAGIC_BYTES: usize = 9;
/// The bytes of a sector. The header of a redb file, which begins with the magic number,
/// fits into one sector. So a power cut leaves the whole header or nothing of it.
const SECTOR_BYTES: usize = 512;

/// While redb creates a file and has not written the magic number, the file is never longer
/// than this.
const LAYOUT_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// A shared handle: redb owns one clone, the store another.
#[derive(Debug, Clone)]
pub(super) struct DeferredWrites(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// The data file on the disk.
    disk: Box<dyn StorageBackend>,
    /// Whether the file was accepted and the deferred operations were performed.
    is_applied: AtomicBool,
    /// Whether all writes are refused, after a failure of the store.
    is_forbidden: AtomicBool,
    /// How writes wait for room; `None` if they fail when the disk is full.
    room_wait: Mutex<Option<Arc<RoomWait>>>,
    deferred: Mutex<Deferred>,
}

/// The operations of redb that are not performed yet.
#[derive(Debug, Default)]
struct Deferred {
    /// Whether the length of the file was read from the disk. The length is read at redb's
    /// first call, after redb took the lock on the file. Before that, another process may be
    /// changing the file.
    has_read_disk: bool,
    operations: Vec<Operation>,
    /// The bytes of all deferred writes.
    bytes: usize,
    /// The length of the file with the deferred operations applied.
    len: u64,
}

#[derive(Debug)]
enum Operation {
    SetLen(u64),
    Write { offset: u64, data: Vec<u8> },
    Sync,
}

impl DeferredWrites {
    pub(super) fn new(disk: Box<dyn StorageBackend>) -> DeferredWrites {
        DeferredWrites(Arc::new(Inner {
            disk,
            is_applied: AtomicBool::new(false),
            is_forbidden: AtomicBool::new(false),
            room_wait: Mutex::default(),
            deferred: Mutex::new(Deferred::default()),
        }))
    }

    /// Refuses all writes from now on. The store calls this after a failure, because redb
    /// would write again when it is closed.
    pub(super) fn forbid_writes(&self) {
        self.0.is_forbidden.store(true, Ordering::Release);
    }

    fn check_may_write(&self) -> Result<(), io::Error> {
        let forbidden = || io::Error::other("an earlier write failed");
        if self.0.is_forbidden.load(Ordering::Acquire) { Err(forbidden()) } else { Ok(()) }
    }

    /// Sets how writes wait while the disk has no room. The checkpoint thread sets this for the time
    /// of a checkpoint, in which no other thread writes to the file.
    pub(super) fn set_room_wait(&self, room_wait: Option<Arc<RoomWait>>) {
        *self.0.room_wait.lock().unwrap_or_else(PoisonError::into_inner) = room_wait;
    }

    /// Performs a write on the disk. If the disk is full and `room_wait` is set, waits for room and
    /// performs the write again. The first try may have written a part of the data; to write that
    /// part again is harmless.
    fn when_there_is_room(&self, write: impl Fn() -> io::Result<()>) -> io::Result<()> {
        loop {
            let error = match write() {
                Err(error) if is_full(&error) => error,
                outcome => return outcome,
            };
            let room_wait = self.0.room_wait.lock().unwrap_or_else(PoisonError::into_inner).clone();
            if !room_wait.is_some_and(|room_wait| room_wait.wait()) {
                return Err(error);
            }
            self.check_may_write()?;
        }
    }

    /// Performs the deferred operations. From now on every call goes to the disk.
    pub(super) fn apply(&self) -> Result<(), io::Error> {
        let disk = &self.0.disk;
        let mut deferred = self.lock();
        for operation in deferred.operations.drain(..) {
            match operation {
                Operation::SetLen(len) => disk.set_len(len)?,
                Operation::Write { offset, data } => disk.write(offset, &data)?,
                Operation::Sync => disk.sync_data()?,
            }
        }
        self.0.is_applied.store(true, Ordering::Release);
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Deferred> {
        self.0.deferred.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_applied(&self) -> bool {
        self.0.is_applied.load(Ordering::Acquire)
    }

    /// Locks the deferred operations. The first call reads the length of the file. If a crash
    /// interrupted the creation of the file, the first deferred operation empties the file.
    fn lock_initialised(&self) -> Result<MutexGuard<'_, Deferred>, io::Error> {
        let mut deferred = self.lock();
        if !deferred.has_read_disk {
            deferred.len = self.0.disk.len()?;
            if is_unfinished(&*self.0.disk, deferred.len)? {
                deferred.push(Operation::SetLen(0))?;
            }
            deferred.has_read_disk = true;
        }
        Ok(deferred)
    }
}

impl Deferred {
    /// Defers an operation. Fails if redb writes more than [`DEFERRED_BYTES_MAX`].
    fn push(&mut self, operation: Operation) -> Result<(), io::Error> {
        match &operation {
            Operation::SetLen(len) => self.len = *len,
            Operation::Write { offset, data } => {
                self.bytes += data.len();
                self.len = self.len.max(offset + data.len() as u64);
            }
            Operation::Sync => {}
        }
        if self.bytes > DEFERRED_BYTES_MAX {
            return Err(io::Error::other("redb wants to change too much of the file while it opens it"));
        }
        self.operations.push(operation);
        Ok(())
    }

    /// Applies the deferred operations to bytes that were read from the disk.
    fn apply_to(&self, offset: u64, out: &mut [u8]) {
        let end = offset + out.len() as u64;
        for operation in &self.operations {
            match operation {
                Operation::SetLen(len) if *len < end => {
                    out[len.saturating_sub(offset) as usize..].fill(0);
                }
                Operation::Write { offset: at, data } => {
                    let (from, to) = ((*at).max(offset), (at + data.len() as u64).min(end));
                    if from < to {
                        let source = &data[(from - at) as usize..(to - at) as usize];
                        out[(from - offset) as usize..(to - offset) as usize].copy_from_slice(source);
                    }
                }
                Operation::SetLen(_) | Operation::Sync => {}
            }
        }
    }
}

/// Whether a crash interrupted redb while it created the file. Such a file has no
/// magic number, because redb writes the magic number last, before the first commit. redb
/// refuses to open a file without it. Every byte beyond the header of such a file is zero
/// (this is checked). So nothing was stored in the file, and creating it again loses
/// nothing.
fn is_unfinished(disk: &dyn StorageBackend, len: u64) -> Result<bool, io::Error> {
    if len == 0 || len > LAYOUT_BYTES_MAX {
        return Ok(false);
    }
    let mut content = vec![0; len as usize];
    disk.read(0, &mut content)?;
    let magic = &content[..content.len().min(MAGIC_BYTES)];
    let beyond_header = &content[content.len().min(SECTOR_BYTES)..];
    Ok(magic.iter().chain(beyond_header).all(|byte| *byte == 0))
}

impl StorageBackend for DeferredWrites {
    fn len(&self) -> Result<u64, io::Error> {
        if self.is_applied() {
            return self.0.disk.len();
        }
        Ok(self.lock_initialised()?.len)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), io::Error> {
        if self.is_applied() {
            return self.0.disk.read(offset, out);
        }
        let deferred = self.lock_initialised()?;
        if offset + out.len() as u64 > deferred.len {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let bytes_on_disk = self.0.disk.len()?.saturating_sub(offset).min(out.len() as u64) as usize;
        let (from_disk, beyond) = out.split_at_mut(bytes_on_disk);
        self.0.disk.read(offset, from_disk)?;
        beyond.fill(0);
        deferred.apply_to(offset, out);
        Ok(())
    }

    fn set_len(&self, len: u64) -> Result<(), io::Error> {
        self.check_may_write()?;
        if self.is_applied() {
            return self.when_there_is_room(|| self.0.disk.set_len(len));
        }
        self.lock_initialised()?.push(Operation::SetLen(len))
    }

    fn sync_data(&self) -> Result<(), io::Error> {
        self.check_may_write()?;
        if self.is_applied() {
            return self.0.disk.sync_data();
        }
        self.lock_initialised()?.push(Operation::Sync)
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), io::Error> {
        self.check_may_write()?;
        if self.is_applied() {
            return self.when_there_is_room(|| self.0.disk.write(offset, data));
        }
        self.lock_initialised()?.push(Operation::Write { offset, data: data.to_vec() })
    }

    fn close(&self) -> Result<(), io::Error> {
        self.0.disk.close()
    }

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.0.disk.try_lock_range(start, end)
    }

    fn try_lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.0.disk.try_lock_shared_range(start, end)
    }

    fn lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.0.disk.lock_range(start, end)
    }

    fn lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.0.disk.lock_shared_range(start, end)
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.0.disk.unlock_range(start, end)
    }

    fn query_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.0.disk.query_lock_range(start, end)
    }
}
