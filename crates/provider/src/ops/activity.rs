//! Activities: fetch one, complete it, keep its lock and its session.

pub(crate) mod abandon;
pub(crate) mod ack;
pub(crate) mod fetch;
pub(crate) mod prefetch;
pub(crate) mod renew;
pub(crate) mod sessions;
