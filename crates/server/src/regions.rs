//! The regions of the account: an engine each, carriers that take the writes
//! of one to the others, and what happens to a region on order.
//!
//! An account of one region is the same thing with nothing to carry. The
//! catalog (databases, containers, ranges, offers, scripts) is the account's:
//! it is changed in the first region, the *lead*, and taken over by the others
//! before anyone is answered ([`Regions::change`]); no write is applied
//! meanwhile, so that every region knows the container of what it applies.
//! What always holds: the topology is one immutable value, published whole by
//! [`Regions::update`]; an outage is about clients, never about the store or
//! its replication, so an acknowledged write survives it.

mod carrier;
mod layout;
mod marks;
mod name;
mod relocation;
mod report;
mod topology;

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use perihelion_engine::{Container, Engine, RangeId, Refusal, RegionId, Role};
use tokio::sync::{RwLock, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

pub(crate) use layout::open_engines;
pub use name::{BadRegions, RegionNames};
pub(crate) use relocation::PATIENCE;
pub(crate) use topology::{Outage, Topology};

use crate::StartError;

/// The first region of the list keeps the catalog.
const LEAD: usize = 0;

/// Where the lead keeps the write region's name.
const WRITE_REGION_NOTE: &str = "write-region";

/// How often maintenance looks for expired documents and full partitions.
const MAINTENANCE_PAUSE: Duration = Duration::from_secs(1);

/// A task that has given back its lock is gone a few turns of the scheduler
/// later; one that is not holds a request that outlived its grace.
const CLOSE_TURNS_MAX: usize = 1000;

/// All regions of an account.
pub(crate) struct Regions {
    pub(crate) names: RegionNames,
    engines: Vec<Arc<Engine>>,
    topology: watch::Sender<Arc<Topology>>,
    /// How far each outbox has come in each region: `[from][to]`.
    links: Vec<Vec<Link>>,
    /// Held for reading while something is applied, for writing while the
    /// catalog changes.
    catalog: RwLock<()>,
    /// One move of the write region at a time.
    relocation: tokio::sync::Mutex<()>,
}

/// The way from one region to another.
#[derive(Default)]
struct Link {
    applied: watch::Sender<u64>,
    /// Since when the oldest write that is not yet there waits.
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
    /// Brings the regions to one catalog and gives each its role.
    pub(crate) async fn open(
        names: RegionNames,
        engines: Vec<Arc<Engine>>,
        is_multi_write: bool,
        delay: Duration,
    ) -> Result<Arc<Regions>, StartError> {
        if engines.len() > 1 {
            layout::claim(&engines, &names).await?;
        }
        let lead = &engines[LEAD];
        let write_region = lead.note(WRITE_REGION_NOTE).map_err(StartError::refused)?;
        let write_region = write_region.and_then(|name| names.find(&name)).unwrap_or(LEAD);
        let topology = Topology::new(names.len(), write_region, is_multi_write, delay);
        let mut links = Vec::new();
        for from in 0..engines.len() {
            let mut row = Vec::new();
            for to in &engines {
                let applied = to.applied_from(RegionId(from as u8)).map_err(StartError::refused)?;
                row.push(Link { applied: watch::Sender::new(applied), ..Link::default() });
            }
            links.push(row);
        }
        let regions = Arc::new(Regions {
            names,
            engines,
            topology: watch::Sender::new(Arc::new(topology)),
            links,
            catalog: RwLock::new(()),
            relocation: tokio::sync::Mutex::new(()),
        });
        regions.adopt().await.map_err(StartError::refused)?;
        regions.assign_roles().await.map_err(StartError::refused)?;
        Ok(regions)
    }

    /// Starts what runs in the background: maintenance of each region and a
    /// carrier for each way. All end when they are aborted.
    pub(crate) fn start_tasks(self: &Arc<Self>) -> Vec<JoinHandle<()>> {
        let count = self.engines.len();
        let mut tasks: Vec<JoinHandle<()>> =
            (0..count).map(|region| tokio::spawn(maintain(Arc::clone(self), region))).collect();
        for (from, to) in self.ways() {
            tasks.push(tokio::spawn(carrier::carry(Arc::clone(self), from, to)));
        }
        tasks
    }

    pub(crate) fn len(&self) -> usize {
        self.engines.len()
    }

    pub(crate) fn engine(&self, region: usize) -> &Arc<Engine> {
        &self.engines[region]
    }

    /// Every way from one region to another.
    fn ways(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        let count = self.engines.len();
        (0..count).flat_map(move |from| (0..count).map(move |to| (from, to))).filter(|(from, to)| from != to)
    }

    /// The topology as it is now: one immutable snapshot.
    pub(crate) fn topology(&self) -> Arc<Topology> {
        Arc::clone(&self.topology.borrow())
    }

    /// Publishes a changed topology.
    fn update(&self, change: impl FnOnce(&mut Topology)) {
        self.topology.send_modify(|topology| {
            let mut next = Topology::clone(topology);
            change(&mut next);
            *topology = Arc::new(next);
        });
    }

    /// Takes a region away from its clients, or gives it back at once.
    pub(crate) fn set_outage(&self, region: usize, outage: Option<Outage>) {
        self.update(|topology| topology.regions[region].outage = outage);
    }

    /// Cuts a region off from the writes of the others and theirs from its, or
    /// heals it.
    pub(crate) fn set_cut(&self, region: usize, is_cut: bool) {
        self.update(|topology| topology.regions[region].is_cut = is_cut);
    }

    /// Says how long writes of others take to get to a region.
    pub(crate) fn set_delay(&self, region: usize, delay: Duration) {
        self.update(|topology| topology.regions[region].delay = delay);
    }

    /// Returns when a region takes requests of clients again.
    pub(crate) async fn back_online(&self, region: usize) {
        // The sender lives as long as we do, so this ends with the outage.
        let _ = self.topology.subscribe().wait_for(|topology| topology.outage(region).is_none()).await;
    }

    /// Changes the catalog, in every region before this returns. Runs to its
    /// end also when the caller goes away: the lead must not stay ahead.
    pub(crate) async fn change<T, F>(
        self: &Arc<Self>,
        change: impl FnOnce(Arc<Engine>) -> F + Send + 'static,
    ) -> Result<T, Refusal>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Refusal>> + Send + 'static,
    {
        if self.engines.len() == 1 {
            return change(Arc::clone(&self.engines[LEAD])).await;
        }
        let regions = Arc::clone(self);
        let changed = tokio::spawn(async move {
            let _held = regions.catalog.write().await;
            let outcome = change(Arc::clone(&regions.engines[LEAD])).await;
            regions.adopt().await?;
            outcome
        });
        // It ends early only with the runtime.
        changed.await.unwrap_or_else(|_| Err(Refusal::stopping()))
    }

    async fn adopt(&self) -> Result<(), Refusal> {
        for engine in &self.engines[LEAD + 1..] {
            engine.adopt(&self.engines[LEAD]).await?;
        }
        Ok(())
    }

    pub(crate) async fn split(
        self: &Arc<Self>,
        container: &Arc<Container>,
        range: RangeId,
    ) -> Result<[RangeId; 2], Refusal> {
        let container = Arc::clone(container);
        self.change(move |lead| async move { lead.split(&container, range).await }).await
    }

    /// Does now what every region's background does from time to time.
    pub(crate) async fn maintain(self: &Arc<Self>) -> Result<(), Refusal> {
        for region in 0..self.engines.len() {
            self.maintain_region(region).await?;
        }
        Ok(())
    }

    async fn maintain_region(self: &Arc<Self>, region: usize) -> Result<(), Refusal> {
        let engine = &self.engines[region];
        engine.maintain().await?;
        if self.engines.len() == 1 {
            return Ok(());
        }
        if region == LEAD {
            self.split_oversized().await;
        }
        let others = self.links[region].iter().enumerate().filter(|(to, _)| *to != region);
        let everywhere = others.map(|(_, link)| *link.applied.borrow()).min().unwrap_or(0);
        while engine.trim_outbox(everywhere).await? < everywhere {}
        Ok(())
    }

    async fn split_oversized(self: &Arc<Self>) {
        for (container, range) in self.engines[LEAD].oversized() {
            // A single hot key cannot be split further.
            if let Err(refusal) = self.split(&container, range).await {
                tracing::warn!(container = %container.name, range, %refusal.message, "cannot split");
            }
        }
    }

    async fn assign_roles(&self) -> Result<(), Refusal> {
        if self.engines.len() == 1 {
            return Ok(());
        }
        let topology = self.topology();
        for (region, engine) in self.engines.iter().enumerate() {
            engine.set_role(role(&topology, region)).await?;
        }
        Ok(())
    }

    /// Closes the stores once nobody else holds them.
    pub(crate) async fn close(mut self: Arc<Self>) {
        // A move or a change of the catalog that is under way ends first.
        drop((self.relocation.lock().await, self.catalog.write().await));
        for _ in 0..CLOSE_TURNS_MAX {
            match Arc::try_unwrap(self) {
                Ok(regions) => return regions.close_engines(),
                Err(held) => self = held,
            }
            tokio::task::yield_now().await;
        }
        tracing::warn!("a request outlives the server; its store is closed when that ends");
    }

    fn close_engines(self) {
        for engine in self.engines {
            if let Some(engine) = Arc::into_inner(engine) {
                engine.close();
            }
        }
    }
}

fn role(topology: &Topology, region: usize) -> Role {
    Role { writes: topology.may_write(region), expires: topology.write_region == region }
}

/// Drives a region's maintenance until it is aborted.
async fn maintain(regions: Arc<Regions>, region: usize) {
    loop {
        if let Err(refusal) = regions.maintain_region(region).await {
            tracing::warn!(message = %refusal.message, "maintenance failed and will be tried again");
        }
        regions.engines[region].maintenance_due(MAINTENANCE_PAUSE).await;
    }
}
