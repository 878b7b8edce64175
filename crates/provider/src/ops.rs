//! Operations: what the provider does, by subject. `api` calls them.
//!
//! `core` is what they share; `wait`, `payload`, `read` and `enqueue` serve several
//! subjects.

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
#[cfg(test)]
mod tests;
mod token_lock;
mod wait;
