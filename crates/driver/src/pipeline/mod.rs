//! The operation pipeline.

pub(crate) mod verdict;
