//! Routing: the account's regions, the containers' ranges, circuit breakers, partitions that
//! have failed over, latencies, the budget of hedges, and the stage that picks a region.
//!
//! Snapshots are immutable: a change returns the next snapshot, and `topology`
//! publishes it. Only latencies and hedges are counted in place, and shared by all snapshots.
//! There is no randomness and no I/O in this module. Only `topology` reads the clock, when it wakes
//! the background task.

pub(crate) mod account;
pub(crate) mod circuit_breaker;
pub(crate) mod hedge_budget;
pub(crate) mod latency;
pub(crate) mod partition_failover;
pub(crate) mod ranges;
pub(crate) mod resolve;
pub(crate) mod topology;
