//! The engine: the operations of the database, each a call into the module
//! that implements it.

mod catalog;
mod distributed;
mod options;
mod prepare;
mod replication;
mod throughput;
mod users;

use std::sync::Arc;

use perihelion_model::json::Value;
use perihelion_model::partition_key::PartitionKey;
use perihelion_model::session_token::SessionToken;
use perihelion_wire::status;

pub use self::options::EngineOptions;
use self::prepare::PREPARATIONS_MAX;
use crate::catalog::{Catalog, Container};
use crate::clock::Clock;
use crate::documents::{
    self, Batch, BatchOutcome, FeedMode, FeedPage, FeedRequest, FeedStart, ItemOperation, ItemOutcome,
    PartitionRest, Precondition, StoredDocument, Target, WriteStamps,
};
use crate::index::IndexShape;
use crate::keys::{self, RangeId};
use crate::layout;
use crate::maintenance::{self, Backlog};
use crate::pace::{Pace, PageLimits};
use crate::query::{self, QueryPage, QueryRequest};
use crate::refusal::Refusal;
use crate::replication::{Replication, WriteGate};
use crate::session::check_session;
use crate::state::ContainerState;
use crate::storage::{Store, StoreError};
use crate::throttle::Throttle;
use crate::transaction::Transaction;
use crate::writer::{StoreHandle, state_in};

/// The open data of one account, in one region.
pub struct Engine {
    store: StoreHandle,
    options: EngineOptions,
    throttle: Throttle,
    backlog: Backlog,
}

/// Whether a store takes writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Health {
    /// The store takes writes.
    Ok,
    /// The disk had no room for the last commit. A later commit may succeed. Each call of
    /// [`Engine::maintain`] tries a small one.
    Full,
    /// A commit or a checkpoint failed. The store takes no writes until it is opened again. The
    /// text says what failed.
    Failed(String),
}

impl Engine {
    /// Opens the data that a store holds. An empty store is an account without
    /// databases.
    pub fn open(store: impl Store, options: EngineOptions) -> Result<Self, StoreError> {
        layout::upgrade(&store)?;
        let replication = match options.replica {
            None => None,
            Some(replica) => Some(Replication::open(replica, options.outbox_max, &*store.view()?)?),
        };
        let store = StoreHandle::open(Box::new(store), options.clock.clone(), replication)?;
        Ok(Engine { store, options, throttle: Throttle::default(), backlog: Backlog::default() })
    }

    /// Waits for queued writes and closes the store.
    pub fn close(self) {
        self.store.close();
    }

    /// The catalog as it is now: one immutable snapshot.
    pub fn catalog(&self) -> Arc<Catalog> {
        self.store.catalog()
    }

    /// The clock that the engine reads.
    pub fn clock(&self) -> &Clock {
        self.store.clock()
    }

    /// The counters of a container.
    pub fn state(&self, container: &Container) -> Result<ContainerState, Refusal> {
        self.store.state(container)
    }

    /// Reads one document.
    pub fn read_item(
        &self,
        target: &Target,
        id: &str,
        precondition: &Precondition,
        session: &[SessionToken],
    ) -> Result<ItemOutcome, Refusal> {
        let view = self.store.view()?;
        let state = state_in(&*view, &target.container)?;
        check_session(&target.container, &state, session, &[target.range.id])?;
        documents::read_item(&*view, target, id, precondition, &state, self.clock().seconds())
    }

    /// The id of the document whose `_rid` has this counter, expired or not. `None` if the
    /// target's logical partition has no such document.
    pub fn id_of(&self, target: &Target, rid: u64) -> Result<Option<String>, Refusal> {
        let key = keys::document(target.container.number(), target.range.segment, rid);
        let record = self.store.view()?.get(&key)?;
        let document = record.as_ref().and_then(StoredDocument::decode);
        let document =
            document.filter(|document| target.has_key_of(document)).map(|document| document.value());
        Ok(document
            .as_ref()
            .and_then(|document| document.get("id"))
            .and_then(Value::as_str)
            .map(str::to_owned))
    }

    /// Refuses the request if one of its session tokens for this range is ahead of this
    /// region. With several write regions the server calls this for writes too: a region
    /// accepts a client's write only after it has applied every write that the client
    /// has seen.
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

