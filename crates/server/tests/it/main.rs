//! The server as its clients see it: one test binary, real sockets.

mod access;
mod bad_input;
mod batches;
mod change_feeds;
mod charges;
mod client;
mod compat;
mod conformance;
mod harness;
mod items;
mod management;
mod partitions;
mod planet;
mod queries;
mod regions;
mod world;
