//! Management: list, count, delete and prune instances.

pub(crate) mod count;
pub(crate) mod delete;
pub(crate) mod list;
pub(crate) mod page;
pub(crate) mod prune;
