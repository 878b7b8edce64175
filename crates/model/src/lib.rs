//! The data types that server and client share: JSON values, resource ids, partition
//! keys and their hashes, session tokens, etags, UUIDs, calendar dates, times as text,
//! metrics. No I/O and no clock.

#![warn(missing_docs)]

pub mod calendar;
pub mod etag;
pub mod json;
pub mod metrics;
mod murmur;
pub mod partition_key;
pub mod resource_id;
pub mod session_token;
pub mod timestamp;
pub mod uuid;
