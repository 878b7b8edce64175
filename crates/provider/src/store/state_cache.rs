//! The state cache: states that this process read or wrote recently, with decoded histories.
//!
//! A cached state may be outdated. A turn that begins from a cached state commits under the
//! etag of that state. A read asks the service whether the etag is still current: if it is,
//! the answer costs 1 RU and has no body. So an outdated state costs a lost turn or a second
//! read, but never gives a wrong result.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use duroxide::Event;

use crate::documents::{State, Versioned};
use crate::sync::lock;

/// The most bytes of cached states and histories, estimated as they are stored. Decoded, they
/// take about twice as much memory.
const CACHE_BYTES_MAX: u64 = 64 << 20;

/// An estimate of the bytes of an entry besides its history and values.
const ENTRY_OVERHEAD_BYTES: u64 = 1024;

/// A state and the whole history of its current execution. The history of a tombstone is empty.
#[derive(Debug)]
pub(crate) struct Snapshot {
    pub(crate) state: Versioned<State>,
    pub(crate) history: Arc<Vec<Event>>,
    /// Whether this process made the commit that wrote the state.
    pub(crate) is_committed_here: bool,
}

impl Snapshot {
    /// An estimate of the stored bytes. Events in the state document count twice.
    fn bytes(&self) -> u64 {
        let state = &self.state.value;
        let values = state.kv.values().chain(state.kv_delta.values().flatten());
        let values: usize = values.map(|value| value.value.stored_bytes()).sum();
        state.execution.event_bytes + state.event_data.len() as u64 + values as u64 + ENTRY_OVERHEAD_BYTES
    }
}

/// The number of writes through [`CosmosDBClient`](crate::client::CosmosDBClient). No
/// provider of this process sees these writes, so each of them invalidates all caches.
static EXTERNAL_WRITES: AtomicU64 = AtomicU64::new(0);

/// Invalidates all caches of this process, after a write that no provider sees.
pub(crate) fn invalidate_all() {
    EXTERNAL_WRITES.fetch_add(1, Ordering::SeqCst);
}

/// Snapshots by instance. The least recently used are removed first.
#[derive(Debug, Default)]
pub(crate) struct StateCache {
    lru: Mutex<Lru>,
}

#[derive(Debug, Default)]
struct Lru {
    /// Snapshots by instance, with the value of `uses` at their last use.
    entries: HashMap<String, (u64, Arc<Snapshot>)>,
    /// Instances by the value of `uses` at their last use.
    order: BTreeMap<u64, String>,
    /// Counts all uses of the cache.
    uses: u64,
    /// Estimated bytes of all entries.
    bytes: u64,
    /// The value of [`EXTERNAL_WRITES`] for which the entries are valid.
    external_writes: u64,
}

impl StateCache {
    /// The snapshot of an instance. Empties the cache first if there were external writes.
    pub(crate) fn get(&self, instance: &str) -> Option<Arc<Snapshot>> {
        let mut lru = lock(&self.lru);
        let external_writes = EXTERNAL_WRITES.load(Ordering::SeqCst);
        if lru.external_writes != external_writes {
            *lru = Lru { external_writes, ..Lru::default() };
        }
        lru.get(instance)
    }

    /// Adds a snapshot, unless the cache has one of a later commit of the same incarnation. So
    /// a slow read does not replace the state of a newer commit.
    pub(crate) fn put(&self, snapshot: Arc<Snapshot>) {
        let mut lru = lock(&self.lru);
        let state = &snapshot.state.value;
        let is_older = lru.entries.get(&state.instance_id).is_some_and(|(_, cached)| {
            let cached = &cached.state.value;
            cached.incarnation == state.incarnation && cached.commit_number > state.commit_number
        });
        if !is_older {
            lru.put(snapshot);
        }
    }

    pub(crate) fn forget(&self, instance: &str) {
        lock(&self.lru).remove(instance);
    }

    /// The estimated bytes of all snapshots, and the limit of these bytes.
    pub(crate) fn bytes(&self) -> (u64, u64) {
        (lock(&self.lru).bytes, CACHE_BYTES_MAX)
    }

    /// Takes the history of a snapshot, and removes the snapshot from the cache if it is still
    /// there. The history is copied only if another task holds the snapshot, too.
    pub(crate) fn take_history(&self, snapshot: Arc<Snapshot>) -> Vec<Event> {
        let mut lru = lock(&self.lru);
        let instance = &snapshot.state.value.instance_id;
        if lru.entries.get(instance).is_some_and(|(_, cached)| Arc::ptr_eq(cached, &snapshot)) {
            lru.remove(instance);
        }
        drop(lru);
        let history = match Arc::try_unwrap(snapshot) {
            Ok(snapshot) => snapshot.history,
            Err(shared) => Arc::clone(&shared.history),
        };
        Arc::unwrap_or_clone(history)
    }
}

impl Lru {
    fn get(&mut self, instance: &str) -> Option<Arc<Snapshot>> {
        self.uses += 1;
        let (last_use, snapshot) = self.entries.get_mut(instance)?;
        self.order.remove(last_use);
        *last_use = self.uses;
        self.order.insert(self.uses, instance.to_owned());
        Some(Arc::clone(snapshot))
    }

    fn put(&mut self, snapshot: Arc<Snapshot>) {
        let instance = snapshot.state.value.instance_id.clone();
        self.remove(&instance);
        self.uses += 1;
        self.bytes += snapshot.bytes();
        self.order.insert(self.uses, instance.clone());
        self.entries.insert(instance, (self.uses, snapshot));
        while self.bytes > CACHE_BYTES_MAX {
            let Some((_, oldest)) = self.order.first_key_value() else { break };
            let oldest = oldest.clone();
            self.remove(&oldest);
        }
    }

    fn remove(&mut self, instance: &str) {
        if let Some((last_use, snapshot)) = self.entries.remove(instance) {
            self.order.remove(&last_use);
            self.bytes -= snapshot.bytes();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use perihelion_client::Etag;

    fn snapshot(instance: &str, incarnation: &str, commit_number: u64, bytes: u64) -> Arc<Snapshot> {
        let mut value = State::blank(instance, incarnation.to_owned());
        (value.commit_number, value.execution.event_bytes) = (commit_number, bytes);
        let state = Versioned { value, etag: Etag::parse("\"1\"").unwrap() };
        Arc::new(Snapshot { state, history: Arc::default(), is_committed_here: false })
    }

    #[test]
    fn a_slow_read_does_not_hide_a_commit() {
        let cache = StateCache::default();
        cache.put(snapshot("a", "1", 5, 0));
        cache.put(snapshot("a", "1", 4, 0));
        assert_eq!(cache.get("a").unwrap().state.value.commit_number, 5);
        cache.put(snapshot("a", "2", 1, 0));
        assert_eq!(
            cache.get("a").unwrap().state.value.commit_number,
            1,
            "a new incarnation replaces the old one, whatever its commit number"
        );
    }

    #[test]
    fn the_least_recently_used_state_is_removed_first() {
        let cache = StateCache::default();
        cache.put(snapshot("a", "1", 1, CACHE_BYTES_MAX / 2));
        cache.put(snapshot("b", "1", 1, CACHE_BYTES_MAX / 4));
        assert!(cache.get("a").is_some());
        cache.put(snapshot("c", "1", 1, CACHE_BYTES_MAX / 3));
        assert!(cache.get("b").is_none());
        assert!(cache.get("a").is_some() && cache.get("c").is_some());
        cache.forget("a");
        cache.forget("c");
        assert_eq!(cache.lru.lock().unwrap().bytes, 0);
    }
}
