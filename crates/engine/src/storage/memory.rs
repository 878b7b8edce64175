//! The store that forgets: a sorted map in memory.
//!
//! It serves tests and `--in-memory` servers, with the same snapshots and the
//! same all-or-nothing commits as the disk store, and no durability. A view is
//! a read guard, so a commit waits for open views; views must be short.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

use bytes::Bytes;

use super::{Direction, KeyRange, Store, StoreError, View, Visitor, Write};

type Map = BTreeMap<Box<[u8]>, Bytes>;

/// Everything in one map; gone with the process.
#[derive(Debug, Default)]
pub struct MemoryStore {
    map: RwLock<Map>,
}

impl MemoryStore {
    pub fn new() -> MemoryStore {
        MemoryStore::default()
    }
}

impl Store for MemoryStore {
    fn view(&self) -> Result<Box<dyn View + '_>, StoreError> {
        // Commits cannot panic halfway (see below), so a poisoned lock still
        // guards a whole map.
        let map = self.map.read().unwrap_or_else(PoisonError::into_inner);
        Ok(Box::new(MemoryView { map }))
    }

    fn commit(&self, writes: &mut dyn Iterator<Item = Write<'_>>) -> Result<(), StoreError> {
        // The caller's iterator runs before the lock is taken: it may read
        // from a view, and if it panics nothing has been applied.
        let writes: Vec<(Box<[u8]>, Option<Bytes>)> =
            writes.map(|write| (write.key.into(), write.value.map(Bytes::copy_from_slice))).collect();
        let mut map = self.map.write().unwrap_or_else(PoisonError::into_inner);
        for (key, value) in writes {
            match value {
                Some(value) => map.insert(key, value),
                None => map.remove(&key),
            };
        }
        Ok(())
    }

    fn is_durable(&self) -> bool {
        false
    }
}

struct MemoryView<'a> {
    map: RwLockReadGuard<'a, Map>,
}

impl View for MemoryView<'_> {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        Ok(self.map.get(key).cloned())
    }

    fn scan(
        &self,
        range: KeyRange<'_>,
        direction: Direction,
        visit: &mut Visitor<'_>,
    ) -> Result<(), StoreError> {
        if range.is_empty() {
            return Ok(());
        }
        let mut entries = self.map.range::<[u8], _>((range.from, range.to));
        loop {
            let entry = match direction {
                Direction::Forward => entries.next(),
                Direction::Backward => entries.next_back(),
            };
            let Some((key, value)) = entry else { break };
            if let ControlFlow::Break(()) = visit(key, value) {
                break;
            }
        }
        Ok(())
    }
}

impl KeyRange<'_> {
    /// Whether no key can be in the range. The maps underneath panic on
    /// bounds that are the wrong way round; for a store they are just empty.
    pub(super) fn is_empty(&self) -> bool {
        match (self.from, self.to) {
            (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
            (Bound::Included(from), Bound::Included(to)) => from > to,
            (Bound::Included(from) | Bound::Excluded(from), Bound::Excluded(to))
            | (Bound::Excluded(from), Bound::Included(to)) => from >= to,
        }
    }
}
