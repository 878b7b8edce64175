//! The embedded database: commands, partitions, change feed, storage,
//! indexes, charges.
//!
//! [`Engine`] is the door. Reads take one snapshot of the store and one of
//! the catalog; writes are jobs for the group-commit `writer`; what runs in
//! the background ([`maintenance`]) runs only while its owner drives it. The
//! engine speaks JSON values and refusals; it knows no HTTP.
//!
//! ```
//! use perihelion_engine::storage::MemoryStore;
//! use perihelion_engine::{Engine, EngineOptions};
//! use perihelion_model::json::{Value, parse_str};
//!
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! let engine = Engine::open(MemoryStore::new(), EngineOptions::default())?;
//! let Value::Object(body) = parse_str(r#"{"id":"shop"}"#)? else { unreachable!() };
//! let shop = engine.create_database(body, None).await.expect("a new database");
//! assert_eq!(shop.name, "shop");
//! assert!(engine.catalog().database("shop").is_some());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! ```

pub mod admin;
pub mod batch;
pub mod body;
pub mod catalog;
pub mod change_feed;
pub mod charge;
mod clock;
pub mod container;
pub mod document;
pub mod index;
pub mod indexed;
pub mod items;
pub mod keys;
pub mod maintenance;
pub mod query;
pub mod refusal;
pub mod replication;
pub mod scripts;
mod split;
pub mod state;
pub mod storage;
pub mod throttle;
mod transaction;
mod versions;
mod writer;

use std::sync::Arc;

use perihelion_model::json::Object;
use perihelion_model::partition_key::PartitionKey;
use perihelion_model::session_token::{Progress, SessionToken};

pub use clock::Clock;
pub use transaction::Transaction;

use crate::batch::{Batch, BatchAnswer};
use crate::catalog::{Catalog, Database, Offer, Throughput};
use crate::change_feed::{FeedPage, FeedRequest};
use crate::container::{Container, ParsedDefinition};
use crate::index::{Column, IndexScope};
use crate::items::{ItemAnswer, ItemOperation, Precondition, Stamp, Target};
use crate::keys::RangeId;
use crate::query::{QueryPage, QueryRequest};
use crate::refusal::Refusal;
use crate::replication::{RegionId, Replica, Replication};
use crate::state::ContainerState;
use crate::storage::{Store, StoreError, View};
use crate::throttle::{Bucket, Throttle};
use crate::writer::{Shared, Writer};

/// The largest document, system properties included.
pub const ITEM_BYTES_MAX: usize = 2 * 1024 * 1024;

/// Where in which partition an operation happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Position {
    pub range: RangeId,
    pub lsn: u64,
    /// How far each region's writes had come, where there are several.
    pub seen: Option<Arc<[u64]>>,
}

/// How the engine behaves.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct EngineOptions {
    /// Physical partitions of a new container.
    pub partitions: u32,
    /// Units per second of a container that has no offer; `None` turns
    /// throttling off.
    pub throughput: Option<u32>,
    /// A physical partition larger than this is split.
    pub partition_bytes_max: u64,
    pub clock: Clock,
    /// Which of several regions this is; `None` when it is alone.
    pub replica: Option<Replica>,
    /// How many writes may wait for other regions before no more are taken.
    pub outbox_max: u64,
}

/// Ten gibibytes, a fifth of what the service puts into a partition: a split
/// costs nothing here, and a laptop may want to see one.
const PARTITION_BYTES_MAX: u64 = 10 << 30;

impl Default for EngineOptions {
    fn default() -> Self {
        EngineOptions {
            partitions: 1,
            throughput: None,
            partition_bytes_max: PARTITION_BYTES_MAX,
            clock: Clock::system(),
            replica: None,
            outbox_max: replication::OUTBOX_MAX,
        }
    }
}

impl EngineOptions {
    pub fn with_partitions(mut self, partitions: u32) -> Self {
        self.partitions = partitions;
        self
    }

    pub fn with_throughput(mut self, throughput: Option<u32>) -> Self {
        self.throughput = throughput;
        self
    }

