//! Several regions of one account: each is an engine with a store of its own,
//! and what is written in one is applied in the others later.
//!
//! A write leaves a copy of itself in the *outbox* of its region, in its own
//! commit; whoever owns the engines carries outbox parcels from one to the
//! other ([`Engine::outbox`], [`Engine::apply`]). A parcel is what one write
//! made, so a batch is applied in one commit as it was made in one. The target
//! keeps its position in the commit that applies, so nothing is applied twice
//! and nothing that was acknowledged is lost, wherever a process ends.
//!
//! What always holds: a parcel is applied only after everything its region had
//! seen in that range (`seen`), so every region's history is a history that
//! could have happened; and the version of a document, its time and then its
//! etag's counter, decides between two writes in every region alike.

mod adopt;
mod apply;
mod change;
mod outbox;
pub(crate) mod tombstones;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::sync::watch;

pub use apply::Applied;
pub(crate) use change::{Change, Kind, Version};
pub use outbox::Parcel;
pub(crate) use outbox::log;

use crate::catalog::Catalog;
use crate::container::Container;
use crate::keys::{self, RangeId};
use crate::refusal::Refusal;
use crate::storage::{StoreError, View};
use crate::{Engine, maintenance, scripts};

/// The bits of a `_rid` or etag counter that name the region.
pub const REGION_BITS: u32 = 3;
/// The most regions an account may have here: a test needs three, and every
/// one costs a store and a place in every session token.
pub const REGIONS_MAX: usize = 1 << REGION_BITS;

/// How many writes may wait in an outbox by default. A region that is cut off for so
/// long that this is reached stops the writes, not the memory.
pub const OUTBOX_MAX: u64 = 1_000_000;

/// A region's number: its place in the account's list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RegionId(pub u8);

impl RegionId {
    pub(crate) fn place(self) -> usize {
        usize::from(self.0) % REGIONS_MAX
    }
}

/// Which of how many regions an engine is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Replica {
    pub region: RegionId,
    pub regions: u8,
}

/// What a region may do by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Role {
    /// Take writes of clients; otherwise they are refused with 403/3.
    pub writes: bool,
    /// Remove what has expired, for all regions.
    pub expires: bool,
}

/// What an engine that is one of several keeps in mind.
pub(crate) struct Replication {
    pub(crate) replica: Replica,
    writes: AtomicBool,
    expires: AtomicBool,
    /// The last parcel of the outbox that is durable.
    pub(crate) written: watch::Sender<u64>,
    /// Changes whenever something was applied.
    applied: watch::Sender<u64>,
    /// Everything up to here has left the outbox.
    floor: AtomicU64,
    outbox_max: u64,
}

impl Replication {
    pub(crate) fn open(replica: Replica, outbox_max: u64, view: &dyn View) -> Result<Self, StoreError> {
        let written = outbox::next(view.get(&keys::outbox_next())?) - 1;
        let floor = outbox::first(view)?.map_or(written, |first| first - 1);
        Ok(Replication {
            replica,
            writes: AtomicBool::new(true),
            expires: AtomicBool::new(true),
            written: watch::Sender::new(written),
            applied: watch::Sender::new(0),
            floor: AtomicU64::new(floor),
            outbox_max,
        })
    }

    /// Asked inside a job, so that a write that came before the door was
    /// closed is in the outbox before anyone looks there.
    pub(crate) fn check_write(&self) -> Result<(), Refusal> {
        if !self.writes.load(Ordering::SeqCst) {
            return Err(Refusal::write_forbidden());
        }
        if self.written.borrow().saturating_sub(self.floor.load(Ordering::SeqCst)) >= self.outbox_max {
            return Err(Refusal::replication_behind());
        }
        Ok(())
    }
}

/// The rights to write of an engine, to be taken into a job.
#[derive(Clone)]
pub(crate) struct WriteDoor(Option<Arc<Replication>>);

impl WriteDoor {
    pub(crate) fn check(&self) -> Result<(), Refusal> {
        self.0.as_ref().map_or(Ok(()), |replication| replication.check_write())
    }
}

impl Engine {
    /// Which of several regions this engine is.
    pub fn replica(&self) -> Option<Replica> {
        self.shared.replication.as_ref().map(|replication| replication.replica)
    }

