//! Keys that are stored inside their node when they are short.
//!
//! A search compares about six keys per node. If keys were stored behind pointers,
//! each comparison would be a cache miss and each new key an allocation. Most keys of
//! the engine are short (`keys.rs`), so they are stored in place.

use std::ops::Deref;

use bytes::Bytes;

/// The bytes of the longest key that is stored in place. With its length and the tag of the
/// enum such a key fills 48 bytes. Keys of documents and of feed entries fit. Keys of partition
/// members fit if the name of the logical partition (`keys/logical_partition.rs`) has at most 33
/// bytes.
const SHORT_BYTES_MAX: usize = 46;

/// A key, stored in place when it is short.
#[derive(Debug, Clone)]
pub(in crate::storage) enum Key {
    Short(u8, [u8; SHORT_BYTES_MAX]),
    Long(Bytes),
}

impl Key {
    pub(super) const EMPTY: Key = Key::Short(0, [0; SHORT_BYTES_MAX]);
}

impl From<&[u8]> for Key {
    fn from(bytes: &[u8]) -> Self {
        if bytes.len() > SHORT_BYTES_MAX {
            return Key::Long(Bytes::copy_from_slice(bytes));
        }
        let mut bytes_in_place = [0; SHORT_BYTES_MAX];
        bytes_in_place[..bytes.len()].copy_from_slice(bytes);
        Key::Short(bytes.len() as u8, bytes_in_place)
    }
}

impl Deref for Key {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Key::Short(len, bytes) => &bytes[..usize::from(*len)],
            Key::Long(bytes) => bytes,
        }
    }
}
