//! The client's integration tests. The scenarios run unchanged on the engine in
//! this process, on our server over TLS, and, with `--ignored`, on the live account in
//! `PERIHELION_LIVE_CONNECTION_STRING`. `examples` and `processes` run the programs in `examples/`.
//! `certificates` uses a server over TLS. The other tests use the engine in this
//! process, most of them with faults or counters. All tests are in one binary, because
//! linking a binary takes long.

mod account;
mod answers;
mod bulk;
mod certificates;
mod change_feed_regions;
mod change_feeds;
mod deadlines;
mod examples;
mod futures;
mod lost_creates;
mod lost_responses;
mod missing_containers;
mod odd_pages;
mod odd_writes;
mod plans;
mod processes;
mod processor_leases;
mod processors;
mod queries;
mod repeated_writes;
mod request_options;
mod scenarios;
mod scripted_account;
mod transaction_answers;
mod transaction_contention;
mod transaction_replays;
mod transactions;
mod world;
