//! Routing: the account's regions, the containers' ranges, circuit breakers,
//! latencies, and the stage that picks a region from them.
//!
//! Snapshots are immutable: a transition returns the next snapshot, and
//! `topology` publishes it. There is no clock, no randomness and no I/O here.

pub(crate) mod account;
pub(crate) mod circuit_breaker;
pub(crate) mod latency;
pub(crate) mod ranges;
pub(crate) mod resolve;
pub(crate) mod topology;