    pub fn with_partition_bytes_max(mut self, bytes: u64) -> Self {
        self.partition_bytes_max = bytes;
        self
    }

    pub fn with_replica(mut self, replica: Option<Replica>) -> Self {
        self.replica = replica;
        self
    }

    pub fn with_outbox_max(mut self, writes: u64) -> Self {
        self.outbox_max = writes;
        self
    }

    pub fn with_clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }
}

/// The database.
pub struct Engine {
    shared: Arc<Shared>,
    writer: Writer,
    options: EngineOptions,
    throttle: Throttle,
    maintenance: maintenance::Wishes,
}

impl Engine {
    /// Opens the database that a store holds.
    pub fn open(store: impl Store, options: EngineOptions) -> Result<Self, StoreError> {
        let catalog = Catalog::load(&*store.view()?)?;
        let replication = match options.replica {
            None => None,
            Some(replica) => Some(Replication::open(replica, options.outbox_max, &*store.view()?)?),
        };
        let shared = Arc::new(Shared::new(Box::new(store), catalog, options.clock.clone(), replication));
        let writer = Writer::start(&shared).map_err(|error| StoreError {
            kind: storage::StoreErrorKind::Io,
            message: format!("the writer thread could not be started: {error}"),
        })?;
        Ok(Engine {
            shared,
            writer,
            options,
            throttle: Throttle::default(),
            maintenance: maintenance::Wishes::default(),
        })
    }

    /// Waits for queued writes and closes the store.
    pub fn close(self) {
        self.writer.stop();
    }

    /// The catalog as it is now: one immutable snapshot.
    pub fn catalog(&self) -> Arc<Catalog> {
        self.shared.catalog()
    }

    pub fn clock(&self) -> &Clock {
        &self.shared.clock
    }

