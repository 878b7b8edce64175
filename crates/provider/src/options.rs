//! The options that a program passes to the provider: configuration, cross-instance messages,
//! listing, retention.

pub(crate) mod config;
pub(crate) mod cross_instance;
pub(crate) mod listing;
pub(crate) mod retention;
