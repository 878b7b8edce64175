//! The checks, an area per file.

pub(crate) mod batches;
pub(crate) mod change_feeds;
pub(crate) mod cross_partition_queries;
pub(crate) mod faults;
pub(crate) mod items;
pub(crate) mod keys;
pub(crate) mod our_client;
pub(crate) mod preconditions;
pub(crate) mod queries;
pub(crate) mod ranges;
pub(crate) mod resources;
pub(crate) mod server;
pub(crate) mod transaction_comparison;
pub(crate) mod transaction_replays;
pub(crate) mod transactions;
pub(crate) mod transport;
