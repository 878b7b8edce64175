//! The embedded database: commands, partitions, change feed, storage, indexes, charges.

pub mod storage;
