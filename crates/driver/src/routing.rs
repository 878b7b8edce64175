//! Routing: the account's regions, the containers' ranges, circuit breakers,
//! latencies, and the stage that picks a region from them.
//!
//! Snapshots are immutable: a change returns the next snapshot, and `topology`
//! publishes it. Only latencies are counted in place, and shared by all snapshots.
//! There is no clock, no randomness and no I/O in this module.

pub(crate) mod account;
pub(crate) mod circuit_breaker;
pub(crate) mod latency;
pub(crate) mod ranges;
pub(crate) mod resolve;
pub(crate) mod topology;
