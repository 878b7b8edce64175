//! The client against everything it must run against unchanged: the engine in
//! this process, our server over TLS, and a live account when
//! `PERIHELION_LIVE_CONNECTION_STRING` names one. A scenario is written once
//! and run in each world. `queries` looks closer, with outages and counters
//! that only the engine in this process has. One binary, so that it links once.

mod examples;
mod feeds;
mod futures;
mod lost_answers;
mod queries;
mod scenarios;
mod world;
mod worlds;
