//! Activity ids: a version 4 UUID for each request of the data plane. An id is made of
//! two keyed hashes of a counter, with random keys. Ids practically never repeat, and
//! they are not secret.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

use perihelion_model::uuid::Uuid;

/// Makes activity ids.
pub(crate) struct ActivityIds {
    keys: RandomState,
    counter: AtomicU64,
}

impl ActivityIds {
    pub(crate) fn new() -> Self {
        ActivityIds { keys: RandomState::new(), counter: AtomicU64::new(0) }
    }

    pub(crate) fn next(&self) -> String {
        let count = self.counter.fetch_add(2, Ordering::Relaxed);
        let bits = |count: u64| u128::from(self.keys.hash_one(count));
        let id = Uuid::from_random(bits(count) << 64 | bits(count.wrapping_add(1)));
        id.text().into_iter().map(char::from).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_version_4_uuids_and_differ() {
        let activity_ids = ActivityIds::new();
        let ids: std::collections::HashSet<String> = (0..1000).map(|_| activity_ids.next()).collect();
        assert_eq!(ids.len(), 1000);
        for id in ids {
            assert_eq!(id.len(), 36);
            assert_eq!(&id[14..15], "4");
            assert!(matches!(&id[19..20], "8" | "9" | "a" | "b"), "{id}");
        }
    }
}
