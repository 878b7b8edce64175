//! A transaction: a snapshot, and the writes on top of it.
//!
//! The jobs of one group run one after the other on the same transaction and see
//! each other's writes. Each job runs in [`Transaction::attempt`]: its writes are
//! held in a layer of their own until it succeeds, so a refused job leaves nothing.
//! Within a job, an atomic batch runs in one more attempt. Each operation of a batch that is
//! not atomic runs in an attempt of its own.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use perihelion_model::json::{self, Style, Value};
use perihelion_wire::status;

use crate::catalog::{Catalog, Container};
use crate::keys::{self, ContainerNumber, OwnedKeyRange};
use crate::prepared::PreparedDocuments;
use crate::refusal::{Layer, Refusal};
use crate::region::Replica;
use crate::state::ContainerState;
use crate::storage::{Direction, StoreError, View, Write};

/// Writes by key: the new value, or `None` for a removal.
type Overlay = BTreeMap<Vec<u8>, Option<Bytes>>;

/// The most work that the writer does in one job to evaluate the conditions of patches, in units of
/// about 100 ns: about half a millisecond. All other writes wait for this work.
const WRITER_CONDITION_WORK_MAX: u64 = 5_000;

/// The view and the writes of a group of jobs.
pub(crate) struct Transaction<'v> {
    view: Box<dyn View + 'v>,
    /// The writes of the group first, then those of the running job, then those of
    /// the attempts within the job.
    layers: Vec<Overlay>,
    /// The catalog with the changes of this group so far.
    pub catalog: Arc<Catalog>,
    /// The work that the running job may still do for conditions of patches.
    pub condition_work_left: u64,
    /// The documents that were parsed before the running job reached the writer.
    pub prepared: Arc<PreparedDocuments>,
    /// How many bytes of documents the running job may still parse.
    parsed_bytes_left: usize,
    /// How many bytes of documents the jobs of this group have parsed.
    pub parsed_bytes: u64,
    /// Seconds since 1970, one reading for the whole group.
    pub now: u64,
    /// The time of `now` in milliseconds since 1970.
    pub now_milliseconds: u64,
    /// The region of this engine; `None` in an account with one region.
    pub replica: Option<Replica>,
}

impl<'v> Transaction<'v> {
    pub(crate) fn new(
        view: Box<dyn View + 'v>,
        catalog: Arc<Catalog>,
        unix_time: Duration,
        replica: Option<Replica>,
    ) -> Self {
        let (now, now_milliseconds) = (unix_time.as_secs(), unix_time.as_millis() as u64);
        let layers = vec![Overlay::new()];
        Transaction {
            view,
            layers,
            catalog,
            condition_work_left: 0,
            prepared: Arc::default(),
            parsed_bytes_left: usize::MAX,
            parsed_bytes: 0,
            now,
            now_milliseconds,
            replica,
        }
    }

    /// Gives the running job the documents that were parsed before. From now on the job may parse
    /// at most `parsed_bytes_max` bytes of other documents.
    pub(crate) fn use_prepared(&mut self, prepared: Arc<PreparedDocuments>, parsed_bytes_max: usize) {
        self.prepared = prepared;
        self.parsed_bytes_left = parsed_bytes_max;
    }

    /// Counts the bytes of a document that the running job is about to parse. Refuses the job if
    /// the bytes exceed the limit that [`Transaction::use_prepared`] set. In that case documents of
    /// the job have changed since they were parsed.
    pub(crate) fn spend_parsing(&mut self, bytes: usize) -> Result<(), Refusal> {
        self.parsed_bytes_left = self.parsed_bytes_left.checked_sub(bytes).ok_or_else(|| {
            Refusal::new(
                status::RETRY_WITH,
                Layer::Backend,
                "The document changed while its next version was prepared. Try again.",
            )
        })?;
        self.parsed_bytes += bytes as u64;
        Ok(())
    }