    /// Performs a write operation on one item. If the operation is refused, the refusal has the
    /// position that the range had before the operation.
    pub async fn write_item(
        &self,
        container: &Arc<Container>,
        key: PartitionKey,
        operation: ItemOperation,
        precondition: Precondition,
    ) -> Result<ItemOutcome, Refusal> {
        let mut preparations = 1;
        loop {
            let mut operation = operation.clone();
            let prepared = self.prepare_item(container, &key, &mut operation)?;
            // These clones share the large values, so the values are freed here and not by the writer.
            // Freeing them takes time, and all writes wait for the writer.
            let _kept = (prepared.clone(), operation.clone());
            let (key, precondition) = (key.clone(), precondition.clone());
            let written = self.write_documents(container, move |transaction, container, gate| {
                prepared.give_to(transaction);
                let target = Target::resolve(container, key)?;
                gate.check_range(container, target.range.id)?;
                let position = transaction.state(container.number())?.position(target.range.id);
                let mut stamps = WriteStamps::default();
                documents::perform_item(transaction, &target, operation, &precondition, &mut stamps)
                    .map_err(|refusal| refusal.at(position))
            });
            match written.await {
                Err(refusal) if is_stale(&refusal) && preparations < PREPARATIONS_MAX => preparations += 1,
                outcome => return outcome,
            }
        }
    }

    /// Performs a batch.
    pub async fn batch(&self, container: &Arc<Container>, batch: Batch) -> Result<BatchOutcome, Refusal> {
        let mut preparations = 1;
        loop {
            let mut batch = batch.clone();
            let prepared = self.prepare_batch(container, &mut batch)?;
            // As in `write_item`: the large values are freed here and not by the writer.
            let _kept = (prepared.clone(), batch.clone());
            let is_last = preparations == PREPARATIONS_MAX;
            let written = self.write_documents(container, move |transaction, container, gate| {
                prepared.give_to(transaction);
                // With exceptions, this region accepts the writes of some ranges only.
                if gate.has_exceptions() {
                    gate.check_range(container, batch.range(container)?)?;
                }
                let outcome = documents::perform_batch(transaction, container, batch)?;
                let stale =
                    outcome.results.iter().filter_map(|result| result.as_ref().err()).find(is_stale_ref);
                match stale {
                    // Nothing of the batch is written, and it is prepared again.
                    Some(refusal) if !is_last => Err(refusal.clone()),
                    _ => Ok(outcome),
                }
            });
            match written.await {
                Err(refusal) if is_stale(&refusal) && !is_last => preparations += 1,
                outcome => return outcome,
            }
        }
    }