    fn view(&self) -> Result<Box<dyn View + '_>, Refusal> {
        Ok(self.shared.store.view()?)
    }

    /// Runs a job on the writer; returns when it is durable.
    pub async fn write<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Transaction<'_>) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, Refusal> {
        self.writer.run(&self.shared, job).await
    }

    /// The counters of a container.
    pub fn state(&self, container: &Container) -> Result<ContainerState, Refusal> {
        state_in(&*self.view()?, container)
    }

    pub fn read_item(
        &self,
        target: &Target,
        id: &str,
        precondition: &Precondition,
        session: &[SessionToken],
    ) -> Result<ItemAnswer, Refusal> {
        let view = self.view()?;
        let state = state_in(&*view, &target.container)?;
        check_session(&target.container, &state, session, &[target.range.id])?;
        items::read(&*view, target, id, precondition, &state, self.shared.clock.seconds())
    }

    /// The id of a document that is addressed by the counter in its `_rid`.
    pub fn id_of(&self, target: &Target, rid: u64) -> Result<Option<String>, Refusal> {
        let key = keys::document(target.container.number(), target.range.segment, rid);
        let record = self.view()?.get(&key)?;
        let document =
            record.as_ref().and_then(document::StoredDocument::decode).map(|document| document.value());
        Ok(document.as_ref().and_then(|document| document.get("id")?.as_str()).map(str::to_owned))
    }

    /// Refuses a session that is ahead of what this region has of a range:
    /// what writes ask for where several regions take them, so that a write is
    /// made over all that its writer has seen.
    pub fn check_session(
        &self,
        container: &Container,
        range: RangeId,
        session: &[SessionToken],
    ) -> Result<(), Refusal> {
        if session.is_empty() {
            return Ok(());
        }
        check_session(container, &self.state(container)?, session, &[range])
    }

    pub async fn write_item(
        &self,
        container: &Arc<Container>,
        key: PartitionKey,
        operation: ItemOperation,
        precondition: Precondition,
    ) -> Result<ItemAnswer, Refusal> {
        let (container, door) = (Arc::clone(container), self.write_door());
        self.write(move |transaction| {
            door.check()?;
            let container = admin::current(transaction, &container)?;
            let target = Target::resolve(&container, key)?;
            let position = transaction.state(container.number())?.position(target.range.id);
            items::perform(transaction, &target, operation, &precondition, &mut Stamp::default())
                .map_err(|refusal| refusal.at(position))
        })
        .await
    }

    pub async fn batch(&self, container: &Arc<Container>, batch: Batch) -> Result<BatchAnswer, Refusal> {
        let (container, door) = (Arc::clone(container), self.write_door());
        self.write(move |transaction| {
            door.check()?;
            let container = admin::current(transaction, &container)?;
            batch::perform(transaction, &container, batch)
        })
        .await
    }

    pub fn change_feed(
        &self,
        container: &Container,
        request: &FeedRequest,
        session: &[SessionToken],
    ) -> Result<FeedPage, Refusal> {
        let view = self.view()?;
        let state = state_in(&*view, container)?;
        check_session(container, &state, session, &[request.range])?;
        change_feed::read(&*view, container, &state, request, self.shared.clock.seconds())
    }

    /// Answers a page of a query, and remembers which index it would have liked.
    pub fn query(
        &self,
        container: &Arc<Container>,
        request: &QueryRequest,
        session: &[SessionToken],
    ) -> Result<QueryPage, Refusal> {
        let view = self.view()?;
        let state = state_in(&*view, container)?;
        let ranges = request.scope.range_ids(container);
        check_session(container, &state, session, &ranges)?;
        let page = query::execute(&*view, container, &state, request, self.shared.clock.seconds())?;
        if let Some(wish) = &page.wish {
            self.maintenance.wish(container.number(), wish.clone());
        }
        Ok(page)
    }

    pub async fn create_database(
        &self,
        body: Object,
        throughput: Option<Throughput>,
    ) -> Result<Arc<Database>, Refusal> {
        self.write(move |transaction| admin::create_database(transaction, &body, throughput)).await
    }

    pub async fn delete_database(&self, name_or_rid: &str) -> Result<(), Refusal> {
        let name = name_or_rid.to_owned();
        self.write(move |transaction| admin::delete_database(transaction, &name)).await?;
        self.maintenance.wake();
        Ok(())
    }

    pub async fn create_container(
        &self,
        database: &str,
        definition: ParsedDefinition,
        throughput: Option<Throughput>,
    ) -> Result<Arc<Container>, Refusal> {
        let (database, partitions) = (database.to_owned(), self.options.partitions);
        self.write(move |transaction| {
            admin::create_container(transaction, &database, definition, throughput, partitions)
        })
        .await
    }

    pub async fn replace_container(
        &self,
        container: &Arc<Container>,
        definition: ParsedDefinition,
    ) -> Result<Arc<Container>, Refusal> {
        let container = Arc::clone(container);
        let changed = self
            .write(move |transaction| admin::replace_container(transaction, &container, definition))
            .await?;
        self.maintenance.wake();
        Ok(changed)
    }

    pub async fn delete_container(&self, container: &Arc<Container>) -> Result<(), Refusal> {
        let container = Arc::clone(container);
        self.write(move |transaction| admin::delete_container(transaction, &container)).await?;
        self.maintenance.wake();
        Ok(())
    }

    pub async fn replace_offer(&self, rid: &str, throughput: Throughput) -> Result<Arc<Offer>, Refusal> {
        let rid = rid.to_owned();
        self.write(move |transaction| admin::replace_offer(transaction, &rid, throughput)).await
    }

    /// Starts logging versions, before the full-fidelity feed is read.
    pub async fn log_versions(&self, container: &Arc<Container>) -> Result<(), Refusal> {
        if container.logs_versions {
            return Ok(());
        }
        let container = Arc::clone(container);
        self.write(move |transaction| admin::log_versions(transaction, &container)).await
    }

    /// Splits a physical partition; returns the ids of its children.
    pub async fn split(&self, container: &Arc<Container>, range: RangeId) -> Result<[RangeId; 2], Refusal> {
        let container = Arc::clone(container);
        self.write(move |transaction| split::split(transaction, &container, range)).await
    }

    /// Deletes every document of a logical partition; returns how many.
    pub async fn delete_partition(
        &self,
        container: &Arc<Container>,
        key: PartitionKey,
    ) -> Result<u64, Refusal> {
        let (container, door) = (Arc::clone(container), self.write_door());
        self.write(move |transaction| {
            door.check()?;
            let container = admin::current(transaction, &container)?;
            let target = Target::resolve(&container, key)?;
            maintenance::delete_partition(transaction, &target)
        })
        .await
    }

    /// Builds an index now and returns when it can be used.
    pub async fn build_index(
        &self,
        container: &Arc<Container>,
        scope: IndexScope,
        columns: Vec<Column>,
    ) -> Result<(), Refusal> {
        maintenance::build_index(self, container.number(), scope, columns).await
    }

    /// Lets a request of this partition in, or refuses it with 429.
    pub fn admit(&self, container: &Container, range: RangeId) -> Result<Option<Bucket>, Refusal> {
        let Some((bucket, units)) = self.bucket(container, range) else { return Ok(None) };
        self.throttle.admit(bucket, units, self.shared.clock.elapsed())?;
        Ok(Some(bucket))
    }

    /// Takes what a request that was let in has cost.
    pub fn spend(&self, bucket: Option<Bucket>, charge: f64) {
        if let Some(bucket) = bucket {
            self.throttle.spend(bucket, charge);
        }
    }

    fn bucket(&self, container: &Container, range: RangeId) -> Option<(Bucket, f64)> {
        let default = self.options.throughput?;
        let catalog = self.catalog();
        let ranges = container.ranges.len() as f64;
        let own = catalog.offer_for(&container.rid_text);
        let shared = catalog.offer_for(&container.rid.database.to_text());
        let partition = Bucket::Partition(container.number(), range);
        Some(match (own, shared) {
            (Some(offer), _) => (partition, offer.throughput.request_units() as f64 / ranges),
            (None, Some(offer)) => {
                (Bucket::Database(container.rid.database.0), offer.throughput.request_units() as f64)
            }
            (None, None) => (partition, f64::from(default) / ranges),
        })
    }

    /// Does what waits in the background once: expired documents, deleted
    /// containers, oversized partitions, wanted indexes.
    pub async fn maintain(&self) -> Result<(), Refusal> {
        maintenance::run_once(self).await
    }

    /// Returns when there may be something to maintain, or after `pause`.
    pub async fn maintenance_due(&self, pause: std::time::Duration) {
        self.maintenance.due(pause).await;
    }
}

