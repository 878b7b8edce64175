//! The operation pipeline.

pub(crate) mod backoff;
pub(crate) mod evaluate;
pub(crate) mod throttle;
pub(crate) mod verdict;
