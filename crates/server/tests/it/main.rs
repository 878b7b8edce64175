//! Tests of the server through its HTTP interface, over real sockets (in
//! `regions::in_process` without sockets). All tests are in one binary, so that it is
//! linked once.

mod access;
mod bad_input;
mod batches;
mod change_feeds;
mod charges;
mod colliding_keys;
mod compat;
mod computed_properties;
mod conformance;
mod former_containers;
mod items;
mod management;
mod metrics;
mod multi_region;
mod overload;
mod partitions;
mod queries;
mod range_faults;
mod regions;
mod resume_filters;
mod search;
mod service_answers;
mod transactions;
mod world;
