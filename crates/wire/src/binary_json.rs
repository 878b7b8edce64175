//! Cosmos binary JSON: reading every form that a client may send, writing the
//! form that the official SDK writes.
//!
//! A buffer is the format byte `0x80` and one value: a marker byte and its
//! payload, little-endian throughout. The reader is strict (whatever runs past
//! its parent, does not add up or has no JSON form is refused) and its memory
//! is bounded by the bytes it was given, not by the lengths they declare.

mod decode;
mod encode;
mod marker;
mod text;

pub use decode::decode;
pub use encode::encode;

use perihelion_model::json::Value;

/// How deep a value may lie, the top one being at depth 0: 256 containers
/// around a scalar. The text parser has its own, smaller limit; a document
/// that must be readable as text has to be held against that one too.
pub const BINARY_DEPTH_MAX: usize = 256;

/// How much memory a buffer may ask for beyond what its own bytes carry, by
/// naming a string twice or declaring empty arrays. A document has 2 MiB and
/// a page little more, so honest buffers stay far below.
pub const EXPANSION_BYTES_MIN: usize = 8 * 1024 * 1024;

/// The same for large buffers, as a multiple of their length.
pub const EXPANSION_FACTOR: usize = 16;

/// Whether a body is binary JSON. UTF-8 text cannot begin with this byte.
pub fn is_binary(body: &[u8]) -> bool {
    body.first() == Some(&marker::FORMAT)
}

/// How many containers a value nests: 0 for a scalar. The value came from a
/// parser that bounds its depth, which bounds this recursion.
pub fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(object) => 1 + object.iter().map(|(_, member)| depth(member)).max().unwrap_or(0),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

/// Why a buffer is not acceptable binary JSON, and at which byte.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BinaryError {
    pub offset: usize,
    pub reason: &'static str,
}

impl std::fmt::Display for BinaryError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} at byte {} of binary JSON", self.reason, self.offset)
    }
}

impl std::error::Error for BinaryError {}
