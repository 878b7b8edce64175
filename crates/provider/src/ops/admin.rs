//! Management: lists, counts and deletes instances, prunes their past executions, shows
//! queues, workers, locks and sessions, and examines an account and a container.
//!
//! `page` and `census` implement `CosmosDBProvider::list` and `CosmosDBProvider::count`. `list` and
//! `count` implement methods of duroxide's `ProviderAdmin`.

pub(crate) mod census;
pub(crate) mod cost;
pub(crate) mod count;
pub(crate) mod delete;
pub(crate) mod examine;
pub(crate) mod list;
pub(crate) mod locks;
pub(crate) mod overdue;
pub(crate) mod page;
pub(crate) mod pending;
pub(crate) mod prune;
pub(crate) mod queues;
pub(crate) mod recorded_start;
pub(crate) mod sessions;
pub(crate) mod tree;
pub(crate) mod workers;
