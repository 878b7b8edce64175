//! A backend that lets redb look before anything may be touched.
//!
//! redb writes while it opens a file: it marks it as open, repairs what a
//! crash left, lays out an empty one. Whether the file is ours, and of a format
//! we know, can only be read once it is open. So redb opens it through this
//! backend, which keeps every write in memory; when the file has been accepted,
//! [`Probation::admit`] performs them on the disk in the order and with the
//! syncs that redb chose, and stands aside. A file that is not accepted was
//! never written to.
//!
//! A cut of the power during `admit` leaves what a cut during redb's own
//! opening would leave, because the disk sees the same operations.
//!
//! The other way out is [`Probation::forbid_writes`], for a store that failed.

use std::io;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redb::{BackendError, StorageBackend};

/// What redb may write before the file is accepted. Laying out a file or
/// repairing one writes a few dozen pages; this is a thousand times that.
const HELD_BYTES_MAX: usize = 64 * 1024 * 1024;

/// redb's magic number has this many bytes, and the header around it fits one
/// sector, so the disk has all of it or none.
const MAGIC_BYTES: usize = 9;
const SECTOR_BYTES: usize = 512;

/// redb lays out less than this before it writes the magic number.
const LAYOUT_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// A shared handle: redb owns one, whoever decides owns another.
#[derive(Debug, Clone)]
pub(super) struct Probation(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    disk: Box<dyn StorageBackend>,
    admitted: AtomicBool,
    forbidden: AtomicBool,
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    /// Whether the disk has been looked at. The first look waits for redb's
    /// first call after it took the lock: before that the file may be another
    /// process's, in the middle of a change.
    begun: bool,
    operations: Vec<Operation>,
    bytes: usize,
    len: u64,
}

#[derive(Debug)]
enum Operation {
    SetLen(u64),
    Write { offset: u64, data: Vec<u8> },
    Sync,
}

impl Probation {
    pub(super) fn new(disk: Box<dyn StorageBackend>) -> Probation {
        let (admitted, forbidden) = (AtomicBool::new(false), AtomicBool::new(false));
        Probation(Arc::new(Inner { disk, admitted, forbidden, held: Mutex::new(Held::default()) }))
    }

    /// From here on nothing is changed, by nobody: something has failed, and
    /// redb would go on to write when it is closed.
    pub(super) fn forbid_writes(&self) {
        self.0.forbidden.store(true, Ordering::Release);
    }

    fn may_write(&self) -> Result<(), io::Error> {
        let forbidden = || io::Error::other("an earlier write failed");
        if self.0.forbidden.load(Ordering::Acquire) { Err(forbidden()) } else { Ok(()) }
    }

    /// Performs what was held back; from here on everything goes to the disk.
    pub(super) fn admit(&self) -> Result<(), io::Error> {
        let disk = &self.0.disk;
        let mut held = self.lock();
        for operation in held.operations.drain(..) {
            match operation {
                Operation::SetLen(len) => disk.set_len(len)?,
                Operation::Write { offset, data } => disk.write(offset, &data)?,
                Operation::Sync => disk.sync_data()?,
            }
        }
        self.0.admitted.store(true, Ordering::Release);
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.0.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_admitted(&self) -> bool {
        self.0.admitted.load(Ordering::Acquire)
    }

    fn begin(&self) -> Result<MutexGuard<'_, Held>, io::Error> {
        let mut held = self.lock();
        if !held.begun {
            held.len = self.0.disk.len()?;
            if is_unfinished(&*self.0.disk, held.len)? {
                held.hold(Operation::SetLen(0))?;
            }
            held.begun = true;
        }
        Ok(held)
    }
}

impl Held {
    fn hold(&mut self, operation: Operation) -> Result<(), io::Error> {
        match &operation {
            Operation::SetLen(len) => self.len = *len,
            Operation::Write { offset, data } => {
                self.bytes += data.len();
                self.len = self.len.max(offset + data.len() as u64);
            }
            Operation::Sync => {}
        }
        if self.bytes > HELD_BYTES_MAX {
            return Err(io::Error::other("opening the file would change too much of it"));
        }
        self.operations.push(operation);
        Ok(())
    }

    /// Lays the held operations over what was read from the disk.
    fn overlay(&self, offset: u64, out: &mut [u8]) {
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

/// Whether the file is what a crash leaves of redb's creation: laid out, but
/// without the magic number, which is written last and before the first commit.
/// redb refuses such a file for ever. Nothing was ever stored in it: beyond the
/// header every byte is zero, and that is checked, so beginning again cannot
/// lose anything.
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

impl StorageBackend for Probation {
    fn len(&self) -> Result<u64, io::Error> {
        if self.is_admitted() {
            return self.0.disk.len();
        }
        Ok(self.begin()?.len)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), io::Error> {
        if self.is_admitted() {
            return self.0.disk.read(offset, out);
        }
        let held = self.begin()?;
        if offset + out.len() as u64 > held.len {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let on_disk = self.0.disk.len()?.saturating_sub(offset).min(out.len() as u64) as usize;
        let (from_disk, beyond) = out.split_at_mut(on_disk);
        self.0.disk.read(offset, from_disk)?;
        beyond.fill(0);
        held.overlay(offset, out);
        Ok(())
    }

    fn set_len(&self, len: u64) -> Result<(), io::Error> {
        self.may_write()?;
        if self.is_admitted() {
            return self.0.disk.set_len(len);
        }
        self.begin()?.hold(Operation::SetLen(len))
    }

    fn sync_data(&self) -> Result<(), io::Error> {
        self.may_write()?;
        if self.is_admitted() {
            return self.0.disk.sync_data();
        }
        self.begin()?.hold(Operation::Sync)
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), io::Error> {
        self.may_write()?;
        if self.is_admitted() {
            return self.0.disk.write(offset, data);
        }
        self.begin()?.hold(Operation::Write { offset, data: data.to_vec() })
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
