//! The handle through which the engine and its maintenance use the store:
//! snapshots for reads, the group-commit writer for writes.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, RwLock};

use super::{Shared, Writer};
use crate::catalog::{AccountCounters, Catalog, Container};
use crate::clock::Clock;
use crate::keys;
use crate::refusal::Refusal;
use crate::replication::{Replication, WriteGate};
use crate::state::ContainerState;
use crate::storage::{Store, StoreError, StoreErrorKind, View};
use crate::transaction::Transaction;

/// An open store with its catalog and its writer.
pub(crate) struct StoreHandle {
    shared: Arc<Shared>,
    writer: Writer,
}

impl StoreHandle {
    pub(crate) fn open(
        store: Box<dyn Store>,
        clock: Clock,
        replication: Option<Replication>,
    ) -> Result<Self, StoreError> {
        let mut catalog = Catalog::load(&*store.view()?)?;
        if store.view()?.get(&keys::account())?.is_none() {
            catalog.account = AccountCounters::of_new_account(clock.unix_time());
        }
        let shared = Arc::new(Shared {
            store,
            catalog: RwLock::new(Arc::new(catalog)),
            clock,
            failure: OnceLock::new(),
            is_full: AtomicBool::new(false),
            parsed_bytes: AtomicU64::new(0),
            replication: replication.map(Arc::new),
        });
        let writer = Writer::start(&shared).map_err(|error| StoreError {
            kind: StoreErrorKind::Io,
            message: format!("the writer thread could not be started: {error}"),
        })?;
        Ok(StoreHandle { shared, writer })
    }

    /// Waits for queued writes and closes the store.
    pub(crate) fn close(self) {
        self.writer.stop();
    }

    pub(crate) fn view(&self) -> Result<Box<dyn View + '_>, Refusal> {
        Ok(self.shared.store.view()?)
    }

    pub(crate) fn catalog(&self) -> Arc<Catalog> {
        self.shared.catalog()
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.shared.clock
    }

    /// Why the store takes no writes any more, until the process starts again.
    pub(crate) fn failure(&self) -> Option<String> {
        self.shared.failure()
    }

    /// Whether the disk had no room for the last commit.
    pub(crate) fn is_full(&self) -> bool {
        self.shared.is_full.load(Ordering::SeqCst)
    }

    /// How many bytes of documents the writer has parsed since the store was opened.
    pub(crate) fn parsed_bytes(&self) -> u64 {
        self.shared.parsed_bytes.load(Ordering::Relaxed)
    }

    /// The counters of a container.
    pub(crate) fn state(&self, container: &Container) -> Result<ContainerState, Refusal> {
        state_in(&*self.view()?, container)
    }

    /// The role and outbox positions of this region; `None` in an account with one region.
    pub(crate) fn replication(&self) -> Option<&Replication> {
        self.shared.replication.as_deref()
    }

    /// The check that a job must pass before it writes documents for a client or removes
    /// expired documents.
    pub(crate) fn write_gate(&self) -> WriteGate {
        WriteGate::new(self.shared.replication.clone())
    }

    /// Runs a job on the writer; returns when its writes are durable.
    pub(crate) async fn write<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Transaction<'_>) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, Refusal> {
        self.writer.run(&self.shared, job).await
    }
}

/// The counters of a container in a snapshot. Refused if the container was deleted.
pub(crate) fn state_in(view: &dyn View, container: &Container) -> Result<ContainerState, Refusal> {
    let record = view.get(&keys::container_state(container.number()))?;
    record.and_then(|record| ContainerState::decode(&record)).ok_or_else(Refusal::no_such_resource)
}
