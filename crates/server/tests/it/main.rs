//! The server as its clients see it: one test binary, real sockets.

mod access;
mod bad_input;
mod batches;
mod change_feeds;
mod charges;
mod compat;
mod conformance;
mod items;
mod management;
mod multi_region;
mod partitions;
mod queries;
mod regions;
mod world;