    pub(crate) fn write_door(&self) -> WriteDoor {
        WriteDoor(self.shared.replication.clone())
    }

    /// Says what this region may do from now on. A write that is under way is
    /// either refused or in the outbox when this returns.
    pub async fn set_role(&self, role: Role) -> Result<(), Refusal> {
        if let Some(replication) = &self.shared.replication {
            replication.writes.store(role.writes, Ordering::SeqCst);
            replication.expires.store(role.expires, Ordering::SeqCst);
        }
        // Jobs run one after the other: behind this one, all see the new role.
        self.write(|_| Ok(())).await
    }

    pub(crate) fn may_expire(&self) -> bool {
        let replication = self.shared.replication.as_ref();
        replication.is_none_or(|replication| replication.expires.load(Ordering::SeqCst))
    }

    /// The last parcel of the outbox, and news of the next.
    pub fn written(&self) -> Option<watch::Receiver<u64>> {
        self.shared.replication.as_ref().map(|replication| replication.written.subscribe())
    }

    /// Tells whenever something of another region was applied.
    pub fn arrivals(&self) -> Option<watch::Receiver<u64>> {
        self.shared.replication.as_ref().map(|replication| replication.applied.subscribe())
    }

    /// Parcels of the outbox after `after` up to `to`, as many as make a page.
    pub fn outbox(&self, after: u64, to: u64) -> Result<Vec<Parcel>, Refusal> {
        outbox::read(&*self.view()?, after, to)
    }

    /// Forgets parcels that every other region has applied. Returns what is
    /// forgotten up to: a call does a bounded part of the work.
    pub async fn trim_outbox(&self, to: u64) -> Result<u64, Refusal> {
        let trimmed = self.write(move |transaction| outbox::trim(transaction, to)).await?;
        if let Some(replication) = &self.shared.replication {
            replication.floor.fetch_max(trimmed, Ordering::SeqCst);
        }
        Ok(trimmed)
    }

    /// Up to which parcel of a region's outbox everything is applied here.
    pub fn applied_from(&self, source: RegionId) -> Result<u64, Refusal> {
        Ok(apply::position(self.view()?.get(&keys::applied(source.0))?))
    }

    /// Applies parcels of another region's outbox, in one commit.
    pub async fn apply(&self, source: RegionId, parcels: Vec<Parcel>) -> Result<Applied, Refusal> {
        let applied = self.write(move |transaction| apply::apply(transaction, source, &parcels)).await?;
        if applied.parcels > 0
            && let Some(replication) = &self.shared.replication
        {
            replication.applied.send_modify(|ticks| *ticks += 1);
        }
        Ok(applied)
    }

    /// Makes this region's databases, containers, ranges, offers and scripts
    /// those of `lead`. Doing it again changes nothing.
    pub async fn adopt(&self, lead: &Engine) -> Result<(), Refusal> {
        let catalog = lead.catalog();
        let scripts = scripts::records(&*lead.view()?, &catalog)?;
        self.write(move |transaction| adopt::adopt(transaction, &catalog, scripts)).await?;
        self.maintenance.wake();
        Ok(())
    }

    /// Whether a region has the catalog that its lead has.
    pub fn agrees_with(&self, lead: &Catalog) -> bool {
        adopt::agree(&self.catalog(), lead)
    }

    /// Partitions that are too large. With several regions it is for their
    /// owner to split them, everywhere at once.
    pub fn oversized(&self) -> Vec<(Arc<Container>, RangeId)> {
        maintenance::oversized(self)
    }

    /// A short text that the owner keeps with the data.
    pub fn note(&self, name: &str) -> Result<Option<String>, Refusal> {
        let text = self.view()?.get(&keys::note(name))?;
        Ok(text.map(|text| String::from_utf8_lossy(&text).into_owned()))
    }

    pub async fn set_note(&self, name: &str, text: &str) -> Result<(), Refusal> {
        let (key, text) = (keys::note(name), text.as_bytes().to_vec());
        self.write(move |transaction| {
            transaction.put(key, text);
            Ok(())
        })
        .await
    }
}
