//! The nouns that every other crate speaks of: JSON values, resource ids,
//! partition keys and their hashes, session tokens, etags. No I/O, no clock.

pub mod calendar;
pub mod etag;
pub mod json;
mod murmur;
pub mod partition_key;
pub mod resource_id;
pub mod session_token;
pub mod uuid;
