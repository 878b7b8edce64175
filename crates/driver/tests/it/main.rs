//! The driver's integration tests, one binary, against the real engine and
//! server.

mod credentials;
mod pipeline;
mod telemetry;
mod transport;
mod transport_deadlines;
mod transport_failures;
mod transport_limits;
mod transport_peers;
mod world;
