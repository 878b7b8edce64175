//! Operations: requests to the database, by subject. `api` calls them.
//!
//! `orchestration`, `activity` and `admin` have one file for each method of the
//! contract and files for the steps they share; `poll`, `heartbeat` and `repair` run
//! in the background. `core` holds the parts that they use.

pub(crate) mod activity;
pub(crate) mod admin;
pub(crate) mod core;
pub(crate) mod enqueue;
mod fetch_loop;
pub(crate) mod heartbeat;
pub(crate) mod orchestration;
pub(crate) mod payload;
pub(crate) mod poll;
pub(crate) mod read;
pub(crate) mod repair;
mod set_aside;
#[cfg(test)]
mod tests;
mod token_lock;
mod wait;