fn state_in(view: &dyn View, container: &Container) -> Result<ContainerState, Refusal> {
    let record = view.get(&keys::state(container.number()))?;
    record.and_then(|record| ContainerState::decode(&record)).ok_or_else(Refusal::no_such_resource)
}

/// Refuses a session token from the future. A token of a range that was split
/// is held against its children, which went on from its LSN.
fn check_session(
    container: &Container,
    state: &ContainerState,
    session: &[SessionToken],
    ranges: &[RangeId],
) -> Result<(), Refusal> {
    for token in session {
        let Ok(id) = token.range.parse::<RangeId>() else { continue };
        for range in ranges {
            let concerns =
                *range == id || container.range(*range).is_some_and(|range| range.parents.contains(&id));
            if concerns && !has_seen(state, *range, &token.progress) {
                return Err(Refusal::session_not_available().with_charge(1.0).at(state.position(*range)));
            }
        }
    }
    Ok(())
}

/// Whether all that a client saw of a range is here. Where there are several
/// regions, that is how far each region's writes have come.
fn has_seen(state: &ContainerState, range: RangeId, progress: &Progress) -> bool {
    if state.regions == 0 || progress.regions.is_empty() {
        return progress.lsn <= state.lsn(range);
    }
    progress.regions.iter().all(|theirs| match u8::try_from(theirs.region) {
        Ok(region) if region < state.regions => {
            theirs.lsn <= i64::try_from(state.seen(range, RegionId(region))).unwrap_or(i64::MAX)
        }
        // A region that this account does not have has written nothing.
        _ => true,
    })
}
