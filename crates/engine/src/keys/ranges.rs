//! Ranges of keys.

use std::ops::{Bound, ControlFlow};

use crate::storage::{Direction, KeyRange, StoreError, View};

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

    /// Up to `limit` keys of this range, in order.
    pub(crate) fn first_keys(&self, view: &dyn View, limit: usize) -> Result<Vec<Vec<u8>>, StoreError> {
        let mut found = Vec::new();
        view.scan(self.as_range(), Direction::Forward, &mut |key, _| {
            found.push(key.to_vec());
            if found.len() >= limit { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        Ok(found)
    }
}
