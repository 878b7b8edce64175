//! The in-memory store: a sorted map that is lost when the process ends.
//!
//! It serves tests and in-memory servers, with the same snapshots and atomic
//! commits as the disk store. The lock is held only to copy one pointer (to open a view)
//! or to apply one commit, never while a view is being read. So a long query
//! does not delay writers, and a thread that reads a view may open a second one.

use std::ops::ControlFlow;
use std::sync::{PoisonError, RwLock};

use bytes::Bytes;

use super::snapshot_map::SnapshotMap;
use super::{Direction, KeyRange, Store, StoreError, View, Visitor, Write};

/// A store in memory, without durability.
#[derive(Debug, Default)]
pub struct MemoryStore {
    map: RwLock<SnapshotMap<Bytes>>,
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> MemoryStore {
        MemoryStore::default()
    }
}

impl Store for MemoryStore {
    fn view(&self) -> Result<Box<dyn View + '_>, StoreError> {
        // No caller's code runs under the lock and no change fails halfway, so
        // the map is consistent even when the lock is poisoned.
        let map = self.map.read().unwrap_or_else(PoisonError::into_inner);
        Ok(Box::new(MemoryView { map: map.clone() }))
    }

    fn commit(&self, writes: &mut dyn Iterator<Item = Write<'_>>) -> Result<(), StoreError> {
        // The caller's iterator runs before the lock is taken: it may read
        // from a view, and if it panics nothing has been applied.
        let writes: Vec<(&[u8], Option<Bytes>)> =
            writes.map(|write| (write.key, write.value.map(Bytes::copy_from_slice))).collect();
        let mut map = self.map.write().unwrap_or_else(PoisonError::into_inner);
        for (key, value) in writes {
            match value {
                Some(value) => map.insert(key, value),
                None => map.remove(key),
            }
        }
        Ok(())
    }

    fn is_durable(&self) -> bool {
        false
    }
}

struct MemoryView {
    map: SnapshotMap<Bytes>,
}

impl View for MemoryView {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        Ok(self.map.get(key).cloned())
    }

    fn scan(
        &self,
        range: KeyRange<'_>,
        direction: Direction,
        visit: &mut Visitor<'_>,
    ) -> Result<(), StoreError> {
        for (key, value) in self.map.range(range, direction) {
            if let ControlFlow::Break(()) = visit(key, value) {
                break;
            }
        }
        Ok(())
    }
}
