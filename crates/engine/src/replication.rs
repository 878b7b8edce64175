//! The replication state of a region: the outbox with the writes that other
//! regions have to apply, the tombstones of deleted documents, and the region's
//! role.
//!
//! Each region is an engine with a store of its own. A write adds its changes to the *outbox* of
//! its region, in its own commit. The server's replicators read outbox entries from one engine and
//! apply them to another (`documents::apply`). One outbox entry holds the changes of one write. So
//! the changes of a batch or of a distributed transaction are applied in one commit, as they were
//! made in one commit. The target region stores the number of the last applied entry in the commit
//! that applies the entries. So no entry is applied twice and no acknowledged write is lost, even
//! if a process crashes at any point.
//!
//! Two things are always true. A region applies an entry only after every write that the
//! writing region had applied in that range before (`Change::applied_lsns`), so no region
//! shows an effect without its cause. The version of a document (its timestamp, then its
//! etag counter) decides in every region which of two writes is the later one.

mod change;
mod outbox;
mod tombstones;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use tokio::sync::watch;

pub(crate) use self::change::{Change, ChangeOperation, OutboxRecord, Version, encode_ledger_entry};
pub use self::outbox::OutboxEntry;
pub(crate) use self::outbox::{
    OutboxCursor, append as append_to_outbox, read as read_outbox, trim as trim_outbox,
};
pub(crate) use self::tombstones::{DocumentKey, Tombstones, expired_tombstones, remove_expired_tombstones};
use crate::catalog::Container;
use crate::keys::{self, ContainerNumber, RangeId};
use crate::refusal::Refusal;
use crate::region::Replica;
use crate::storage::{StoreError, View};

/// How many writes may wait in an outbox by default. When another region is cut
/// off for so long that the outbox is full, this region refuses writes.
pub(crate) const OUTBOX_MAX: u64 = 1_000_000;

/// The tasks of a region besides applying the writes of other regions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Role {
    /// Whether the region accepts writes from clients. Otherwise they are refused
    /// with `WRITE_FORBIDDEN`.
    pub accepts_writes: bool,
    /// Whether the region removes expired documents. One region removes them for all regions. That
    /// region must accept writes, because removing a document is a write.
    pub removes_expired: bool,
    /// Ranges for which the region does the opposite. If `accepts_writes`, the region refuses
    /// writes of these ranges and does not remove their expired documents. Otherwise it accepts
    /// writes of these ranges and removes their expired documents. An exception for a range that
    /// is split later covers the children of the range, too.
    pub exceptions: Vec<RangeKey>,
}

/// A physical partition of the account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RangeKey {
    /// The container's number.
    pub container: ContainerNumber,
    /// The range within the container.
    pub range: RangeId,
}

impl RangeKey {
    /// Whether a range of a container is this range or was split from it.
    pub fn covers(&self, container: &Container, range: RangeId) -> bool {
        self.container == container.number()
            && container.range(range).is_some_and(|range| range.descends_from(self.range))
    }
}

impl Role {
    /// A region that takes no writes.
    pub const READ_ONLY: Role =
        Role { accepts_writes: false, removes_expired: false, exceptions: Vec::new() };

    /// Whether the region accepts writes of a range.
    fn accepts_writes_of(&self, container: &Container, range: RangeId) -> bool {
        self.accepts_writes != self.exceptions.iter().any(|exception| exception.covers(container, range))
    }
}

/// The role and the outbox positions of an engine that is one of several
/// regions.
pub(crate) struct Replication {
    pub(crate) replica: Replica,
    role: RwLock<Arc<Role>>,
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
            role: RwLock::new(Arc::new(Role {
                accepts_writes: true,
                removes_expired: true,
                exceptions: Vec::new(),
            })),
            outbox_end: watch::Sender::new(outbox_end),
            applied_commits: watch::Sender::new(0),
            trimmed_up_to: AtomicU64::new(trimmed_up_to),
            outbox_max,
        })
    }

    pub(crate) fn set_role(&self, role: Role) {
        *self.role.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(role);
    }

    fn role(&self) -> Arc<Role> {
        Arc::clone(&self.role.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether the region removes expired documents of some range.
    pub(crate) fn removes_expired(&self) -> bool {
        let role = self.role();
        role.removes_expired || (!role.accepts_writes && !role.exceptions.is_empty())
    }

    /// Records that the outbox entries up to `last` have been removed.
    pub(crate) fn set_trimmed_up_to(&self, last: u64) {
        self.trimmed_up_to.fetch_max(last, Ordering::SeqCst);
    }

    /// Refuses a write if the region accepts writes of no range or if its outbox is full.
    fn check_write(&self) -> Result<(), Refusal> {
        let role = self.role();
        if !role.accepts_writes && role.exceptions.is_empty() {
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

    /// Whether the region accepts the writes of some ranges and not of others.
    pub(crate) fn has_exceptions(&self) -> bool {
        self.0.as_ref().is_some_and(|replication| !replication.role().exceptions.is_empty())
    }

    /// Refuses a write of a range whose writes the region does not accept.
    pub(crate) fn check_range(&self, container: &Container, range: RangeId) -> Result<(), Refusal> {
        if self.accepts_writes_of(container, range) { Ok(()) } else { Err(Refusal::write_forbidden()) }
    }

    /// Whether the region accepts writes of a range.
    pub(crate) fn accepts_writes_of(&self, container: &Container, range: RangeId) -> bool {
        self.0.as_ref().is_none_or(|replication| replication.role().accepts_writes_of(container, range))
    }
}
