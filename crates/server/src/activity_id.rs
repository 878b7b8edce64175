//! Activity ids: a version 4 UUID per request, from a cheap generator that is
//! seeded once. The ids are unique, not secret.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

/// Makes activity ids.
pub(crate) struct ActivityIds {
    state: AtomicU64,
}

impl ActivityIds {
    pub(crate) fn new() -> Self {
        ActivityIds { state: AtomicU64::new(RandomState::new().hash_one("activity")) }
    }

    pub(crate) fn next(&self) -> String {
        let seed = self.state.fetch_add(2, Ordering::Relaxed);
        let (high, low) = (mix(seed), mix(seed.wrapping_add(1)));
        let (a, b, c) = (high >> 32, (high >> 16) & 0xFFFF, high & 0x0FFF);
        let (d, e) = ((low >> 48) & 0x3FFF | 0x8000, low & 0xFFFF_FFFF_FFFF);
        format!("{a:08x}-{b:04x}-4{c:03x}-{d:04x}-{e:012x}")
    }
}

/// SplitMix64's finish.
fn mix(seed: u64) -> u64 {
    let mut z = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_uuids_and_differ() {
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
