//! Tests of the server through its HTTP interface, over real sockets (in
//! `regions::in_process` without sockets). All tests are in one binary, so that it is
//! linked once.

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
mod range_faults;
mod regions;
mod transactions;
mod world;
