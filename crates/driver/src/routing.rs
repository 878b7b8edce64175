//! Where operations go: the account's regions, the containers' ranges, circuit
//! breakers, and the stage that turns them into a route.
//!
//! All of it is immutable data and functions of it: a transition returns the
//! next snapshot, whoever calls it publishes that. No clock, no chance, no I/O.

pub(crate) mod account;
pub(crate) mod circuit_breaker;
pub(crate) mod latency;
pub(crate) mod ranges;
pub(crate) mod resolve;
pub(crate) mod topology;
