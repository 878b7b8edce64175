//! The store: one sorted map from bytes to bytes, behind two small traits.
//!
//! The engine stores documents, change feed, indexes and counters in this map;
//! `keys.rs` defines the keys. A store knows nothing about the keys. It promises
//! three things, and the engine relies on nothing else:
//!
//! 1. a [`View`] is a consistent snapshot: later commits are not in it;
//! 2. a [`Store::commit`] becomes visible whole or not at all, also after a crash;
//! 3. when `commit` returns `Ok`, its writes survive `kill -9` and, on a disk
//!    that does not lie about fsync, a power cut. The in-memory store keeps only
//!    the first two promises; see [`Store::is_durable`].
//!
//! There is one writer at a time (the group-commit writer), so `commit` needs
//! no conflict handling. Readers never wait for the writer's fsync.

mod disk;
mod memory;
mod snapshot_map;

use std::ops::{Bound, ControlFlow};

use bytes::Bytes;

pub use self::disk::{CheckpointMode, DISK_FILE, Directory, DiskOptions, DiskStore, LogLimits};
pub use self::memory::MemoryStore;

/// A sorted map of bytes with snapshots and atomic, durable commits.
pub trait Store: Send + Sync + 'static {
    /// Opens a snapshot of everything committed so far.
    fn view(&self) -> Result<Box<dyn View + '_>, StoreError>;

    /// Applies every write or none; returns when they are as durable as this
    /// store can make them. A key may appear only once. After an error it is not known
    /// whether the writes were applied, except after [`StoreErrorKind::Full`]: then they are not
    /// visible, and another commit may succeed.
    fn commit(&self, writes: &mut dyn Iterator<Item = Write<'_>>) -> Result<(), StoreError>;

    /// Why every commit fails from now on; `None` while commits may succeed.
    fn failure(&self) -> Option<String> {
        None
    }

    /// Whether an acknowledged write survives the end of the process.
    fn is_durable(&self) -> bool;
}

/// One consistent snapshot.
pub trait View {
    /// The value of a key.
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, StoreError>;

    /// Visits the entries of a range in key order (or backwards), until the visitor
    /// breaks.
    fn scan(
        &self,
        range: KeyRange<'_>,
        direction: Direction,
        visit: &mut Visitor<'_>,
    ) -> Result<(), StoreError>;
}

/// Called with each key and value of a scan.
pub type Visitor<'a> = dyn FnMut(&[u8], &[u8]) -> ControlFlow<()> + 'a;

/// One change of the map.
#[derive(Debug, Clone, Copy)]
pub struct Write<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The new value, or `None` to remove the key.
    pub value: Option<&'a [u8]>,
}

/// A range of keys.
#[derive(Debug, Clone, Copy)]
pub struct KeyRange<'a> {
    /// The lower bound.
    pub from: Bound<&'a [u8]>,
    /// The upper bound.
    pub to: Bound<&'a [u8]>,
}

impl KeyRange<'_> {
    /// Whether no key can be in the range, for example because its lower bound is above its upper
    /// bound. Stores check this before a scan, because their maps may panic for such bounds.
    fn is_empty(&self) -> bool {
        match (self.from, self.to) {
            (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
            (Bound::Included(from), Bound::Included(to)) => from > to,
            (Bound::Included(from) | Bound::Excluded(from), Bound::Excluded(to))
            | (Bound::Excluded(from), Bound::Included(to)) => from >= to,
        }
    }
}

/// The direction of a scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the lower bound upwards.
    Forward,
    /// From the upper bound downwards.
    Backward,
}

/// An error of the store.
#[derive(Debug)]
pub struct StoreError {
    /// The kind of the error, for callers that act on it.
    pub kind: StoreErrorKind,
    /// What failed, on which file, and what to do about it.
    pub message: String,
}

/// The kinds of store errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreErrorKind {
    /// The data directory is already open, in another process or in this one.
    InUse,
    /// A newer version of this program wrote the file.
    TooNew,
    /// An earlier version of this program wrote the data. It is upgraded when an engine opens it.
    TooOld,
    /// The file belongs to another program, or it is damaged.
    Damaged,
    /// The disk has no room for a commit. The store can still be used.
    Full,
    /// The operating system refused a read, a write or a sync, now or at an earlier
    /// write.
    Io,
}

impl std::fmt::Display for StoreError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for StoreError {}
