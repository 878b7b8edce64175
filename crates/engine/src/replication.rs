//! What a region keeps so that its writes reach the other regions of the
//! account: the outbox, tombstones, and the region's role.
//!
//! Each region is an engine with a store of its own. A write adds its changes
//! to the *outbox* of its region, in its own commit. The server's replicators
//! read outbox entries from one engine and apply them to another
//! (`documents::apply`). One outbox entry holds the changes of one write, so a
//! batch is applied in one commit as it was made in one. The target stores its
//! position in the commit that applies, so no entry is applied twice and no
//! acknowledged write is lost, wherever a process ends.
//!
//! Always true: an entry is applied only after every write that its region had
//! seen in that range (`Change::seen`), so the history of each region is one
//! that could have happened. And the version of a document (its timestamp, then
//! its etag counter) decides between two writes in every region alike.

mod change;
mod outbox;
mod tombstones;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::sync::watch;

pub(crate) use self::change::{Change, ChangeOperation, Version};
pub use self::outbox::OutboxEntry;
pub(crate) use self::outbox::{append, read, trim};
pub(crate) use self::tombstones::{DocumentKey, Tombstones, expired_tombstones, remove_expired_tombstones};
use crate::keys;
use crate::refusal::Refusal;
use crate::region::Replica;
use crate::storage::{StoreError, View};

/// How many writes may wait in an outbox by default. When another region is cut
/// off for so long that the outbox is full, this region refuses writes.
pub(crate) const OUTBOX_MAX: u64 = 1_000_000;

/// The tasks of a region besides replication.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Role {
    /// Accept writes from clients. Otherwise they are refused with
    /// `WRITE_FORBIDDEN`.
    pub writes: bool,
    /// Remove expired documents, for all regions.
    pub expires: bool,
}

/// The role and the outbox positions of an engine that is one of several
/// regions.
pub(crate) struct Replication {
    pub(crate) replica: Replica,
    writes: AtomicBool,
    expires: AtomicBool,
    /// The last outbox entry that is durable.
    pub(crate) written: watch::Sender<u64>,
    /// Counts the commits that applied entries of other regions.
    pub(crate) applied: watch::Sender<u64>,
    /// Entries up to this one have been removed from the outbox.
    trimmed: AtomicU64,
    outbox_max: u64,
}

impl Replication {
    pub(crate) fn open(replica: Replica, outbox_max: u64, view: &dyn View) -> Result<Self, StoreError> {
        let written = outbox::next(view.get(&keys::outbox_next())?) - 1;
        let trimmed = outbox::first(view)?.map_or(written, |first| first - 1);
        Ok(Replication {
            replica,
            writes: AtomicBool::new(true),
            expires: AtomicBool::new(true),
            written: watch::Sender::new(written),
            applied: watch::Sender::new(0),
            trimmed: AtomicU64::new(trimmed),
            outbox_max,
        })
    }

    pub(crate) fn set_role(&self, role: Role) {
        self.writes.store(role.writes, Ordering::SeqCst);
        self.expires.store(role.expires, Ordering::SeqCst);
    }

    pub(crate) fn may_expire(&self) -> bool {
        self.expires.load(Ordering::SeqCst)
    }

    pub(crate) fn set_trimmed(&self, to: u64) {
        self.trimmed.fetch_max(to, Ordering::SeqCst);
    }

    fn check_write(&self) -> Result<(), Refusal> {
        if !self.writes.load(Ordering::SeqCst) {
            return Err(Refusal::write_forbidden());
        }
        if self.written.borrow().saturating_sub(self.trimmed.load(Ordering::SeqCst)) >= self.outbox_max {
            return Err(Refusal::replication_behind());
        }
        Ok(())
    }
}

/// Checks, inside a job, whether the region accepts writes. A job that passed
/// the check before the role changed is in the outbox before anyone reads the
/// outbox under the new role.
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
