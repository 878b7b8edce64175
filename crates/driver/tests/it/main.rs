//! The driver's integration tests, one binary.

mod chaos;
mod chaos_stories;
mod credentials;
mod doubt;
mod hedging;
mod learning;
mod lessons;
mod opening;
mod pipeline;
mod planet;
mod telemetry;
mod transport;
mod transport_deadlines;
mod transport_failures;
mod transport_limits;
mod transport_peers;
mod world;
