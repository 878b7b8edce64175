//! Cosmos binary JSON. The decoder accepts every form that clients send. It does not
//! support strings that are written as an index into a dictionary outside of the buffer. The
//! encoder writes the form that the official SDK writes.
//!
//! A buffer is the format byte `0x80` and one value: a marker byte and its
//! payload, little-endian throughout. A *container* is an array or an object. The decoder is
//! strict: it refuses a value that runs past its container, has a wrong length or count, or
//! cannot be JSON. The memory that the decoder takes is at most a multiple of the buffer's size plus
//! [`EXPANSION_BYTES_MIN`], whatever lengths the buffer declares.

mod decode;
mod encode;
mod marker;
mod text;

pub use decode::decode;
pub use encode::encode;

use perihelion_model::json::Value;

/// The most arrays and objects around a value. The text parser has a smaller limit. A
/// document that must be readable as text has to respect that limit too.
pub const BINARY_DEPTH_MAX: usize = 256;

/// References to strings and empty rows of uniform arrays have few or no bytes in the
/// buffer, but take memory when they are decoded. All of them together may take this many
/// bytes of memory, even if the buffer is short. A document has at most 2 MiB and a page little
/// more, so valid buffers stay far below the limit.
pub const EXPANSION_BYTES_MIN: usize = 8 * 1024 * 1024;

/// The memory that references and empty rows may take in a large buffer, as a multiple of
/// its length. The higher of this limit and [`EXPANSION_BYTES_MIN`] applies.
pub const EXPANSION_FACTOR: usize = 16;

/// Whether a body is binary JSON. UTF-8 text cannot begin with the format byte.
pub fn is_binary(body: &[u8]) -> bool {
    body.first() == Some(&marker::FORMAT)
}

/// How many arrays and objects a value nests: 0 for a scalar. The function may
/// recurse, because values come from parsers that bound their depth.
pub fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(object) => 1 + object.iter().map(|(_, member)| depth(member)).max().unwrap_or(0),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

/// Why a buffer is not valid binary JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BinaryError {
    /// The offset at which the decoder found the error.
    pub offset: usize,
    /// What is wrong.
    pub reason: &'static str,
}

impl std::fmt::Display for BinaryError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} at byte {} of binary JSON", self.reason, self.offset)
    }
}

impl std::error::Error for BinaryError {}
