//! The options that a program passes to the provider: configuration, listing, retention.

pub(crate) mod config;
pub(crate) mod listing;
pub(crate) mod retention;