    /// The value of a key, this transaction's writes included.
    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        match self.layers.iter().rev().find_map(|layer| layer.get(key)) {
            Some(written) => Ok(written.clone()),
            None => self.view.get(key),
        }
    }

    pub(crate) fn put(&mut self, key: Vec<u8>, value: impl Into<Bytes>) {
        self.top().insert(key, Some(value.into()));
    }

    pub(crate) fn remove(&mut self, key: Vec<u8>) {
        self.top().insert(key, None);
    }

    /// The layer that takes writes now.
    fn top(&mut self) -> &mut Overlay {
        let top = self.layers.len() - 1;
        &mut self.layers[top]
    }

    /// Up to `limit` entries of a range of keys, this transaction's writes included.
    pub(crate) fn entries(
        &self,
        key_range: &OwnedKeyRange,
        limit: usize,
    ) -> Result<Vec<(Vec<u8>, Bytes)>, StoreError> {
        self.entries_within(key_range, limit, usize::MAX)
    }

    /// Up to `limit` entries of a range of keys, this transaction's writes included. The entry at
    /// which the stored values exceed `bytes_max` is the last entry. Values that this transaction
    /// wrote do not count.
    pub(crate) fn entries_within(
        &self,
        key_range: &OwnedKeyRange,
        limit: usize,
        bytes_max: usize,
    ) -> Result<Vec<(Vec<u8>, Bytes)>, StoreError> {
        let written = self.written(key_range);
        let mut found: BTreeMap<Vec<u8>, Bytes> = BTreeMap::new();
        let mut bytes = 0;
        self.view.scan(key_range.as_range(), Direction::Forward, &mut |key, value| {
            if !written.contains_key(key) {
                bytes += value.len();
                found.insert(key.to_vec(), Bytes::copy_from_slice(value));
            }
            let is_full = found.len() >= limit || bytes > bytes_max;
            if is_full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        let last = found.last_key_value().map(|(key, _)| key.clone()).filter(|_| bytes > bytes_max);
        let added = written.into_iter().filter_map(|(key, value)| Some((key.to_vec(), value.clone()?)));
        found.extend(added);
        // A scan that stopped at `bytes_max` has not seen the keys after `last`. The written keys
        // after `last` are left out too, so that the result has no gap.
        let is_before_end = |key: &[u8]| last.as_deref().is_none_or(|last| key <= last);
        Ok(found.into_iter().take(limit).take_while(|(key, _)| is_before_end(key)).collect())
    }

    /// The number of entries of a range of keys, this transaction's writes included, or `limit` if
    /// there are more.
    pub(crate) fn count(&self, key_range: &OwnedKeyRange, limit: usize) -> Result<usize, StoreError> {
        let written = self.written(key_range);
        let mut count = written.values().filter(|value| value.is_some()).count();
        self.view.scan(key_range.as_range(), Direction::Forward, &mut |key, _| {
            count += usize::from(!written.contains_key(key));
            if count >= limit { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        Ok(count.min(limit))
    }

    /// What this transaction wrote in a range of keys.
    fn written(&self, key_range: &OwnedKeyRange) -> BTreeMap<&[u8], &Option<Bytes>> {
        let bounds = (key_range.from.clone(), key_range.to.clone());
        let mut written: BTreeMap<&[u8], &Option<Bytes>> = BTreeMap::new();
        for overlay in &self.layers {
            written.extend(overlay.range(bounds.clone()).map(|(key, value)| (key.as_slice(), value)));
        }
        written
    }

    /// The container as this transaction sees it; refused when it was deleted.
    pub(crate) fn current(&self, container: &Container) -> Result<Arc<Container>, Refusal> {
        self.catalog.container_by_number(container.number()).cloned().ok_or_else(Refusal::no_such_resource)
    }

    /// Writes a record as JSON.
    pub(crate) fn put_record(&mut self, key: Vec<u8>, record: &Value) {
        self.put(key, json::to_text(record, Style::Point));
    }

    /// The counters of a container.
    pub(crate) fn state(&self, container: ContainerNumber) -> Result<ContainerState, Refusal> {
        let record = self.get(&keys::container_state(container))?;
        record.and_then(|record| ContainerState::decode(&record)).ok_or_else(Refusal::no_such_resource)
    }

    pub(crate) fn put_state(&mut self, container: ContainerNumber, state: &ContainerState) {
        self.put(keys::container_state(container), state.encode());
    }

    /// Runs a job. When it is refused or panics, its writes and its change of the catalog are
    /// undone. The outer error is a panic, which the panic hook has reported.
    pub(crate) fn run_job<T>(
        &mut self,
        job: impl FnOnce(&mut Self) -> Result<T, Refusal>,
    ) -> Result<Result<T, Refusal>, JobPanicked> {
        self.condition_work_left = WRITER_CONDITION_WORK_MAX;
        self.use_prepared(Arc::default(), usize::MAX);
        let (depth, catalog) = (self.layers.len(), Arc::clone(&self.catalog));
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| self.attempt(job)));
        outcome.map_err(|_| {
            // The job changed only the layers that it pushed, the catalog, and values that the next
            // job sets anew.
            self.layers.truncate(depth);
            self.catalog = catalog;
            JobPanicked
        })
    }

    /// Runs a job, or part of one. When it is refused, its writes and its change of the
    /// catalog are undone.
    pub(crate) fn attempt<T>(
        &mut self,
        part: impl FnOnce(&mut Self) -> Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        let depth = self.layers.len();
        let catalog = Arc::clone(&self.catalog);
        self.layers.push(Overlay::new());
        let outcome = part(self);
        debug_assert_eq!(self.layers.len(), depth + 1, "an attempt within this one has not ended");
        let written = self.layers.split_off(depth);
        match &outcome {
            Ok(_) => self.top().extend(written.into_iter().flatten()),
            Err(_) => self.catalog = catalog,
        }
        outcome
    }

    /// Ends the transaction; returns the writes to commit, and the new catalog.
    pub(crate) fn into_writes(mut self) -> (Writes, Arc<Catalog>) {
        (Writes(std::mem::take(self.top())), self.catalog)
    }
}

/// A job panicked: a defect of this program.
#[derive(Debug)]
pub(crate) struct JobPanicked;

/// The writes of a group.
pub(crate) struct Writes(Overlay);

impl Writes {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The value that is written under a key, if any.
    pub(crate) fn get(&self, key: &[u8]) -> Option<&Bytes> {
        self.0.get(key)?.as_ref()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Write<'_>> {
        self.0.iter().map(|(key, value)| Write { key, value: value.as_deref() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::{MemoryStore, Store};

    /// The transaction sees nine stored entries of 100 bytes and two entries that it wrote itself.
    #[test]
    fn entries_and_counts_stop_at_their_limits() {
        let store = MemoryStore::new();
        let stored: Vec<Vec<u8>> = (0..9u8).map(|n| vec![1, n]).collect();
        let value = [0; 100];
        store.commit(&mut stored.iter().map(|key| Write { key, value: Some(&value) })).unwrap();
        let mut transaction = Transaction::new(store.view().unwrap(), Arc::default(), Duration::ZERO, None);
        transaction.put(vec![1, 0, 1], Bytes::new());
        transaction.put(vec![1, 7, 1], Bytes::new());
        let all = OwnedKeyRange::prefix(&[1]);
        let keys_within = |limit, bytes| {
            let entries = transaction.entries_within(&all, limit, bytes).unwrap();
            entries.into_iter().map(|(key, _)| key).collect::<Vec<_>>()
        };
        assert_eq!(keys_within(99, 250), [vec![1, 0], vec![1, 0, 1], vec![1, 1], vec![1, 2]]);
        assert_eq!(keys_within(2, 250), [vec![1, 0], vec![1, 0, 1]]);
        assert_eq!(keys_within(99, usize::MAX).len(), 11);
        transaction.remove(vec![1, 3]);
        assert_eq!([3, 10, 99].map(|limit| transaction.count(&all, limit).unwrap()), [3, 10, 10]);
    }
}
