//! Management: lists, counts and deletes instances, prunes their past executions, and shows
//! queues, workers and sessions.

pub(crate) mod census;
pub(crate) mod count;
pub(crate) mod delete;
pub(crate) mod list;
pub(crate) mod page;
pub(crate) mod pending;
pub(crate) mod prune;
pub(crate) mod queues;
pub(crate) mod sessions;
pub(crate) mod tree;
pub(crate) mod workers;
