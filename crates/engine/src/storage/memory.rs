//! The store that forgets: a sorted map in memory.
//!
//! It serves tests and in-memory servers, with the same snapshots and the same
//! all-or-nothing commits as the disk store, and no durability. The lock is
//! held for as long as it takes to copy one pointer (a view) or to apply one
//! commit, never while a view is being read: a long query does not hold up
//! writers, and a thread may open a view while it holds another.

use std::ops::ControlFlow;
use std::sync::{PoisonError, RwLock};

use bytes::Bytes;

use super::snapshot_map::SnapshotMap;
use super::{Direction, KeyRange, Store, StoreError, View, Visitor, Write};

/// Everything in one map; gone with the process.
#[derive(Debug, Default)]
pub struct MemoryStore {
    map: RwLock<SnapshotMap<Bytes>>,
}

impl MemoryStore {
    pub fn new() -> MemoryStore {
        MemoryStore::default()
    }
}

impl Store for MemoryStore {
    fn view(&self) -> Result<Box<dyn View + '_>, StoreError> {
        // No code of a caller's runs under the lock and nothing in it fails
        // halfway, so a poisoned lock still guards a whole map.
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
