//! Management: lists, counts and deletes instances, and prunes their past executions.

pub(crate) mod count;
pub(crate) mod delete;
pub(crate) mod list;
pub(crate) mod page;
pub(crate) mod pending;
pub(crate) mod prune;
