//! Operations: requests to the database, by subject. `api` and `migrate` call them.
//!
//! `orchestration`, `activity`, `admin`, `read` and `enqueue` implement the methods of
//! duroxide's provider traits, and the steps that several methods share. `poll` finds work
//! of other processes in the database. `heartbeat` and the reconciler in `repair` run in
//! the background. `core` holds the parts that all of them use.

pub(crate) mod activity;
pub(crate) mod admin;
pub(crate) mod core;
pub(crate) mod cross_instance;
pub(crate) mod enqueue;
pub(crate) mod failure_notice;
mod fetch_loop;
pub(crate) mod heartbeat;
pub(crate) mod memory_sizes;
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
