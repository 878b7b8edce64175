//! The server as its clients see it: one test binary, real sockets.

mod client;
mod conformance;
mod harness;
