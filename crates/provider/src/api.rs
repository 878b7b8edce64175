//! The public surface: the provider, its builder, duroxide's traits on it, and the
//! published crate's client.

mod admin;
pub(crate) mod builder;
pub mod client;
pub mod provider;
mod runtime;
