//! Activities: fetch one, complete it, keep its lock and its session.

pub(crate) mod abandon;
pub(crate) mod ack;
pub(crate) mod fetch;
mod held_lock;
pub(crate) mod prefetch;
pub(crate) mod renew;
pub(crate) mod sessions;

/// The most attempts of a conditional write of an activity under its lock. The write is
/// attempted again if a renewal with the same token has changed the document. Any other change
/// of the document ends the lock.
const ATTEMPTS_MAX: usize = 16;
