//! Repair: the reconciler, and the removal of documents that nothing needs any more.

pub(crate) mod fenced_delete;
pub(crate) mod garbage;
pub(crate) mod purge;
pub(crate) mod reconcile;
pub(crate) mod retain;
