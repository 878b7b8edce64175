//! Activities: fetch one, complete it, keep its lock and its session.

pub(crate) mod abandon;
pub(crate) mod ack;
mod activity_lock;
pub(crate) mod fetch;
mod prefetch;
pub(crate) mod renew;
pub(crate) mod sessions;

/// Attempts of a conditional write when the activity document changes under its
/// lock: only renewals of the same token change it.
const ATTEMPTS_MAX: usize = 16;