    /// Deletes the documents that a logical partition has now. Returns the number of deleted
    /// documents. A small partition is deleted by one write, a large one by several, so that
    /// other writes do not wait for it. Expired documents are left to maintenance and not counted.
    pub async fn delete_partition(
        &self,
        container: &Arc<Container>,
        key: PartitionKey,
    ) -> Result<u64, Refusal> {
        let (mut count, mut rest) = (0, Some(PartitionRest::default()));
        while let Some(part) = rest {
            let key = key.clone();
            let delete =
                move |transaction: &mut Transaction<'_>, container: &Arc<Container>, gate: &WriteGate| {
                    let target = Target::resolve(container, key)?;
                    gate.check_range(container, target.range.id)?;
                    documents::delete_partition(transaction, &target, part)
                };
            let (deleted, left) = self.write_documents(container, delete).await?;
            count += deleted;
            rest = left;
        }
        Ok(count)
    }

    /// Runs a job that writes documents. The job gets the container as it is when the
    /// job runs, and asks the gate whether this region accepts writes of the job's range. The
    /// write is refused when this region accepts no writes, when its outbox is full, or when
    /// the container was deleted.
    async fn write_documents<T: Send + 'static>(
        &self,
        container: &Arc<Container>,
        job: impl FnOnce(&mut Transaction<'_>, &Arc<Container>, &WriteGate) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, Refusal> {
        let (container, gate) = (Arc::clone(container), self.store.write_gate());
        self.store
            .write(move |transaction| {
                gate.check()?;
                let container = transaction.current(&container)?;
                job(transaction, &container, &gate)
            })
            .await
    }

    /// Reads a page of the change feed.
    pub fn change_feed(
        &self,
        container: &Container,
        request: &FeedRequest,
        session: &[SessionToken],
    ) -> Result<FeedPage, Refusal> {
        self.change_feed_within(container, request, session, PageLimits::default())
    }

    /// Reads a page of the change feed within limits. A page that ends early may have no items
    /// and a continuation before the newest write.
    pub fn change_feed_within(
        &self,
        container: &Container,
        request: &FeedRequest,
        session: &[SessionToken],
        limits: PageLimits<'_>,
    ) -> Result<FeedPage, Refusal> {
        let pace = Pace::start(self.clock(), limits);
        let view = self.store.view()?;
        let state = state_in(&*view, container)?;
        check_session(container, &state, session, &[request.range])?;
        if let (FeedMode::AllVersionsAndDeletes, FeedStart::After(lsn)) = (request.mode, &request.start) {
            documents::check_retention(&*view, container, request.range, *lsn)?;
        }
        documents::read_change_feed(&*view, container, &state, request, &pace, self.clock().seconds())
    }

    /// Runs a query for one page. If an index would have helped, maintenance is told
    /// about it, and builds it unless the container has too many indexes.
    pub fn query(
        &self,
        container: &Arc<Container>,
        request: &QueryRequest,
        session: &[SessionToken],
    ) -> Result<QueryPage, Refusal> {
        self.query_within(container, request, session, PageLimits::default())
    }

    /// Runs a query for one page within limits. A page that ends early may have no rows and a
    /// continuation.
    pub fn query_within(
        &self,
        container: &Arc<Container>,
        request: &QueryRequest,
        session: &[SessionToken],
        limits: PageLimits<'_>,
    ) -> Result<QueryPage, Refusal> {
        let pace = Pace::start(self.clock(), limits);
        let view = self.store.view()?;
        let state = state_in(&*view, container)?;
        let ranges = request.scope.range_ids(container);
        check_session(container, &state, session, &ranges)?;
        let page = query::execute(&*view, container, &state, request, &pace, self.clock().seconds())?;
        if let Some(shape) = &page.missing_index {
            self.backlog.add_missing_index(container.number(), shape.clone());
        }
        Ok(page)
    }

    /// How many bytes of documents the writer has parsed since the engine was opened. All writes
    /// wait for the writer, so nearly all documents are parsed before they reach it.
    pub fn bytes_parsed_by_writer(&self) -> u64 {
        self.store.parsed_bytes()
    }

    /// Builds an index now and returns when the index is ready. Returns `Ok` at once, without
    /// building anything, if the container was deleted, if it has as many indexes as it may have,
    /// or if the index exists already. In the last case the index may not be ready yet.
    pub async fn build_index(&self, container: &Arc<Container>, shape: IndexShape) -> Result<(), Refusal> {
        maintenance::build_index(&self.store, container.number(), shape).await
    }

    /// Does the background work that is due: removes expired documents, the documents of deleted
    /// containers, old logged versions, and old entries of the transaction ledger; splits oversized
    /// ranges; builds missing indexes and removes retired ones. With several regions three things
    /// differ: only one region removes expired documents ([`Role`](crate::Role)), old tombstones are
    /// removed too, and the server splits the ranges.
    pub async fn maintain(&self) -> Result<(), Refusal> {
        let ledger_age = self.options.ledger.age;
        maintenance::run_once(&self.store, &self.backlog, self.options.partition_bytes_max, ledger_age).await
    }

    /// Whether the store takes writes.
    pub fn health(&self) -> Health {
        match self.store.failure() {
            Some(reason) => Health::Failed(reason),
            None if self.store.is_full() => Health::Full,
            None => Health::Ok,
        }
    }

    /// Returns when a change of the catalog (such as a deleted container) or a query has left
    /// work for maintenance, or after `pause`. Expired documents and oversized ranges do
    /// not end the wait early.
    pub async fn maintenance_due(&self, pause: std::time::Duration) {
        self.backlog.due(pause).await;
    }
}

/// Whether a write is refused because its documents have changed since it was prepared.
fn is_stale(refusal: &Refusal) -> bool {
    refusal.status == status::RETRY_WITH.code
}

fn is_stale_ref(refusal: &&Refusal) -> bool {
    is_stale(refusal)
}
