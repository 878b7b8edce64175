//! Test support that several crates share. It is a dev-dependency and is never
//! published.
//!
//! Modules without a feature depend on no other crate: seeded random numbers ([`random`]),
//! directories and names of a test's own ([`scratch`]), the files of the checkout
//! ([`repository`]) and of `conformance/` ([`conformance`]), the tests that a document names
//! ([`named_tests`]), the examples as programs ([`examples`]), a checker of transaction
//! histories ([`history`]), and different partition keys with the same hash
//! ([`colliding_keys`]). The features `server`, `driver`, `client` and `provider` add running
//! servers, their faults and regions, and what connects to them. The feature `wait` adds a
//! function that waits for a condition.

#![warn(missing_docs)]

pub mod colliding_keys;
pub mod conformance;
pub mod examples;
pub mod history;
pub mod named_tests;
pub mod random;
pub mod repository;
pub mod scratch;

#[cfg(feature = "client")]
mod client;
#[cfg(feature = "driver")]
pub mod driver;
#[cfg(feature = "server")]
pub mod faults;
#[cfg(feature = "server")]
pub mod http_client;
#[cfg(feature = "server")]
pub mod management;
#[cfg(feature = "provider")]
pub mod provider;
#[cfg(feature = "server")]
pub mod regions;
#[cfg(feature = "server")]
pub mod server;
#[cfg(feature = "wait")]
pub mod wait;

pub use random::Random;
pub use scratch::ScratchDirectory;
#[cfg(feature = "server")]
pub use server::TestServer;
