//! The values that a DISTINCT has seen.

use std::collections::HashSet;

use perihelion_model::json::Value;

use crate::order::canonical_key;

/// The values seen so far by a DISTINCT.
#[derive(Debug, Default)]
pub struct DistinctValues {
    seen: HashSet<Vec<u8>>,
    bytes: usize,
}

impl DistinctValues {
    /// Remembers the value; returns whether it is new.
    pub fn insert(&mut self, value: &Value) -> bool {
        let key = canonical_key(Some(value));
        let bytes = key.len() + size_of::<Vec<u8>>();
        let is_new = self.seen.insert(key);
        if is_new {
            self.bytes += bytes;
        }
        is_new
    }

    /// Roughly how many bytes of memory the values take.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}
