//! The driver's integration tests, one binary.
//! The driver against the real engine and server.

mod pipeline;
mod transport;
mod world;
