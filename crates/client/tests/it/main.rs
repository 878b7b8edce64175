//! The client's integration tests. The scenarios run unchanged on the engine in
//! this process, on our server over TLS, and on a live account when
//! `PERIHELION_LIVE_CONNECTION_STRING` names one. The other tests need faults and
//! counters and use the engine in this process. All are one binary, which links
//! once.

mod account;
mod change_feeds;
mod examples;
mod futures;
mod lost_responses;
mod queries;
mod scenarios;
mod world;
