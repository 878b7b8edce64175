//! Where bytes are kept: one ordered keyspace behind two small traits.
//!
//! The engine keeps everything (documents, change feed, indexes, counters) in
//! one sorted map from bytes to bytes; `keys.rs` says which key means what.
//! A store knows nothing of that. It promises three things, and the engine
//! relies on nothing else:
//!
//! 1. a [`View`] is a consistent snapshot: what is committed later is not in it;
//! 2. a [`Store::commit`] becomes visible whole or not at all, also over a crash;
//! 3. when `commit` returns `Ok`, what it wrote survives `kill -9` and, on a
//!    disk that is honest about fsync, a power cut (the in-memory store keeps
//!    the first two only, and says so by [`Store::is_durable`]).
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
    /// store can make them. A key may appear once only.
    fn commit(&self, writes: &mut dyn Iterator<Item = Write<'_>>) -> Result<(), StoreError>;

    /// Whether an acknowledged write survives the process.
    fn is_durable(&self) -> bool;
}

/// One consistent snapshot.
pub trait View {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, StoreError>;

    /// Visits entries in key order (or backwards), until the visitor breaks.
    fn scan(
        &self,
        range: KeyRange<'_>,
        direction: Direction,
        visit: &mut Visitor<'_>,
    ) -> Result<(), StoreError>;
}

/// Called with each key and value of a scan.
pub type Visitor<'a> = dyn FnMut(&[u8], &[u8]) -> ControlFlow<()> + 'a;

/// One change: a key, and its new value or `None` to remove it.
#[derive(Debug, Clone, Copy)]
pub struct Write<'a> {
    pub key: &'a [u8],
    pub value: Option<&'a [u8]>,
}

/// A range of keys.
#[derive(Debug, Clone, Copy)]
pub struct KeyRange<'a> {
    pub from: Bound<&'a [u8]>,
    pub to: Bound<&'a [u8]>,
}

impl KeyRange<'_> {
    /// Whether no key can be in the range. The maps underneath panic on
    /// bounds that are the wrong way round; for a store they are just empty.
    fn is_empty(&self) -> bool {
        match (self.from, self.to) {
            (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
            (Bound::Included(from), Bound::Included(to)) => from > to,
            (Bound::Included(from) | Bound::Excluded(from), Bound::Excluded(to))
            | (Bound::Excluded(from), Bound::Included(to)) => from >= to,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    Forward,
    Backward,
}

/// Why the store could not do what was asked.
#[derive(Debug)]
pub struct StoreError {
    pub kind: StoreErrorKind,
    pub message: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreErrorKind {
    /// Another process has the data directory open.
    InUse,
    /// Written by a newer version of this program.
    TooNew,
    /// The file is not ours, or its checksums do not hold.
    Damaged,
    /// The operating system refused a read, a write or a sync.
    Io,
}

impl std::fmt::Display for StoreError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for StoreError {}
