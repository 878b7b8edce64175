//! Background maintenance: removing expired documents, the documents of deleted
//! containers, old tombstones, old logged versions and old entries of the transaction
//! ledger, splitting large ranges, building missing indexes, removing retired ones.
//!
//! Maintenance has no thread of its own. The engine's owner awaits
//! [`Backlog::due`] and then calls [`run_once`], both through `Engine`. When the owner
//! stops, so does maintenance. The work is done in small jobs of the writer. Each job leaves
//! the database consistent, so maintenance may stop after any job.

mod documents;
mod expiry;
mod indexes;
mod purge;
mod splits;
mod versions;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Notify;

pub(crate) use self::indexes::build_index;
pub(crate) use self::splits::oversized_ranges;
use crate::index::IndexShape;
use crate::keys::{self, ContainerNumber, OwnedKeyRange};
use crate::refusal::Refusal;
use crate::writer::StoreHandle;

/// The most entries (documents, expiry entries, keys to purge) that one job works on, so
/// that a client's write never waits long for a job of maintenance.
const ENTRIES_PER_JOB_MAX: usize = 1000;
/// A job ends when it has worked on this many bytes of documents. To parse them takes less
/// than ten milliseconds.
const BYTES_PER_JOB_MAX: usize = 1024 * 1024;
/// The most missing indexes that are remembered. A further missing index is not remembered: the
/// next query that would use it reports it again.
const MISSING_INDEXES_MAX: usize = 16;

/// The name of a value that is written to find out whether the disk has room.
const ROOM_CHECK: &str = "room-check";

/// The work that queries and commands leave for maintenance.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    missing_indexes: Mutex<VecDeque<(ContainerNumber, IndexShape)>>,
    /// When the version logs of split ranges were last pruned, in seconds since 1970.
    split_ranges_pruned_at: AtomicU64,
    wake: Notify,
}

impl Backlog {
    /// Remembers an index that a query would have used, if there is room, and wakes
    /// maintenance.
    pub(crate) fn add_missing_index(&self, container: ContainerNumber, shape: IndexShape) {
        let mut missing = self.missing_indexes.lock().unwrap_or_else(PoisonError::into_inner);
        if missing.len() < MISSING_INDEXES_MAX && !missing.contains(&(container, shape.clone())) {
            missing.push_back((container, shape));
        }
        drop(missing);
        self.wake();
    }

    /// Ends the wait in [`Backlog::due`]. If no task waits, the next wait ends at once.
    pub(crate) fn wake(&self) {
        self.wake.notify_one();
    }

    /// Returns when [`Backlog::wake`] is called, or was called before, or after `pause`.
    pub(crate) async fn due(&self, pause: Duration) {
        let _ = tokio::time::timeout(pause, self.wake.notified()).await;
    }

    /// Whether the version logs of split ranges are to be pruned now. If so, the next time is after
    /// [`versions::SPLIT_RANGES_PAUSE_SECONDS`].
    fn begin_pruning_split_ranges(&self, now: u64) -> bool {
        let last = self.split_ranges_pruned_at.load(Ordering::Relaxed);
        let is_due = now.abs_diff(last) >= versions::SPLIT_RANGES_PAUSE_SECONDS;
        if is_due {
            self.split_ranges_pruned_at.store(now, Ordering::Relaxed);
        }
        is_due
    }

    fn next_missing_index(&self) -> Option<(ContainerNumber, IndexShape)> {
        self.missing_indexes.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }
}

/// Does all background work that is due. A part that fails does not stop the other parts. For example,
/// removing expired documents fails as long as the outbox is full. Only a full disk stops all parts.
/// Returns the first failure. The next call does what is left.
pub(crate) async fn run_once(
    store: &StoreHandle,
    backlog: &Backlog,
    partition_bytes_max: u64,
    ledger_age: Duration,
) -> Result<(), Refusal> {
    if store.is_full() {
        // The smallest commit shows whether the disk has room again.
        store
            .write(|transaction| {
                transaction.put(keys::named_value(ROOM_CHECK), Bytes::new());
                Ok(())
            })
            .await?;
    }
    let mut outcome = expiry::update_expiry_lists(store).await;
    if store.replication().is_none_or(|replication| replication.removes_expired()) {
        outcome = outcome.and(expiry::remove_expired(store).await);
    }
    outcome = outcome.and(purge::purge_deleted_containers(store).await);
    outcome = outcome.and(purge::purge_ledger(store, ledger_age).await);
    outcome = outcome.and(versions::prune_versions(store, backlog).await);
    if store.replication().is_some() {
        outcome = outcome.and(purge::purge_tombstones(store).await);
    } else {
        splits::split_oversized(store, partition_bytes_max).await;
    }
    while let Some((container, shape)) = backlog.next_missing_index() {
        outcome = outcome.and(build_index(store, container, shape).await);
    }
    outcome = outcome.and(indexes::finish_indexes(store).await);
    outcome.and(indexes::remove_retired_indexes(store).await)
}

/// The container of the first key with this prefix.
fn first_container(store: &StoreHandle, prefix: &[u8]) -> Result<Option<ContainerNumber>, Refusal> {
    let first = OwnedKeyRange::prefix(prefix).first_keys(&*store.view()?, 1)?;
    Ok(first.first().and_then(|key| keys::parse_container(key)))
}
