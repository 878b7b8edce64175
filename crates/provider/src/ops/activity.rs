//! Activities: fetch one, complete it, keep its lock and its session.

pub(crate) mod abandon;
pub(crate) mod ack;
pub(crate) mod fetch;
mod held_lock;
mod prefetch;
pub(crate) mod renew;
pub(crate) mod sessions;

/// The most attempts of a conditional write. The activity document changes under its
/// lock only when the same token is renewed.
const ATTEMPTS_MAX: usize = 16;
