//! Ranges of keys.

use std::ops::{Bound, ControlFlow};

use crate::storage::{Direction, KeyRange, StoreError, View};

/// The bytes of keys after which [`OwnedKeyRange::first_keys`] takes no further key. Earlier versions
/// wrote index keys of up to 2 MB, and the keys are in memory at once and are removed in one commit.
const FIRST_KEYS_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The smallest key that is greater than all keys with this prefix. There always is such a key,
/// because the first byte of a prefix names the kind of the key and is below 0xFF.
pub(crate) fn after_prefix(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.last_mut() {
        if *last < 0xFF {
            *last += 1;
            return end;
        }
        end.pop();
    }
    end
}

/// A [`KeyRange`] that owns its bounds.
#[derive(Debug, Clone)]
pub(crate) struct OwnedKeyRange {
    pub from: Bound<Vec<u8>>,
    pub to: Bound<Vec<u8>>,
}

impl OwnedKeyRange {
    /// All keys with a prefix.
    pub(crate) fn prefix(prefix: &[u8]) -> Self {
        OwnedKeyRange { from: Bound::Included(prefix.to_vec()), to: Bound::Excluded(after_prefix(prefix)) }
    }

    /// The keys with a prefix that are greater than `key`.
    pub(crate) fn prefix_after(prefix: &[u8], key: &[u8]) -> Self {
        OwnedKeyRange { from: Bound::Excluded(key.to_vec()), to: Bound::Excluded(after_prefix(prefix)) }
    }

    /// The keys from `from` (included) to `to` (excluded).
    pub(crate) fn between(from: &[u8], to: &[u8]) -> Self {
        OwnedKeyRange { from: Bound::Included(from.to_vec()), to: Bound::Excluded(to.to_vec()) }
    }

    pub(crate) fn as_range(&self) -> KeyRange<'_> {
        KeyRange { from: self.from.as_ref().map(Vec::as_slice), to: self.to.as_ref().map(Vec::as_slice) }
    }

    /// The first keys of this range, in order: at most `limit`, and no further key once they have
    /// [`FIRST_KEYS_BYTES_MAX`] bytes. Empty only if the range has no keys or `limit` is 0.
    pub(crate) fn first_keys(&self, view: &dyn View, limit: usize) -> Result<Vec<Vec<u8>>, StoreError> {
        let (mut found, mut bytes) = (Vec::new(), 0);
        if limit == 0 {
            return Ok(found);
        }
        view.scan(self.as_range(), Direction::Forward, &mut |key, _| {
            found.push(key.to_vec());
            bytes += key.len();
            if found.len() >= limit || bytes >= FIRST_KEYS_BYTES_MAX {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        })?;
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::{MemoryStore, Store, Write};

    /// Story of a bug: 5,000 index keys of a megabyte were read at once, to be removed in one commit.
    #[test]
    fn first_keys_end_at_a_number_of_keys_or_of_bytes() {
        let store = MemoryStore::new();
        let keys: Vec<Vec<u8>> = (0..10).map(|n| [vec![1, n], vec![0; 1024 * 1024]].concat()).collect();
        store.commit(&mut keys.iter().map(|key| Write { key, value: Some(&[]) })).unwrap();
        let view = store.view().unwrap();
        let count = |limit| OwnedKeyRange::prefix(&[1]).first_keys(&*view, limit).unwrap().len();
        assert_eq!([count(0), count(3), count(5000)], [0, 3, 4]);
    }
}
