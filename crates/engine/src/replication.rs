//! The replication state of a region: the outbox with the writes that other
//! regions have to apply, the tombstones of deleted documents, and the region's
//! role.
//!
//! Each region is an engine with a store of its own. A write adds its changes
//! to the *outbox* of its region, in its own commit. The server's replicators
//! read outbox entries from one engine and apply them to another
//! (`documents::apply`). One outbox entry holds the changes of one write, so a
//! batch is applied in one commit as it was made in one. The target region stores the
//! number of the last applied entry in the commit that applies the entries. So no entry is
//! applied twice and no acknowledged write is lost, wherever a process ends.
//!
//! Two things are always true. A region applies an entry only after every write that the
//! writing region had applied in that range before (`Change::applied_lsns`), so no region
//! shows an effect without its cause. The version of a document (its timestamp, then its
//! etag counter) decides in every region which of two writes is the later one.

mod change;
mod outbox;
mod tombstones;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::sync::watch;

pub(crate) use self::change::{Change, ChangeOperation, Version};
pub use self::outbox::OutboxEntry;
pub(crate) use self::outbox::{append as append_to_outbox, read as read_outbox, trim as trim_outbox};
pub(crate) use self::tombstones::{DocumentKey, Tombstones, expired_tombstones, remove_expired_tombstones};
use crate::keys;
use crate::refusal::Refusal;
use crate::region::Replica;
use crate::storage::{StoreError, View};

/// How many writes may wait in an outbox by default. When another region is cut
/// off for so long that the outbox is full, this region refuses writes.
pub(crate) const OUTBOX_MAX: u64 = 1_000_000;

/// What a region does besides applying the writes of other regions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Role {
    /// Whether the region accepts writes from clients. Otherwise they are refused
    /// with `WRITE_FORBIDDEN`.
    pub accepts_writes: bool,
    /// Whether the region removes expired documents. One region does so for all regions. That
    /// region must accept writes, because removing a document is a write.
    pub removes_expired: bool,
}

/// The role and the outbox positions of an engine that is one of several
/// regions.
pub(crate) struct Replication {
    pub(crate) replica: Replica,
    accepts_writes: AtomicBool,
    removes_expired: AtomicBool,
    /// The number of the last durable outbox entry.
    pub(crate) outbox_end: watch::Sender<u64>,
    /// Counts the commits that applied entries of other regions.
    pub(crate) applied_commits: watch::Sender<u64>,
    /// The outbox entries up to this number have been removed.
    trimmed_up_to: AtomicU64,
    /// The number of entries at which the outbox is full.
    outbox_max: u64,
}

impl Replication {
    /// Reads the outbox positions. Until [`Replication::set_role`] is called, the region
    /// accepts writes and removes expired documents.
    pub(crate) fn open(replica: Replica, outbox_max: u64, view: &dyn View) -> Result<Self, StoreError> {
        let outbox_end = outbox::next_sequence(view.get(&keys::outbox_next())?) - 1;
        let trimmed_up_to = outbox::first_sequence(view)?.map_or(outbox_end, |first| first - 1);
        Ok(Replication {
            replica,
            accepts_writes: AtomicBool::new(true),
            removes_expired: AtomicBool::new(true),
            outbox_end: watch::Sender::new(outbox_end),
            applied_commits: watch::Sender::new(0),
            trimmed_up_to: AtomicU64::new(trimmed_up_to),
            outbox_max,
        })
    }

    pub(crate) fn set_role(&self, role: Role) {
        self.accepts_writes.store(role.accepts_writes, Ordering::SeqCst);
        self.removes_expired.store(role.removes_expired, Ordering::SeqCst);
    }

    pub(crate) fn removes_expired(&self) -> bool {
        self.removes_expired.load(Ordering::SeqCst)
    }

    /// Records that the outbox entries up to `last` have been removed.
    pub(crate) fn set_trimmed_up_to(&self, last: u64) {
        self.trimmed_up_to.fetch_max(last, Ordering::SeqCst);
    }

    /// Refuses a write if the region does not accept writes or if its outbox is full.
    fn check_write(&self) -> Result<(), Refusal> {
        if !self.accepts_writes.load(Ordering::SeqCst) {
            return Err(Refusal::write_forbidden());
        }
        let outbox_end = *self.outbox_end.borrow();
        if outbox_end.saturating_sub(self.trimmed_up_to.load(Ordering::SeqCst)) >= self.outbox_max {
            return Err(Refusal::replication_behind());
        }
        Ok(())
    }
}

/// Checks, inside a job of the writer, whether the region accepts writes and its outbox
/// has room. In an account with one region every check passes. The writer runs one job
/// after the other. So a write that passed the check under the old role is in the outbox
/// before the first job under the new role begins.
#[derive(Clone)]
pub(crate) struct WriteGate(Option<Arc<Replication>>);

impl WriteGate {
    pub(crate) fn new(replication: Option<Arc<Replication>>) -> Self {
        WriteGate(replication)
    }

    pub(crate) fn check(&self) -> Result<(), Refusal> {
        self.0.as_ref().map_or(Ok(()), |replication| replication.check_write())
    }
}
