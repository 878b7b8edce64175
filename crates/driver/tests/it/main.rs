//! The driver's integration tests, one binary.

mod transport;
