//! The regions of an account: one engine each, replicators that copy the writes
//! of one region to the others, and the outages and delays that management sets.
//!
//! An account of one region has no replicators. The catalog (databases, containers,
//! ranges, offers, scripts, users, permissions) belongs to the account. It changes in the
//! first region, the *catalog region*, and is copied to the other regions before
//! the request is answered ([`Regions::change_catalog`]). No replicated write is
//! applied meanwhile. If a copy fails, for example because a disk is full, the request is
//! refused, and that region applies no replicated write until a later copy succeeds. So a
//! region knows the container of every write that it applies, unless that container was
//! deleted. A region gets a copy that is due before it takes over writes (`write_region`).
//!
//! What always holds: the topology is one immutable value, published whole by
//! [`Regions::update_topology`]. An outage concerns clients, never the store or its
//! replication, so an acknowledged write survives it.

mod delay_queue;
mod layout;
mod names;
mod range_writers;
mod replicator;
mod report;
mod topology;
mod write_region;

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use perihelion_engine::{Container, Engine, Health, RangeId, Refusal, RegionId, Role};
use tokio::sync::{RwLock, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

pub(crate) use layout::open_engines;
pub use names::{BadRegions, RegionNames};
pub(crate) use topology::{Outage, Topology};
pub(crate) use write_region::CATCH_UP_TIMEOUT;

use crate::error::StartError;

/// The region in which the catalog changes: the first region of the list.
const CATALOG_REGION: usize = 0;

/// The name under which the store of the catalog region holds the name of the write
/// region.
const WRITE_REGION_VALUE_NAME: &str = "write-region";

/// How often maintenance searches for expired documents and full ranges.
const MAINTENANCE_PAUSE: Duration = Duration::from_secs(1);

/// How many times closing yields to the scheduler while other tasks still hold the
/// regions. Tasks that have finished their work end within a few yields. A task that
/// still runs after all yields serves a request that has outlived its grace period.
const CLOSE_YIELDS_MAX: usize = 1000;

/// All regions of an account. A region is known by its index in the list of names.
pub(crate) struct Regions {
    pub(crate) names: RegionNames,
    /// One engine per region, by the region's index.
    engines: Vec<Arc<Engine>>,
    topology: watch::Sender<Arc<Topology>>,
    /// Replication from each region to each other region: `[from][to]`. The links
    /// from a region to itself are not used.
    links: Vec<Vec<Link>>,
    /// Held for reading while replicated writes are applied, for writing while
    /// the catalog changes.
    catalog_lock: RwLock<()>,
    /// By the region's index: whether the catalog may have changed since it was last copied to
    /// the region. Changed by holders of `catalog_lock` only. Never set for the catalog region.
    is_copy_due: Vec<AtomicBool>,
    /// Held while the write region of the account or of a range changes, so that one change
    /// runs at a time.
    write_region_lock: tokio::sync::Mutex<()>,
}

/// Replication from one region to another.
#[derive(Default)]
struct Link {
    /// The number of the last outbox entry that is applied; 0 before the first one.
    last_applied: watch::Sender<u64>,
    /// About when the replicator saw the oldest write that is not applied; `None` when
    /// all writes are applied. If that write still has to wait when its delay is over (for
    /// writes of a third region), this can be the time of a later write.
    waiting_since: Mutex<Option<Instant>>,
}

impl Link {
    fn set_waiting_since(&self, since: Option<Instant>) {
        *self.waiting_since.lock().unwrap_or_else(PoisonError::into_inner) = since;
    }

    fn waiting_since(&self) -> Option<Instant> {
        *self.waiting_since.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Regions {
    /// Checks that the stores belong to these regions, reads the write region from
    /// the store, copies the catalog to all regions, and gives each region its role.
    /// `delay` is the time that a write takes from one region to another.
    pub(crate) async fn open(
        names: RegionNames,
        engines: Vec<Arc<Engine>>,
        is_multi_write: bool,
        delay: Duration,
    ) -> Result<Arc<Regions>, StartError> {
        if engines.len() > 1 {
            layout::check_owners(&engines, &names).await?;
        }
        let write_region =
            engines[CATALOG_REGION].named_value(WRITE_REGION_VALUE_NAME).map_err(StartError::refused)?;
        let write_region = write_region.and_then(|name| names.find(&name)).unwrap_or(CATALOG_REGION);
        let mut topology = Topology::new(names.len(), write_region, is_multi_write, delay);
        if !is_multi_write && engines.len() > 1 {
            topology.range_writers = range_writers::load(&engines[CATALOG_REGION], &names, write_region)?;
        }
        let mut links = Vec::new();
        for from in 0..engines.len() {
            let mut row = Vec::new();
            for to in &engines {
                let applied = to.applied_up_to(RegionId(from as u8)).map_err(StartError::refused)?;
                row.push(Link { last_applied: watch::Sender::new(applied), ..Link::default() });
            }
            links.push(row);
        }
        let is_copy_due = engines.iter().map(|_| AtomicBool::new(false)).collect();
        let regions = Arc::new(Regions {
            names,
            engines,
            topology: watch::Sender::new(Arc::new(topology)),
            links,
            catalog_lock: RwLock::new(()),
            is_copy_due,
            write_region_lock: tokio::sync::Mutex::new(()),
        });
        regions.set_copies_due();
        regions.copy_catalog().await.map_err(StartError::refused)?;
        regions.assign_roles();
        Ok(regions)
    }

    /// Starts the background tasks: maintenance of each region and a replicator
    /// for each link. The tasks run until they are aborted.
    pub(crate) fn start_tasks(self: &Arc<Self>) -> Vec<JoinHandle<()>> {
        let count = self.engines.len();
        let mut tasks: Vec<JoinHandle<()>> =
            (0..count).map(|region| tokio::spawn(run_maintenance(Arc::clone(self), region))).collect();
        for (from, to) in self.pairs() {
            tasks.push(tokio::spawn(replicator::replicate(Arc::clone(self), from, to)));
        }
        tasks
    }

    pub(crate) fn len(&self) -> usize {
        self.engines.len()
    }

    pub(crate) fn engine(&self, region: usize) -> &Arc<Engine> {
        &self.engines[region]
    }

    /// The engine whose catalog is the newest: a change of the catalog begins there.
    pub(crate) fn catalog_engine(&self) -> &Arc<Engine> {
        &self.engines[CATALOG_REGION]
    }

    /// The worst health among the stores of all regions.
    pub(crate) fn health(&self) -> Health {
        let mut worst = Health::Ok;
        for engine in &self.engines {
            match engine.health() {
                Health::Ok => {}
                Health::Full => worst = Health::Full,
                failed @ Health::Failed(_) => return failed,
            }
        }
        worst
    }

    /// Every pair of two different regions, as `(from, to)`.
    fn pairs(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        let count = self.engines.len();
        (0..count).flat_map(move |from| (0..count).map(move |to| (from, to))).filter(|(from, to)| from != to)
    }

    /// The topology as it is now: one immutable snapshot.
    pub(crate) fn topology(&self) -> Arc<Topology> {
        Arc::clone(&self.topology.borrow())
    }

    /// Publishes a changed topology.
    fn update_topology(&self, change: impl FnOnce(&mut Topology)) {
        self.topology.send_modify(|topology| {
            let mut next = Topology::clone(topology);
            change(&mut next);
            *topology = Arc::new(next);
        });
    }

    /// Begins or ends a region's outage.
    pub(crate) fn set_outage(&self, region: usize, outage: Option<Outage>) {
        self.update_topology(|topology| topology.regions[region].outage = outage);
    }

    /// Stops or resumes replication from and to a region.
    pub(crate) fn set_cut(&self, region: usize, is_cut: bool) {
        self.update_topology(|topology| topology.regions[region].is_cut = is_cut);
    }

    /// Sets how long writes of other regions take to reach a region.
    pub(crate) fn set_delay(&self, region: usize, delay: Duration) {
        self.update_topology(|topology| topology.regions[region].delay = delay);
    }

    /// Sets whether the account document tells clients that ranges fail over one by one.
    pub(crate) fn set_partition_failover(&self, is_on: bool) {
        self.update_topology(|topology| topology.has_partition_failover = is_on);
    }

    /// Returns when a region has no outage.
    pub(crate) async fn wait_until_online(&self, region: usize) {
        // The sender lives as long as `self`, so only the end of the outage ends
        // the wait.
        let _ = self.topology.subscribe().wait_for(|topology| topology.outage(region).is_none()).await;
    }

    /// Changes the catalog in every region before it returns. `change` gets the engine
    /// of the catalog region. With several regions the change runs to its end even if
    /// the caller is dropped, so that all regions have the same catalog. If a region cannot
    /// copy the catalog, the change is refused although the catalog region has made it. The
    /// region copies the catalog later, before it applies another region's write.
    pub(crate) async fn change_catalog<T, F>(
        self: &Arc<Self>,
        change: impl FnOnce(Arc<Engine>) -> F + Send + 'static,
    ) -> Result<T, Refusal>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Refusal>> + Send + 'static,
    {
        if self.engines.len() == 1 {
            return change(Arc::clone(&self.engines[CATALOG_REGION])).await;
        }
        let regions = Arc::clone(self);
        let change: Pin<Box<dyn Future<Output = Result<T, Refusal>> + Send>> = Box::pin(async move {
            let _guard = regions.catalog_lock.write().await;
            // Before the change, so that the copies are due even if the change panics.
            regions.set_copies_due();
            let outcome = change(Arc::clone(&regions.engines[CATALOG_REGION])).await;
            regions.copy_catalog().await?;
            outcome
        });
        // The task fails only when the runtime stops or the task panics.
        tokio::spawn(change).await.unwrap_or_else(|_| Err(Refusal::stopping()))
    }

    fn set_copies_due(&self) {
        for is_due in &self.is_copy_due[CATALOG_REGION + 1..] {
            is_due.store(true, Ordering::SeqCst);
        }
    }

    /// Copies the catalog of the catalog region to the other regions. A copy that fails does not
    /// stop the other copies. Returns the first failure.
    async fn copy_catalog(&self) -> Result<(), Refusal> {
        let mut outcome = Ok(());
        for region in CATALOG_REGION + 1..self.engines.len() {
            outcome = outcome.and(self.copy_catalog_to(region).await);
        }
        outcome
    }

    /// Copies the catalog to a region, if that is due. The caller holds the lock `catalog_lock`, for
    /// reading at least, so the catalog does not change meanwhile. Two copies at a time do no harm.
    async fn copy_catalog_to(&self, region: usize) -> Result<(), Refusal> {
        let is_due = &self.is_copy_due[region];
        if is_due.load(Ordering::SeqCst) {
            self.engines[region].copy_catalog_from(&self.engines[CATALOG_REGION]).await?;
            is_due.store(false, Ordering::SeqCst);
        }
        Ok(())
    }

    /// Copies the catalog to a region whose last copy failed.
    async fn repeat_failed_copy(&self, region: usize) -> Result<(), Refusal> {
        let _guard = self.catalog_lock.read().await;
        self.copy_catalog_to(region).await
    }

    /// Splits a range in every region. Returns the ids of the two new ranges.
    pub(crate) async fn split(
        self: &Arc<Self>,
        container: &Arc<Container>,
        range: RangeId,
    ) -> Result<[RangeId; 2], Refusal> {
        let container = Arc::clone(container);
        self.change_catalog(move |engine| async move { engine.split(&container, range).await }).await
    }

    /// Runs the maintenance of every region now, one after the other. A failure in one region does
    /// not stop the maintenance of the other regions. Returns the first failure.
    pub(crate) async fn maintain(self: &Arc<Self>) -> Result<(), Refusal> {
        let mut outcome = Ok(());
        for region in 0..self.engines.len() {
            outcome = outcome.and(self.maintain_region(region).await);
        }
        outcome
    }

    /// Runs the maintenance of one region. With one region, this is only the maintenance of its
    /// engine. With several regions, a failed copy of the catalog is repeated first, and outbox
    /// entries that all other regions have applied are removed. Afterwards the catalog region splits
    /// ranges that are too large. The engine is maintained even if the copy or the removal fails, but
    /// then no range is split.
    async fn maintain_region(self: &Arc<Self>, region: usize) -> Result<(), Refusal> {
        let engine = &self.engines[region];
        if self.engines.len() == 1 {
            return engine.maintain().await;
        }
        let copied = self.repeat_failed_copy(region).await;
        // The outbox is trimmed first: while it is full the engine refuses writes, and the
        // removal of expired documents is a write.
        let trimmed = self.trim_outbox(region).await;
        let maintained = engine.maintain().await;
        copied.and(trimmed).and(maintained)?;
        if region == CATALOG_REGION {
            self.split_oversized().await;
        }
        Ok(())
    }

    async fn trim_outbox(&self, region: usize) -> Result<(), Refusal> {
        let others = self.links[region].iter().enumerate().filter(|(to, _)| *to != region);
        let applied_everywhere = others.map(|(_, link)| *link.last_applied.borrow()).min().unwrap_or(0);
        // A call removes a limited number of entries.
        while self.engines[region].trim_outbox(applied_everywhere).await? < applied_everywhere {}
        Ok(())
    }

    async fn split_oversized(self: &Arc<Self>) {
        for (container, range) in self.engines[CATALOG_REGION].oversized_ranges() {
            // A split can be refused: a range with a single partition key cannot be split.
            if let Err(refusal) = self.split(&container, range).await {
                tracing::warn!(container = %container.name, range, %refusal.message, "cannot split a physical partition that is too large");
            }
        }
    }

    /// Gives each engine the role that its region has in the topology. An account of one
    /// region has no roles. The assignment cannot fail. So some region takes writes also after a move
    /// of the write region has failed. The assignment does not wait for running writes: where a move
    /// ends the writes of a region, [`Engine::set_role`] has waited for them before.
    fn assign_roles(&self) {
        let topology = self.topology();
        for (region, engine) in self.engines.iter().enumerate() {
            engine.assign_role(role(&topology, region));
        }
    }

    /// Closes the stores once no other task uses them. When a request still runs after
    /// [`CLOSE_YIELDS_MAX`] yields, the stores close when that request ends.
    pub(crate) async fn close(mut self: Arc<Self>) {
        // A running change of the write region or of the catalog ends first.
        drop((self.write_region_lock.lock().await, self.catalog_lock.write().await));
        for _ in 0..CLOSE_YIELDS_MAX {
            match Arc::try_unwrap(self) {
                Ok(regions) => return regions.close_engines(),
                Err(still_shared) => self = still_shared,
            }
            tokio::task::yield_now().await;
        }
        tracing::warn!("a request outlives the server; the store closes when the request ends");
    }

    fn close_engines(self) {
        for engine in self.engines {
            match Arc::into_inner(engine) {
                Some(engine) => engine.close(),
                None => tracing::warn!("a read outlives the server; the store closes when the read ends"),
            }
        }
    }
}

fn role(topology: &Topology, region: usize) -> Role {
    Role {
        accepts_writes: topology.may_write(region),
        removes_expired: topology.write_region == region,
        exceptions: topology.exceptions_of(region),
    }
}

/// Runs a region's maintenance every [`MAINTENANCE_PAUSE`], or earlier when the engine has
/// work for it. Runs until the task is aborted.
async fn run_maintenance(regions: Arc<Regions>, region: usize) {
    loop {
        if let Err(refusal) = regions.maintain_region(region).await {
            tracing::warn!(message = %refusal.message, "maintenance failed and will be tried again");
        }
        regions.engines[region].maintenance_due(MAINTENANCE_PAUSE).await;
    }
}

#[cfg(test)]
mod tests;
